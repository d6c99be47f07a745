"""The plan of a training reads the best checkpoint from the manifest, which may come from a storage."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from pipelines.config import load_config
from pipelines.registry.pretrained import zero_shot_config
from pipelines.retrieval.gallery import build_gallery
from pipelines.runtime.stage import StageDir, StageError
from pipelines.stages.extract import plan as extract
from pipelines.stages.train import plan as train
from pipelines.stages.train import run as train_run
from pipelines.stages.train.plan import _best
from pipelines.training.left_out import pairs_of, write_pairs
from preprocessing.captions.vocabulary import Vocabulary
from preprocessing.shards.reader import ShardReader
from tests.pipelines.evaluation.test_evaluator import SPECIFICATION
from tests.pipelines.stages.extract.test_checks import make
from vse_core.digests import recorded
from vse_core.models import build_model


@pytest.mark.parametrize("name", ["../../elsewhere", "/elsewhere", None, 3])
def test_the_best_checkpoint_lies_in_its_training(tmp_path: Path, name: object) -> None:
    stage = StageDir(tmp_path, "train", "f" * 64)
    stage.complete({"best": "best-001"}, [])
    assert _best(stage) == stage.path / "best-001"
    stage.complete({"best": name}, [])
    with pytest.raises(StageError, match=r"manifest\.json, best: .* no"):
        _best(stage)


def test_a_run_may_change_between_ddp_and_fsdp2() -> None:
    content, changed = (
        train._training_content(load_config(None, [f"training.{key}" for key in keys]))
        for keys in ([], ["parallelism=fsdp2", "workers=2"])
    )
    assert changed == content
    assert content["parallelism"] == "ddp", "as in the fingerprints of earlier runs"


def test_a_restart_does_not_read_the_captions_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = ["dataset.images={train: 8, dev: 3}", "features.shard_size=3", "training.batch_size=8"]
    config = load_config(None, [f"work_dir={tmp_path}/work", *sizes])
    extract._summary.cache_clear()
    make(config)
    upstream = {"extract": extract.plan(config, {})}
    run, splits = tmp_path / "run", train_run._splits(config, upstream)
    run.mkdir()
    assert train_run._prepared(config, run) is None
    (run / "left by another").write_text("no output of this stage")
    made = train_run._prepare(config, upstream, splits, run)
    assert recorded(run) == {"vocabulary.json", "trained_pairs.npz", "prepared.json"}
    with monkeypatch.context() as patch:
        patch.setattr(ShardReader, "texts", None)
        assert train_run._prepared(config, run) == made
    vocabulary = (run / "vocabulary.json").read_bytes()
    (run / "vocabulary.json").write_bytes(vocabulary[:-2])
    assert train_run._prepared(config, run) is None, "it was changed"
    assert train_run._prepare(config, upstream, splits, run) == made
    assert train_run._prepared(config, run) == made
    shutil.rmtree(config.work_dir / made["tables"]["dev"])
    assert train_run._prepared(config, run) is None, "the tables have gone"
    assert train_run._prepare(config, upstream, splits, run) == made


def test_a_run_without_epochs_is_called_what_it_is() -> None:
    config = zero_shot_config(load_config(None), "openai/clip")
    assert train._size(config) == "no epochs (zero-shot), one evaluation"
    outcome, facts = {"history": [{"rsum": 250.0}], "chance": 12.0}, {"captions_truncated": 0}
    assert train_run._manifest(config, outcome, facts)["summary"] == "zero-shot: dev RSUM 250.0 (chance 12.0)"
    trained = load_config(None, ["training.epochs=3"])
    assert train._size(trained) == "3 epochs, batch 64, 1 worker(s)"
    assert train_run._manifest(trained, outcome, facts)["summary"] == "dev RSUM 250.0 (chance 12.0)"


@pytest.mark.parametrize(
    ("left_out", "share", "message"),
    [
        (
            0,
            0.9,
            r"has 4 captions to train on once training\.drop_worst 0\.9 is left out, fewer than training\.batch_size",
        ),
        (
            25,
            0.6,
            r"has 6 captions to train on once training\.drop_worst 0\.6 is left out, fewer than training\.batch_size",
        ),
    ],
)
def test_too_few_captions_without_the_worst_are_refused_before_the_first_training(
    left_out: int, share: float, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 40 captions."""
    sizes = ["dataset.images={train: 8, dev: 3}", "features.shard_size=3", "training.batch_size=8"]
    config = load_config(None, [f"work_dir={tmp_path}/work", *sizes, f"training.drop_worst={share}"])
    extract._summary.cache_clear()
    make(config)
    upstream = {"extract": extract.plan(config, {})}
    if left_out:
        pairs = list(pairs_of(ShardReader(upstream["extract"].outputs["train"], "grid")))
        write_pairs(tmp_path / "out.csv", pairs[:left_out])
        changed = config.training.model_copy(update={"leave_out": tmp_path / "out.csv"})
        config = config.model_copy(update={"training": changed})
    monkeypatch.setattr(train_run, "PipelineRuns", None)
    with pytest.raises(StageError, match=message):
        train_run.run(config, upstream, None)  # type: ignore[arg-type]


def test_the_worst_captions_are_those_least_like_their_image(tmp_path: Path) -> None:
    """Of those that are not left out anyway, by the products of a gallery."""
    sizes = ["dataset.images={train: 8, dev: 3}", "features.shard_size=3", "training.batch_size=8"]
    config = load_config(None, [f"work_dir={tmp_path}/work", *sizes])
    extract._summary.cache_clear()
    make(config)
    shards = extract.plan(config, {}).outputs["train"]
    reader = ShardReader(shards, "grid")
    words = Vocabulary.build(reader.texts(), 1)
    torch.manual_seed(0)
    model = build_model(**SPECIFICATION | {"feature_dim": 3, "vocabulary_size": len(words)}).eval()
    (tmp_path / "model").mkdir()
    model.save(tmp_path / "model")
    words.save(tmp_path / "model" / words.FILE)
    pairs = list(pairs_of(reader))
    config = config.model_copy(update={"training": config.training.model_copy(update={"drop_worst": 0.4})})
    dropped = train_run._worst(config, shards, tmp_path / "model", set(pairs[:10]))
    gallery = build_gallery(model, reader, words, "")
    products = [
        float(gallery.images_BKD[image, 0] @ gallery.texts_CD[number])
        for number, (image, _) in enumerate(gallery.captions)
    ]
    worst = sorted(range(10, 40), key=products.__getitem__)[:12]
    assert dropped == sorted({*pairs[:10], *(pairs[number] for number in worst)})
