"""Training with the components of captions, and against adversarial captions: learns, resumes, is the same in parts."""

import json
from itertools import chain
from pathlib import Path

import numpy as np
import pytest

from pipelines.config import PipelineConfig, load_config
from pipelines.kinds.adversarial_behaviour import ADVERSARIAL, _write_tokens
from pipelines.kinds.inputs import SplitData
from pipelines.kinds.scene_graphs import graphs_of
from pipelines.runtime.stage import StageError
from pipelines.training.initial_weights import FEATURE_MEAN, write_feature_mean
from pipelines.training.prepare import prepare
from pipelines.training.trainer import Trainer
from preprocessing.captions.adversarial.files import Adversarial, read_adversarials, write_adversarials
from preprocessing.captions.components import component_words
from preprocessing.captions.pools import Pools
from preprocessing.captions.vocabulary import Vocabulary
from preprocessing.shards.reader import ShardReader
from tests.pipelines.tiny_graphs import write_split
from tests.pipelines.training.by_hand import SMALL, quiet_trainer
from tests.pipelines.training.test_trainer import KilledError, Recorder, losses_of
from tests.ranks import run_ranks
from vse_core.models import load_model
from vse_core.models.unified import UnifiedModel

SYSTEMS = ["univse", "vse_c"]


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("shards")
    write_split(root / "train", 23, 0)
    write_split(root / "dev", 9, 1)
    return root


def make_config(system: str, *overrides: str) -> PipelineConfig:
    common = [
        *SMALL,
        "model.text.word_dim=8",
        "vocabulary.min_count=1",
        "training.epochs=3",
        "training.decay={name: none}",
        "training.warmup=0 steps",
    ]
    own = {
        "univse": ["model.text.modifier_dim=4", "model.image.pooling.k=2", "loss.relations_after=1 epochs"],
        "vse_c": ["loss.adversarial_after=1 epochs", "loss.all_negatives=1 epochs"],
    }
    return load_config(None, [f"preset={system}", *common, *own[system], *overrides])


def splits_of(shards: Path) -> list[SplitData]:
    return [
        SplitData(ShardReader(shards / f"{name}/features", "grid"), shards / f"{name}/graphs")
        for name in ("train", "dev")
    ]


def make_trainer(
    config: PipelineConfig, shards: Path, out: Path, tracker: Recorder | None, prepared: bool = False
) -> Trainer:
    train, dev = splits_of(shards)
    graphs = list(chain.from_iterable(graphs_of(train)))
    texts = [caption["text"] for meta in train.reader.metas() for caption in meta["captions"]]
    out.mkdir(exist_ok=True)
    if not prepared:
        Pools.build(graphs, 1, 1, 1).save(out / Pools.FILE)
    if config.loss.name == "vse_c" and not prepared:
        entries = [
            Adversarial(
                str(number // 5),
                f"{number // 5}#{number % 5}",
                "noun",
                text,
                tuple(f"{text} {word}" for word in ("star", "cross")[: number % 3]),
            )
            for number, text in enumerate(texts)
        ]
        write_adversarials(out / ADVERSARIAL, entries)
    vocabulary = Vocabulary.build(
        texts, 1, component_words(graphs, 1, relations=getattr(config.model.text, "relations", "words"))
    )
    if (out / ADVERSARIAL).is_file() and not prepared:
        _write_tokens(out, train.reader, vocabulary)
    return quiet_trainer(config, train, dev, vocabulary, out, tracker)


@pytest.fixture(scope="module", params=SYSTEMS)
def undisturbed(request, shards: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[float], list[dict]]:
    out = tmp_path_factory.mktemp("undisturbed")
    history = make_trainer(make_config(request.param), shards, out, Recorder()).run()
    return request.param, losses_of(out), list(history)


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_run_learns_and_its_model_loads(system: str, shards: Path, tmp_path: Path):
    recorder = Recorder()
    trainer = make_trainer(make_config(system, "training.epochs=15"), shards, tmp_path, recorder)
    history = trainer.run()
    assert history[-1]["rsum"] > history[0]["rsum"] + 30
    model = load_model(next(tmp_path.glob("best-*")))
    assert isinstance(model, UnifiedModel) == (system == "univse")
    logged = set(chain.from_iterable(metrics for _, metrics in recorder.metrics))
    wanted = {"univse": {"train/obj", "train/attr", "train/rel", "train/comp"}, "vse_c": {"train/adversarial"}}
    assert logged >= wanted[system]


@pytest.mark.parametrize(
    "setting",
    [
        "model.text.pooling={name: gpo}",
        "model.text.relations=joined",
        "model.text.start=published",
        "model.text.surface_words=true",
    ],
)
def test_variants_of_univse_learn_and_their_models_load(setting: str, shards: Path, tmp_path: Path):
    settings = [setting, "training.epochs=6", "model.image.pooling={name: gpo}"]
    history = make_trainer(make_config("univse", *settings), shards, tmp_path, Recorder()).run()
    assert history[-1]["rsum"] > history[0]["rsum"]
    model = load_model(next(tmp_path.glob("best-*")))
    assert model.text_encoder.relations == ("joined" if "joined" in setting else "words")
    assert (model.text_encoder.sentences is None) == ("gpo" not in setting)
    assert model.text_encoder.surface_words == ("surface" in setting)


def test_the_mean_of_the_features_is_the_training_splits_and_stays(shards: Path, tmp_path: Path):
    """Also if training resumes."""
    reader = ShardReader(shards / "train/features", "grid")
    write_feature_mean(reader, tmp_path)
    mean_F = np.concatenate([reader.features(image).astype(float) for image in range(len(reader))]).mean(axis=0)
    config = make_config("univse", "model.image.center=regions", "training.epochs=1", "loss.negatives_from=captions")
    trainer = make_trainer(config, shards, tmp_path, Recorder())
    np.testing.assert_allclose(trainer.model.get_buffer("image_encoder.center.mean_F").numpy(), mean_F, atol=1e-6)
    trainer.run()
    (tmp_path / FEATURE_MEAN).unlink()
    resumed = make_trainer(config, shards, tmp_path, Recorder(), prepared=True)
    for model in (resumed.model, load_model(next(tmp_path.glob("best-*")))):
        np.testing.assert_allclose(model.get_buffer("image_encoder.center.mean_F").numpy(), mean_F, atol=1e-6)


def test_vse_c_trains_against_one_kind_of_adversarial_captions(shards: Path, tmp_path: Path):
    config = make_config("vse_c", "loss.attack=relation", "pools={min_nouns: 1, min_adjectives: 1, min_relations: 1}")
    prepare(config.training_settings, *splits_of(shards), tmp_path)
    assert {entry.attack for entry in read_adversarials(tmp_path / ADVERSARIAL)} == {"relation"}


def test_relations_count_only_when_their_time_has_come(shards: Path, tmp_path: Path):
    trainer = make_trainer(make_config("univse"), shards, tmp_path, None)
    weights = [trainer.losses.at(step).weights["rel"] for step in range(2 * trainer.loader.steps_per_epoch)]
    assert weights == [0.0] * 8 + [1.0] * 8


@pytest.mark.parametrize("die_at", [2, 9, 20])
def test_a_killed_run_goes_on_as_if_nothing_had_happened(undisturbed, shards: Path, tmp_path: Path, die_at: int):
    system, losses, history = undisturbed
    with pytest.raises(KilledError):
        make_trainer(make_config(system), shards, tmp_path, Recorder(die_at)).run()
    found = make_trainer(make_config(system), shards, tmp_path, Recorder()).run()
    assert losses_of(tmp_path) == pytest.approx(losses, abs=1e-6)
    assert list(found) == history


def run_rank(rank: int, config: PipelineConfig, shards: Path, out: Path) -> None:
    tracker = Recorder() if rank == 0 else None
    history = make_trainer(config, shards, out, tracker, prepared=True).run()
    (out / f"history-{rank}.json").write_text(json.dumps(history))


@pytest.mark.integration
@pytest.mark.parametrize("parallelism", ["ddp", "fsdp2"])
def test_two_processes_have_the_losses_of_one(undisturbed, shards: Path, tmp_path: Path, parallelism: str):
    system, losses, _ = undisturbed
    config = make_config(system, f"training.parallelism={parallelism}")
    # The files that all processes read are written once, as the stage does it.
    make_trainer(config, shards, tmp_path, None)
    run_ranks(run_rank, 2, config, shards, tmp_path)
    assert losses_of(tmp_path) == pytest.approx(losses, rel=1e-5, abs=1e-5)
    assert (tmp_path / "history-0.json").read_text() == (tmp_path / "history-1.json").read_text()


def test_graphs_of_other_captions_are_refused(shards: Path):
    with pytest.raises(StageError, match=r"image 9 is .* in the features"):
        list(graphs_of(SplitData(ShardReader(shards / "train/features", "grid"), shards / "dev/graphs")))
