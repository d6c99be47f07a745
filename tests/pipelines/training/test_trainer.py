"""The training loop: the same losses on any number of processes and after any kill; NaN and collapse are named."""

import contextlib
import json
import math
import multiprocessing
import shutil
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.multiprocessing as mp

from pipelines.config import PipelineConfig, load_config
from pipelines.inference.start import START, read_start
from pipelines.kinds.inputs import SplitData
from pipelines.training.checkpoints import newest_checkpoint
from pipelines.training.initial_weights import keep_initial
from pipelines.training.loss_log import LOSSES
from pipelines.training.schedules import LossSchedule
from pipelines.training.trainer import Trainer, can_be_graphed
from preprocessing.captions.vocabulary import Vocabulary
from preprocessing.shards.reader import ShardReader
from preprocessing.shards.writer import Sample, write_shard
from tests.pipelines.training.by_hand import SMALL, Quiet, quiet_trainer
from tests.ranks import run_ranks
from vse_core.digests import check_digests, write_digests
from vse_core.models import load_model
from vse_core.training.collapse import CollapseError
from vse_core.training.state import read_progress
from vse_core.training.step import NonFiniteLossError

WORDS = ["red", "blue", "green", "big", "small", "circle", "square", "star", "above", "below", "left", "right"]


class KilledError(Exception):
    """Stands for a kill -9 at a step."""


class Recorder(Quiet):
    """A tracker that remembers, and can die at a step."""

    def __init__(self, die_at: int | None = None) -> None:
        self.die_at = die_at
        self.metrics: list[tuple[int, dict[str, float]]] = []

    def log_metrics(self, metrics: Mapping[str, float], step: int = 0) -> None:
        self.metrics.append((step, dict(metrics)))
        if step == self.die_at:
            raise KilledError


def write_split(directory: Path, images: int, seed: int, spoil: bool = False, words: int = 0) -> None:
    """Features that tell the caption's words, so that there is something to learn; `words` more on the first image."""
    rng = np.random.default_rng(seed)
    samples = []
    for i in range(images):
        chosen = rng.choice(len(WORDS), 4, replace=False)
        features = np.eye(len(WORDS))[chosen] + 0.1 * rng.standard_normal((4, len(WORDS)))
        if spoil and i == 3:
            features[0, 0] = np.nan
        captions = [
            {"caption_id": f"{i}#{c}", "text": " ".join(WORDS[w] for w in rng.permutation(chosen))} for c in range(5)
        ]
        if i == 0:
            captions[0]["text"] += " red" * words
        meta = {"image_id": str(i), "image": f"scene://0/{i}", "split": "train", "captions": captions}
        samples.append(Sample(f"{i:09d}", {"grid": features.astype(np.float16)}, meta))
    directory.mkdir(parents=True)
    write_shard(directory / "shard-00000.tar", samples, "f" * 64)


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("shards")
    write_split(root / "train", 23, 0)
    write_split(root / "dev", 9, 1)
    return root


def make_config(*overrides: str) -> PipelineConfig:
    own = ("model.text.word_dim=8", "vocabulary.min_count=1", "training.epochs=3")
    return load_config(None, [*SMALL, *own, *overrides])


def make_trainer(config: PipelineConfig, shards: Path, out: Path, tracker: Recorder | None) -> Trainer:
    train, dev = SplitData(ShardReader(shards / "train", "grid")), SplitData(ShardReader(shards / "dev", "grid"))
    vocabulary = Vocabulary.build((caption["text"] for meta in train.reader.metas() for caption in meta["captions"]), 1)
    out.mkdir(exist_ok=True)
    return quiet_trainer(config, train, dev, vocabulary, out, tracker)


def losses_of(out: Path) -> list[float]:
    losses = [json.loads(line) for line in (out / LOSSES).read_text().splitlines()]
    assert [entry["step"] for entry in losses] == list(range(1, len(losses) + 1))
    return [entry["loss"] for entry in losses]


@pytest.fixture(scope="module")
def undisturbed(shards: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[float], list[dict[str, float]]]:
    out = tmp_path_factory.mktemp("undisturbed")
    history = make_trainer(make_config(), shards, out, Recorder()).run()
    return losses_of(out), list(history)


def test_a_run_learns_and_keeps_the_best_model(shards: Path, tmp_path: Path):
    recorder = Recorder()
    trainer = make_trainer(make_config("training.epochs=12"), shards, tmp_path, recorder)
    history = trainer.run()
    assert history[-1]["rsum"] > history[0]["rsum"] + 50
    assert losses_of(tmp_path)[-1] < losses_of(tmp_path)[8]
    best = max(range(12), key=lambda epoch: history[epoch]["rsum"])
    assert [path.name for path in tmp_path.glob("best-*")] == [f"best-{best + 1:03d}"]
    load_model(tmp_path / f"best-{best + 1:03d}")
    steps, metrics = zip(*recorder.metrics, strict=True)
    names = (
        "loss gradient_norm learning_rate samples_per_second step_seconds data_wait_share image_to_text active_hinges"
    )
    names += " positive_similarity hardest_negative_similarity"
    assert metrics[0].keys() >= {*(f"train/{name}" for name in names.split())}
    assert metrics[0]["train/samples_per_second"] * metrics[0]["train/step_seconds"] == pytest.approx(14)
    assert steps[-1] == 12 * 8
    assert metrics[-1]["dev/rsum"] == history[-1]["rsum"]


@pytest.mark.parametrize("die_at", [2, 4, 8, 9, 20, 24])
def test_a_killed_run_goes_on_as_if_nothing_had_happened(
    shards: Path, tmp_path: Path, undisturbed: tuple[list[float], list[dict[str, float]]], die_at: int
):
    with pytest.raises(KilledError):
        make_trainer(make_config(), shards, tmp_path, Recorder(die_at)).run()
    with (tmp_path / "losses.jsonl").open("a") as file:
        file.write('{"step": 99, "lo')  # a line that the kill cut short
    newest = newest_checkpoint(tmp_path)
    before = 0.0 if newest is None else read_progress(newest).seconds
    trainer = make_trainer(make_config(), shards, tmp_path, Recorder())
    history = trainer.run()
    assert losses_of(tmp_path) == pytest.approx(undisturbed[0], abs=1e-6)
    assert list(history) == undisturbed[1]
    assert trainer.progress.seconds > before, "of all starts together"


def killed_while_it_writes(shards: Path, out: Path, finished: int) -> bool:
    """Train in a process that dies in the midst of a checkpoint, after it has finished some; whether it was killed."""
    before = {path.stat().st_ino for path in out.glob("checkpoints/.step-*.tmp")}
    seen: set[str] = set()
    process = multiprocessing.get_context("fork").Process(
        target=lambda: make_trainer(make_config(), shards, out, Recorder()).run()
    )
    process.start()
    while process.is_alive() and len(seen) <= finished:
        for path in out.glob("checkpoints/.step-*.tmp"):
            with contextlib.suppress(FileNotFoundError):  # complete since, and renamed
                if path.stat().st_ino not in before:
                    seen.add(path.name)
        time.sleep(0.0005)
    process.kill()
    process.join()
    return process.exitcode == -signal.SIGKILL


@pytest.mark.integration
def test_kills_while_a_checkpoint_is_written_change_nothing(
    shards: Path, tmp_path: Path, undisturbed: tuple[list[float], list[dict[str, float]]]
):
    kills = half_written = 0
    while kills < 20:
        if killed_while_it_writes(shards, tmp_path, finished=kills % 2):
            kills += 1
            half_written += any(tmp_path.glob("checkpoints/.step-*.tmp"))
        else:
            shutil.rmtree(tmp_path / "checkpoints")  # it came to its end: from the beginning
    history = make_trainer(make_config(), shards, tmp_path, Recorder()).run()
    assert half_written >= 10
    assert losses_of(tmp_path) == undisturbed[0]
    assert list(history) == undisturbed[1]
    assert not list(tmp_path.glob("checkpoints/.*"))


def run_rank(rank: int, shards: Path, out: Path, die_at: int | None, settings: Sequence[str]) -> None:
    tracker = Recorder(die_at) if rank == 0 else None
    history = make_trainer(make_config(*settings), shards, out, tracker).run()
    (out / f"history-{rank}.json").write_text(json.dumps(history))


def run_group(world: int, shards: Path, out: Path, die_at: int | None = None, settings: Sequence[str] = ()) -> None:
    run_ranks(run_rank, world, shards, out, die_at, settings)


@pytest.mark.integration
def test_the_number_of_processes_does_not_matter(
    shards: Path, tmp_path: Path, undisturbed: tuple[list[float], list[dict[str, float]]]
):
    run_group(4, shards, tmp_path)
    assert losses_of(tmp_path) == pytest.approx(undisturbed[0], rel=1e-5, abs=1e-5)
    histories = {(tmp_path / f"history-{rank}.json").read_text() for rank in range(4)}
    assert len(histories) == 1


@pytest.mark.integration
def test_what_the_loss_learns_does_not_depend_on_the_number_of_processes(shards: Path, tmp_path: Path):
    settings = (LEARNED,)
    recorder = Recorder()
    make_trainer(make_config(*settings), shards, tmp_path / "one", recorder).run()
    run_group(2, shards, tmp_path / "two", settings=settings)
    assert losses_of(tmp_path / "two") == pytest.approx(losses_of(tmp_path / "one"), rel=1e-4)
    learned = [
        json.loads((tmp_path / run / "checkpoints/step-00000024/progress.json").read_text())["learned"]
        for run in ("one", "two")
    ]
    assert learned[0] == pytest.approx(learned[1], rel=1e-4)
    temperatures = [metrics["train/temperature"] for _, metrics in recorder.metrics if "train/temperature" in metrics]
    assert temperatures[0] == pytest.approx(0.1)
    assert temperatures[-1] != temperatures[0]


@pytest.mark.integration
def test_a_number_of_processes_that_changes_does_not_matter(
    shards: Path, tmp_path: Path, undisturbed: tuple[list[float], list[dict[str, float]]]
):
    with pytest.raises(mp.ProcessRaisedException, match="KilledError"):
        run_group(2, shards, tmp_path, die_at=8)
    with pytest.raises(KilledError):
        make_trainer(make_config(), shards, tmp_path, Recorder(die_at=17)).run()
    run_group(2, shards, tmp_path)
    assert losses_of(tmp_path) == pytest.approx(undisturbed[0], rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("variant", ["corrected", "release"])
def test_steps_of_models_that_read_padding_have_no_graphs(shards: Path, tmp_path: Path, variant: str):
    config = make_config(f"model.text.pooling={{name: adpool, variant: {variant}}}")
    model = make_trainer(config, shards, tmp_path, None).model
    assert can_be_graphed(model, torch.device("cuda"), "bf16") == (variant == "corrected")
    assert not can_be_graphed(model, torch.device("cuda"), "fp16")
    assert not can_be_graphed(model, torch.device("cpu"), "bf16")


def test_nan_features_end_the_run_before_the_weights_are_spoiled(tmp_path: Path):
    write_split(tmp_path / "shards" / "train", 23, 0, spoil=True)
    write_split(tmp_path / "shards" / "dev", 9, 1)
    trainer = make_trainer(make_config("training.size_augmentation=none"), tmp_path / "shards", tmp_path / "out", None)
    with pytest.raises(NonFiniteLossError, match=r"^step \d+: the loss is nan"):
        trainer.run()
    assert all(parameter.isfinite().all() for parameter in trainer.model.parameters())


def test_collapse_is_recognised(shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("pipelines.training.schedules.COLLAPSE_PATIENCE", 4)
    trainer = make_trainer(make_config("loss.all_negatives=0 steps"), shards, tmp_path, None)
    # Every caption and every image at the same point.
    for encoder in (trainer.model.image_encoder, trainer.model.text_encoder):
        encoder.pooling.register_forward_hook(lambda module, inputs, output: output * 0 + 1)
    with pytest.raises(CollapseError, match=r"loss\.all_negatives"):
        trainer.run()


LEARNED = "loss={name: sigmoid, mask_same_image: false, learned: true}"


def test_what_a_model_began_with_goes_on_with_it(shards: Path, tmp_path: Path):
    (tmp_path / "first").mkdir()
    make_trainer(make_config(), shards, tmp_path / "first", Recorder()).run()
    (best,) = (tmp_path / "first").glob("best-*")
    start = {"openai/clip": None}
    (best / START).write_text(json.dumps(start))
    write_digests(best)
    config, out = make_config(f"training.initial={best}"), tmp_path / "second"
    out.mkdir()
    keep_initial(best, out, config.mirror)
    make_trainer(config, shards, out, Recorder()).run()
    (second,) = out.glob("best-*")
    assert read_start(second) == start
    check_digests(second, START)


def test_what_the_loss_has_learned_goes_on_with_the_model(shards: Path, tmp_path: Path):
    """The second training logs the values that the first one has ended with; a checkpoint knows better."""
    make_trainer(make_config(LEARNED, "training.learning_rate=0.05"), shards, tmp_path / "first", Recorder()).run()
    (best,) = (tmp_path / "first").glob("best-*")
    learned = json.loads((best / "learned.json").read_text())
    config, out = make_config(LEARNED, f"training.initial={best}"), tmp_path / "second"
    out.mkdir()
    keep_initial(best, out, config.mirror)
    recorder = Recorder(die_at=6)
    trainer = make_trainer(config, shards, out, recorder)
    assert trainer.losses.state() == pytest.approx(learned)
    assert learned["logit_scale"] != pytest.approx(LossSchedule(config.loss, 1).state()["logit_scale"])
    with pytest.raises(KilledError):
        trainer.run()
    assert recorder.metrics[0][1]["train/temperature"] == pytest.approx(math.exp(-learned["logit_scale"]))
    resumed = make_trainer(config, shards, out, Recorder())
    resumed._restore()
    assert resumed.progress.learned == resumed.losses.state() != pytest.approx(learned)


# Steps of 3, 3 and 2 batches; the scale of fp16 halves in the first steps.
VARIANTS = {
    "accumulated": ["training.accumulation=3"],
    "bf16": ["training.precision=bf16"],
    "fp16": ["training.precision=fp16"],
    "learned": [LEARNED],
    "all": ["training.accumulation=3", "training.precision=fp16"],
    "views": ["model.image.views=3"],
    "fixed words": ["model.text.learned_dim=4", "model.text.word_vectors=/glove.txt"],
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_killed_run_of_any_kind_goes_on_as_if_nothing_had_happened(shards: Path, tmp_path: Path, variant: str):
    config = make_config(*VARIANTS[variant], "training.checkpoint_minutes=0")
    make_trainer(config, shards, tmp_path / "whole", Recorder()).run()
    with pytest.raises(KilledError):
        make_trainer(config, shards, tmp_path / "killed", Recorder(die_at=6)).run()
    recorder = Recorder()
    make_trainer(config, shards, tmp_path / "killed", recorder).run()
    losses = losses_of(tmp_path / "whole")
    assert losses_of(tmp_path / "killed") == losses
    assert len(losses) == (9 if config.training.accumulation == 3 else 24)
    assert ("train/skipped_steps" in recorder.metrics[0][1]) == (config.training.precision == "fp16")


def test_a_step_of_several_batches_reports_their_mean_loss(shards: Path, tmp_path: Path):
    still = ["training.learning_rate=1e-12", "training.caption_augmentation=false"]
    make_trainer(make_config(*still), shards, tmp_path / "single", Recorder()).run()
    make_trainer(make_config(*still, "training.accumulation=3"), shards, tmp_path / "three", Recorder()).run()
    single, three = losses_of(tmp_path / "single"), losses_of(tmp_path / "three")
    groups = [single[epoch + first : min(epoch + first + 3, epoch + 8)] for epoch in (0, 8, 16) for first in (0, 3, 6)]
    assert three == pytest.approx([sum(group) / len(group) for group in groups], rel=1e-4)
