"""The index stage: built once from the evaluation's gallery, refused where there is none."""

from dataclasses import replace
from pathlib import Path

import pytest

from pipelines.config import PipelineConfig, load_config
from pipelines.evaluation.evaluator import GALLERY
from pipelines.retrieval.faiss_index import GalleryIndex, index_origin
from pipelines.runtime.stage import StageDir, StageError, StagePlan
from pipelines.stages import evaluate, extract, index, train
from pipelines.tracking import PipelineRuns
from tests.pipelines.tiny_bundle import IMAGES, write_tiny_bundle


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_bundle(tmp_path_factory.mktemp("index"))


@pytest.fixture
def config(bundle: Path, work_dir: Path, monkeypatch: pytest.MonkeyPatch) -> PipelineConfig:
    """A configuration whose evaluation is taken as done."""
    config = load_config(None, [f"work_dir={work_dir}", "name=tiny"])
    done = StagePlan("evaluate", "fingerprint", bundle, 1, 1, "splits", "", {GALLERY: bundle / "gallery"})
    StageDir(config.work_dir, "evaluate", done.fingerprint).complete({})
    monkeypatch.setattr(evaluate, "plan", lambda _: done)
    monkeypatch.setattr(train, "best_model", lambda _: bundle / "model")
    monkeypatch.setattr(extract, "plan", lambda _: done)
    return config


def test_a_gallery_is_indexed_once(config: PipelineConfig, bundle: Path) -> None:
    assert index.plan(config).status == "to do"
    with PipelineRuns(config, "f" * 64).child("index") as tracker:
        report = index.run(config, tracker)
    assert report.summary.startswith(f"{IMAGES} images, exact; ")
    done = index.plan(config)
    assert done.complete
    loaded = GalleryIndex.load(done.outputs["index"], index_origin(bundle / "model", bundle / "gallery"))
    assert loaded.images.facts.items == IMAGES
    before = {path: path.stat().st_mtime_ns for path in done.directory.rglob("*")}
    with PipelineRuns(config, "f" * 64).child("index") as tracker:
        assert index.run(config, tracker).summary == report.summary
    assert {path: path.stat().st_mtime_ns for path in done.directory.rglob("*")} == before


def test_the_kind_is_part_of_what_the_index_is(config: PipelineConfig) -> None:
    other = config.model_copy(update={"index": config.index.model_copy(update={"kind": "approximate"})})
    assert index.plan(other).fingerprint != index.plan(config).fingerprint
    with PipelineRuns(other, "e" * 64).child("index") as tracker:
        assert "6 images, approximate with recall 1.000 of the first ten" in index.run(other, tracker).summary


def test_there_is_no_index_without_a_gallery(config: PipelineConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    unfinished = replace(evaluate.plan(config), done=0)
    monkeypatch.setattr(evaluate, "plan", lambda _: unfinished)
    with (
        PipelineRuns(config, "f" * 64).child("index") as tracker,
        pytest.raises(StageError, match="run the stages train and evaluate first"),
    ):
        index.run(config, tracker)
