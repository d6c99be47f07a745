"""Which pairs a retraining audits, what it leaves out, and when it stops; the judgement itself is given."""

from __future__ import annotations

from collections.abc import Mapping, Set
from pathlib import Path
from typing import Any, ClassVar

import pytest

from pipelines.config import PipelineConfig, load_config
from pipelines.evaluation import audit, named_models
from pipelines.evaluation.audit import SHEET, TABLE, AuditedPair
from pipelines.retraining.journal import Journal
from pipelines.retraining.new_pairs import LEFT_OUT, NOT_TRAINED_ON, NewPairs
from pipelines.runtime.stage import StageError
from pipelines.stages.extract import plan as extract
from pipelines.training.left_out import Pair, named_pairs, pairs_of, write_pairs
from preprocessing.datasets import build_dataset
from preprocessing.datasets.record import Caption, Record
from preprocessing.extraction.split_hashes import DataManifest
from preprocessing.shards.reader import ShardReader
from tests.pipelines.stages.extract.test_checks import make
from tests.pipelines.training.by_hand import Quiet

LAST, NOW = "aa" * 32, "bb" * 32


class Logged(Quiet):
    """A tracker that keeps metrics and the names of artifacts."""

    def __init__(self) -> None:
        self.metrics: dict[str, float] = {}
        self.artifacts: list[str] = []

    def log_metrics(self, metrics: Mapping[str, float], step: int = 0) -> None:
        self.metrics |= metrics

    def log_artifact(self, path: Path, folder: str = "") -> None:
        self.artifacts.append(path.name)


class Judge:
    """Finds every second caption unfit, and counts how often it is asked."""

    asked: ClassVar[list[list[int]]] = []
    left_out: ClassVar[list[set[Pair]]] = []

    def __init__(self, config: PipelineConfig, shards: Mapping[str, Path], model: Path, loss: float) -> None:
        self.reader = ShardReader(shards["train"], "grid")

    def judge(self, images: list[int], left_out: Set[Pair] = frozenset()) -> list[AuditedPair]:
        self.asked.append(images)
        self.left_out.append(set(left_out))
        captions = [
            (Record(meta["image_id"], "/nowhere.jpg", "train", ()), Caption(caption["caption_id"], caption["text"]))
            for meta in map(self.reader.meta, images)
            for caption in meta["captions"]
        ]
        return [AuditedPair(*pair, 0.1, 0.1, number % 2 == 0) for number, pair in enumerate(captions)]


def configured(tmp_path: Path, images: int, *overrides: str) -> PipelineConfig:
    sizes = [f"dataset.images={{train: {images}, dev: 5}}", "features.shard_size=3", "training.batch_size=8"]
    config = load_config(None, [f"work_dir={tmp_path}/work", *sizes, *overrides])
    extract._summary.cache_clear()
    make(config)
    return config


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    monkeypatch.setattr(audit, "PairJudge", Judge)
    monkeypatch.setattr(named_models, "find_model", lambda reference, uri: (reference, Path("model")))
    Judge.asked, Judge.left_out = [], []
    return Judge.asked


def began(config: PipelineConfig, identity: str) -> Journal:
    """The journal in which a retraining has these data."""
    journal = Journal(config.work_dir / "retrain", config.mirror)
    dataset = build_dataset(config.dataset.format, **config.dataset.options())
    journal.keep_data(identity, "train", DataManifest.of(dataset, "train"))
    return journal


def new_pairs_of(config: PipelineConfig, journal: Journal, changed: frozenset[str] = frozenset()) -> NewPairs:
    return NewPairs(config, journal, NOW, {"identity": LAST}, extract.plan(config, {}).outputs, changed)


def audited(config: PipelineConfig, journal: Journal, tracker: Logged | None = None) -> dict[str, Any]:
    return new_pairs_of(config, journal).audit(2, tracker or Logged())


def test_what_came_new_is_judged_once_and_its_misfits_are_left_out(tmp_path: Path, judged: list[list[int]]) -> None:
    """With those that the last retraining left out."""
    journal = began(configured(tmp_path, 8), LAST)
    config = configured(tmp_path, 10)
    pairs = list(pairs_of(ShardReader(extract.plan(config, {}).outputs["train"], "grid")))
    write_pairs(journal.of(LAST) / LEFT_OUT, [pairs[3], ("gone", "gone#0")])
    logged = Logged()
    counts = audited(config, journal, logged)
    assert {name: counts[name] for name in ("pairs", "misfits", "images", "champion")} == {
        "pairs": 10,
        "misfits": 5,
        "images": 2,
        "champion": 2,
    }
    assert "5 of 10 captions fit badly (50.0%)" in counts["summary"]
    assert logged.metrics == {"retrain/audit_pairs": 10, "retrain/audit_misfits": 5, "retrain/audit_misfit_images": 0}
    assert logged.artifacts == [TABLE, SHEET]
    assert audited(config, journal) == counts
    assert judged == [[8, 9]]
    assert Judge.left_out == [{pairs[3], ("gone", "gone#0")}]
    file = new_pairs_of(config, journal).left_out()
    assert file is not None
    assert named_pairs(file) == {pairs[3], *pairs[40:50:2]}


def test_without_anything_new_no_model_is_loaded(tmp_path: Path, judged: list[list[int]]) -> None:
    config = configured(tmp_path, 8)
    journal = began(config, LAST)
    assert audited(config, journal)["summary"] == "no new captions"
    assert judged == []
    assert new_pairs_of(config, journal).left_out() is None


def test_too_many_misfits_stop_the_retraining_each_time_until_the_limit_is_raised(
    tmp_path: Path, judged: list[list[int]]
) -> None:
    journal = began(configured(tmp_path, 3), LAST)
    config = configured(tmp_path, 23)
    for _ in range(2):
        with pytest.raises(StageError, match=r"50 of 100 captions fit badly \(50.0%\).*audit_limit \(30%\)"):
            audited(config, journal)
    assert audited(configured(tmp_path, 23, "retrain.audit_limit=0.5"), journal)["misfits"] == 50
    assert len(judged) == 1


def test_captions_are_new_next_to_those_that_were_extracted(tmp_path: Path, judged: list[list[int]]) -> None:
    """A split in archives has no others: what is in these is known when they are read."""
    config = configured(tmp_path, 8)
    journal = Journal(config.work_dir / "retrain", config.mirror)
    journal.keep_data(LAST, "train", DataManifest())
    NewPairs(config, journal, LAST, None, extract.plan(config, {}).outputs).keep()
    assert audited(configured(tmp_path, 10), journal)["pairs"] == 10
    assert judged == [[8, 9]]


def test_what_was_left_out_stays_left_out_without_an_audit(tmp_path: Path) -> None:
    """As with a champion that cannot be loaded; if `retrain.audit` leaves nothing out, it is kept for later."""
    config = configured(tmp_path, 8)
    journal = began(config, LAST)
    pair = next(pairs_of(ShardReader(extract.plan(config, {}).outputs["train"], "grid")))
    write_pairs(journal.of(LAST) / LEFT_OUT, [pair])
    for mode, leaves_out in (("leave_out", True), ("refuse", False), ("none", False)):
        file = new_pairs_of(configured(tmp_path, 8, f"retrain.audit={mode}"), journal).left_out()
        assert file == (journal.of(NOW) / NOT_TRAINED_ON if leaves_out else None)
        assert named_pairs(journal.of(NOW) / LEFT_OUT) == {pair}
        (journal.of(NOW) / LEFT_OUT).unlink()


def test_another_image_is_judged_again(tmp_path: Path, judged: list[list[int]]) -> None:
    """With the captions that were left out with the one before."""
    config = configured(tmp_path, 8)
    journal = began(config, LAST)
    pairs = list(pairs_of(ShardReader(extract.plan(config, {}).outputs["train"], "grid")))
    write_pairs(journal.of(LAST) / LEFT_OUT, [pairs[0], pairs[1], pairs[5]])
    new = new_pairs_of(config, journal, frozenset({pairs[0][0]}))
    assert new.audit(2, Logged())["pairs"] == 5
    assert judged == [[0]]
    file = new.left_out()
    assert file is not None
    assert named_pairs(file) == {pairs[0], pairs[2], pairs[4], pairs[5]}


def test_what_training_leaves_out_anyway_is_not_judged(tmp_path: Path, judged: list[list[int]]) -> None:
    journal = began(configured(tmp_path, 8), LAST)
    config = configured(tmp_path, 10)
    pairs = list(pairs_of(ShardReader(extract.plan(config, {}).outputs["train"], "grid")))
    write_pairs(tmp_path / "mine.csv", pairs[40:45])
    config = configured(tmp_path, 10, f"training.leave_out={tmp_path}/mine.csv")
    assert audited(config, journal)["pairs"] == 5
    file = new_pairs_of(config, journal).left_out()
    assert file is not None
    assert named_pairs(file) == {*pairs[40:45], pairs[45], pairs[47], pairs[49]}
    assert Judge.left_out == [set(pairs[40:45])]


def test_captions_that_the_file_no_longer_names_are_trained_on_again(tmp_path: Path, judged: list[list[int]]) -> None:
    """But what an audit has found stays left out, also if the file named it."""
    began(configured(tmp_path, 8), LAST)
    config = configured(tmp_path, 10)
    shards = extract.plan(config, {}).outputs
    pairs = list(pairs_of(ShardReader(shards["train"], "grid")))
    write_pairs(tmp_path / "mine.csv", [pairs[0], pairs[45], ("gone", "gone#0")])
    named = configured(tmp_path, 10, f"training.leave_out={tmp_path}/mine.csv")
    journal = Journal(named.work_dir / "retrain", named.mirror)
    first = new_pairs_of(named, journal)
    first.keep()
    first.audit(2, Logged())
    misfits = {*pairs[40:45:2], pairs[46], pairs[48]}
    assert named_pairs(first.left_out() or Path()) == {pairs[0], pairs[45], *misfits}
    second = NewPairs(config, journal, "cc" * 32, {"identity": NOW}, shards)
    assert named_pairs(second.left_out() or Path()) == misfits


@pytest.mark.parametrize("mode", ["leave_out", "refuse", "none"])
def test_a_file_of_other_data_is_refused(mode: str, tmp_path: Path) -> None:
    """Also next to misfits of earlier retrainings, with which some captions would be left out."""
    config = configured(tmp_path, 8)
    journal = began(config, LAST)
    pair = next(pairs_of(ShardReader(extract.plan(config, {}).outputs["train"], "grid")))
    write_pairs(journal.of(LAST) / LEFT_OUT, [pair])
    write_pairs(tmp_path / "other.csv", [("gone", "gone#0")])
    config = configured(tmp_path, 8, f"training.leave_out={tmp_path}/other.csv", f"retrain.audit={mode}")
    with pytest.raises(StageError, match="none of which is in the training split"):
        new_pairs_of(config, journal).left_out()


def test_another_loss_judges_again(tmp_path: Path, judged: list[list[int]]) -> None:
    journal = began(configured(tmp_path, 8), LAST)
    config = configured(tmp_path, 10)
    for overrides in ((), (), ("retrain.audit_loss=0.01",), ("retrain.audit_loss=0.01",)):
        audited(configured(tmp_path, 10, *overrides), journal)
    assert len(judged) == 2
    assert audited(config, journal)["loss"] == 0.05


def test_data_that_is_again_what_it_was_is_judged_next_to_what_came_between(
    tmp_path: Path, judged: list[list[int]]
) -> None:
    """Two images were withdrawn and come back: the retraining between does not know what was left out of them."""
    config = configured(tmp_path, 10)
    journal, before, between = began(config, NOW), "cc" * 32, "dd" * 32
    for identity, images in ((before, 9), (between, 8)):
        journal.keep_data(identity, "train", began(configured(tmp_path, images), LAST).data(LAST, "train"))
    shards = extract.plan(configured(tmp_path, 10), {}).outputs
    for last in (before, before, between):
        NewPairs(config, journal, NOW, {"identity": last}, shards).audit(2, Logged())
    assert judged == [[9], [8, 9]]


def test_what_an_earlier_start_left_out_is_forgotten_if_this_one_trains_on_it(
    tmp_path: Path, judged: list[list[int]]
) -> None:
    journal = began(configured(tmp_path, 8), LAST)
    config = configured(tmp_path, 10)
    audited(config, journal)
    assert new_pairs_of(config, journal).left_out() is not None
    assert new_pairs_of(configured(tmp_path, 10, "retrain.audit=none"), journal).left_out() is None
    assert named_pairs(journal.of(NOW) / LEFT_OUT) == set()
