"""The judgement of pairs by a model, against its gallery; the table and the sheet of what fits badly."""

from __future__ import annotations

import csv
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from pipelines.config import PipelineConfig, load_config
from pipelines.evaluation import audit
from pipelines.evaluation.audit import (
    SHEET,
    TABLE,
    AuditedPair,
    PairJudge,
    audit_by_halves,
    audit_by_model,
    judged_pairs,
    write_misfits,
)
from pipelines.evaluation.commands import audit_main
from pipelines.evaluation.named_models import NamedModel
from pipelines.inference.feature_check import write_feature_key
from pipelines.retrieval.gallery import build_gallery
from pipelines.runtime.stage import StageError
from pipelines.stages.extract import plan as extract
from pipelines.stages.train.run import _worst
from pipelines.training.left_out import named_pairs, pairs_of, write_pairs
from pipelines.training.trained_pairs import FILE, has_record, unseen_pairs, write_trained_pairs
from preprocessing.captions.vocabulary import Vocabulary
from preprocessing.datasets.record import Caption, Record
from preprocessing.shards.reader import ShardReader
from tests.pipelines.evaluation.test_evaluator import SPECIFICATION
from tests.pipelines.stages.extract.test_checks import make
from vse_core.models import build_model


@pytest.fixture
def config(tmp_path: Path) -> PipelineConfig:
    """A configuration whose splits are extracted."""
    sizes = ["dataset.images={train: 8, dev: 5}", "features.shard_size=3", "training.batch_size=8"]
    config = load_config(None, [f"work_dir={tmp_path}/work", *sizes])
    extract._summary.cache_clear()
    make(config)
    return config


@pytest.fixture
def model(config: PipelineConfig, tmp_path: Path) -> Path:
    """A model of random weights for these splits."""
    return write_model(config, tmp_path / "model")


def write_model(config: PipelineConfig, directory: Path) -> Path:
    directory.mkdir(parents=True)
    reader = ShardReader(extract.plan(config, {}).outputs["train"], "grid")
    words = Vocabulary.build(reader.texts(), 1)
    torch.manual_seed(0)
    build_model(**SPECIFICATION | {"feature_dim": 3, "vocabulary_size": len(words)}).eval().save(directory)
    words.save(directory / words.FILE)
    return directory


def test_pairs_are_judged_as_the_similarities_of_a_gallery_say(config: PipelineConfig, model: Path) -> None:
    """Of some images alone, and the numbers are those of all."""
    shards = extract.plan(config, {}).outputs
    judge = PairJudge(config, shards, model, 0.25)
    similarities = {}
    for split in ("train", "dev"):
        gallery = build_gallery(
            judge._texts.model, ShardReader(shards[split], "grid"), judge._texts.caption_encoder, ""
        )
        similarities[split] = [
            [float(gallery.images_BKD[image, 0] @ gallery.texts_CD[number])
             for number, (owner, _) in enumerate(gallery.captions) if owner == image]
            for image in range(len(gallery.records))
        ]  # fmt: skip
    good = sorted(value for image in similarities["dev"] for value in image)
    means = sorted(sum(image) / len(image) for image in similarities["dev"])

    def fit(image: list[float], value: float) -> float:
        mean = sum(image) / len(image)
        shares = ([other <= at + 1e-6 for other in all_] for at, all_ in ((value, good), (mean, means)))
        return min(sum(share) / len(share) for share in shares)

    found = judge.judge([1, 6, 7])
    expected = [(value, fit(similarities["train"][image], value)) for image in (1, 6, 7)
                for value in similarities["train"][image]]  # fmt: skip
    assert [pair.similarity for pair in found] == pytest.approx([value for value, _ in expected], abs=1e-5)
    assert [pair.fit for pair in found] == pytest.approx([share for _, share in expected], abs=1e-5)
    assert {pair.record.image_id for pair in found} == {judge.reader.meta(image)["image_id"] for image in (1, 6, 7)}


def test_the_table_and_the_sheet_name_the_misfits_the_worst_first(tmp_path: Path) -> None:
    records = [
        Record(f"i{i}", f"/nowhere/{i}.jpg", "train", tuple(Caption(f"{i}#{n}", f"t{i}{n}") for n in (0, 1)))
        for i in range(3)
    ]
    fits = [[0.5, 0.02], [0.01, 0.03], [0.7, 0.9]]
    pairs = [
        AuditedPair(record, caption, fit - 0.1, fit, fit <= 0.04)
        for record, values in zip(records, fits, strict=True)
        for caption, fit in zip(record.captions, values, strict=True)
    ]
    counts = write_misfits(pairs, tmp_path, "Worst")
    assert counts == {"pairs": 6, "misfits": 3, "images": 3, "misfit_images": 1}
    with (tmp_path / TABLE).open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["image_id"], row["caption_id"], row["caption"]) for row in rows] == [
        ("i1", "1#0", "t10"),
        ("i0", "0#1", "t01"),
        ("i1", "1#1", "t11"),
    ]
    assert named_pairs(tmp_path / TABLE) == {("i1", "1#0"), ("i0", "0#1"), ("i1", "1#1")}
    page = (tmp_path / SHEET).read_text()
    assert page.index("i1: 2 of 2 captions fit badly") < page.index("i0: 1 of 2 captions fit badly")
    assert "i2" not in page
    # Of the second image one caption alone was judged.
    assert write_misfits(pairs[2:3], tmp_path, "Worst")["misfit_images"] == 0
    assert "i1: 1 of 1 judged captions fit badly" in (tmp_path / SHEET).read_text()


def test_a_model_that_has_seen_the_pairs_is_refused(
    config: PipelineConfig, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans = {"extract": extract.plan(config, {})}
    monkeypatch.setattr(audit, "run_stages", lambda *_: plans)
    monkeypatch.setattr(audit, "tags_of", lambda *_: {"vse.data_fingerprint": plans["extract"].fingerprint})
    with pytest.raises(StageError, match="shop/3 was trained on these very pairs"):
        audit_by_model(NamedModel("shop/3", config, model), 0.05)
    write_feature_key(model, "pyramid")
    monkeypatch.setattr(audit, "run_stages", Mock(side_effect=AssertionError("before features are extracted")))
    with pytest.raises(StageError, match="trained on the features 'pyramid'"):
        audit_by_model(NamedModel("shop/3", config, model), 0.05)


def test_pairs_that_a_model_was_trained_on_are_not_judged(
    config: PipelineConfig, model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of another data set, too, which shares some of them; without its record all are judged."""
    plans = {"extract": extract.plan(config, {})}
    shards, named = plans["extract"].outputs, NamedModel("shop/3", config, model)
    reader = ShardReader(shards["train"], "grid")
    pairs, numbers = list(pairs_of(reader)), range(len(reader))
    assert [pair.ids for pair in judged_pairs(config, shards, named, 0.05, numbers)] == pairs
    write_trained_pairs(reader, np.arange(7), None, model)
    assert [pair.ids for pair in judged_pairs(config, shards, named, 0.05, numbers)] == pairs[7:]
    changed = {pairs[0][0]}
    assert [pair.ids for pair in judged_pairs(config, shards, named, 0.05, numbers, changed=changed)] == pairs[
        :5
    ] + pairs[7:]
    monkeypatch.setattr(audit, "run_stages", lambda *_: plans)
    # It is of these data, but was not trained on all of them.
    monkeypatch.setattr(audit, "tags_of", lambda *_: {"vse.data_fingerprint": plans["extract"].fingerprint})
    monkeypatch.setattr(audit, "_audit", lambda _, __, judges, *___: judges)
    assert audit_by_model(named, 0.05) == [(named, numbers)]
    assert "7 captions are not judged: shop/3 was trained on them" in " ".join(capsys.readouterr().out.split())
    later = model.parent / "later"
    later.mkdir()
    write_trained_pairs(reader, np.arange(7, len(pairs)), model, later)
    assert unseen_pairs(reader, later) == set(), "with those of the model that it starts from"
    (later / FILE).replace(model / FILE)
    assert judged_pairs(config, shards, named, 0.05, numbers) == []
    with pytest.raises(StageError, match="shop/3 was trained on these very pairs"):
        audit_by_model(named, 0.05)


def test_the_models_of_halves_start_from_scratch(config: PipelineConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The initial model may have been trained on the very pairs that they judge."""
    trained: list[PipelineConfig] = []

    def run_stages(config: PipelineConfig, names: list[str]) -> dict[str, Any]:
        if "train" in names:
            trained.append(config)
        best = SimpleNamespace(output=lambda _: config.work_dir)
        return {"extract": extract.plan(config, {}), "train": best}

    monkeypatch.setattr(audit, "run_stages", run_stages)
    monkeypatch.setattr(audit, "_audit", lambda _, __, judges, *___: judges)
    initial = config.training.model_copy(update={"initial": config.work_dir})
    judges: Any = audit_by_halves(config.model_copy(update={"training": initial}), 0.05)
    assert [each.training.initial for each in trained] == [None, None]
    judged = [set(images) for _, images in judges]
    pairs = list(pairs_of(ShardReader(extract.plan(config, {}).outputs["train"], "grid")))
    for half, images in zip(trained, judged, strict=True):
        assert half.training.leave_out is not None
        assert named_pairs(half.training.leave_out) == {pair for n, pair in enumerate(pairs) if n // 5 in images}
    assert judged[0] | judged[1] == set(range(8)), "each image is judged once"
    assert not judged[0] & judged[1]
    write_pairs(file := config.work_dir / "out.csv", [(*pairs[0], "of other data")], ["caption"])
    other = config.training.model_copy(update={"leave_out": file})
    with pytest.raises(StageError, match="its ids are those of other data"):
        audit_by_halves(config.model_copy(update={"training": other}), 0.05)


def test_a_run_of_no_epochs_has_seen_what_its_initial_model_has(config: PipelineConfig, tmp_path: Path) -> None:
    reader = ShardReader(extract.plan(config, {}).outputs["train"], "grid")
    pairs = set(pairs_of(reader))
    folders = [tmp_path / name for name in ("trained", "untrained", "elsewhere", "unknown")]
    trained, untrained, elsewhere, unknown = folders
    for folder in folders:
        folder.mkdir()
    write_trained_pairs(reader, np.arange(7), None, trained)
    write_trained_pairs(reader, None, trained, untrained, is_trained=False)
    assert unseen_pairs(reader, untrained) == unseen_pairs(reader, trained) != pairs
    write_trained_pairs(reader, None, None, untrained, is_trained=False)
    assert unseen_pairs(reader, untrained) == pairs
    assert has_record(untrained), "it is known to have seen none of them"
    write_trained_pairs(reader, None, elsewhere, unknown, is_trained=False)
    assert not has_record(unknown)


def test_a_folder_with_a_number_for_a_name_is_no_registered_version(
    config: PipelineConfig, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder := model.parent / "models" / "3").parent.mkdir()
    model.rename(folder)
    monkeypatch.chdir(model.parent)
    monkeypatch.setattr(audit, "run_stages", lambda *_: {"extract": extract.plan(config, {})})
    monkeypatch.setattr(audit, "_audit", lambda _, __, judges, *___: judges)
    assert audit_by_model(NamedModel("models/3", config, folder), 0.05)


def test_halves_of_a_kind_without_embeddings_are_refused_before_any_work(tmp_path: Path) -> None:
    (tmp_path / "graphs.json").write_text("{}")
    config = load_config(None, ["preset=hgr_infty", f"model.text.graphs={tmp_path}/graphs.json"])
    with pytest.raises(StageError, match="have no embeddings to compare pairs by"):
        audit_by_halves(config, 0.05)


def test_a_split_that_is_larger_than_the_machine_is_judged_and_ranked(tmp_path: Path) -> None:
    """As it is trained on, some shards at a time."""
    stored = ["dataset.images={train: 40, dev: 5}", "features.shard_size=2", f"storage.address={tmp_path}/store"]
    config = load_config(None, [f"work_dir={tmp_path}/work", *stored, "training.batch_size=8"])
    extract._summary.cache_clear()
    made = make(config)
    shards = extract.plan(config, {}).outputs
    model = write_model(config, config.work_dir / "train" / "x" / "best")
    config.mirror.push_folder(model)
    room = sum(path.stat().st_size for path in made if "dev" in path.parts) + 4 * max(p.stat().st_size for p in made)
    small = [f"storage.cache_gb={room / 1e9}", "training.drop_worst=0.4"]
    config = load_config(None, [f"work_dir={tmp_path}/work", *stored, *small])
    for path in made:
        path.unlink()
    named = NamedModel(str(model), config, model)
    assert len(judged_pairs(config, shards, named, 0.05, range(40))) == 200
    assert len(_worst(config, shards["train"], model, set())) == 80


def test_the_standard_cannot_be_audited_by_itself(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["audit.py", "model", "--split", "dev"])
    with pytest.raises(SystemExit):
        audit_main()
    assert "dev" in capsys.readouterr().err
