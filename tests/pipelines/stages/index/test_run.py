"""The index stage: built once from the evaluation's gallery, refused where there is none."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from pipelines.config import PipelineConfig, load_config
from pipelines.retrieval import faiss_index
from pipelines.retrieval import index as index_command
from pipelines.retrieval.faiss_index import GalleryIndex, index_origin
from pipelines.runtime.stage import Plans, StageError
from pipelines.stages.index import plan as index
from pipelines.stages.index import run as index_run
from pipelines.tracking import PipelineRuns
from tests.pipelines.stages.given import given
from tests.pipelines.tiny_bundle import IMAGES, write_tiny_bundle


@pytest.fixture(scope="module")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Plans:
    """A trained model, and the gallery of its evaluation."""
    bundle = write_tiny_bundle(tmp_path_factory.mktemp("index"))
    return given(bundle, train={"best": bundle / "model"}, evaluate={"gallery": bundle / "gallery"})


@pytest.fixture
def config(work_dir: Path) -> PipelineConfig:
    return load_config(None, [f"work_dir={work_dir}", "name=tiny"])


def run(config: PipelineConfig, upstream: Plans) -> str:
    with PipelineRuns(config.experiment, "f" * 64).child("index") as tracker:
        return index_run.run(config, upstream, tracker).summary


def test_a_gallery_is_indexed(config: PipelineConfig, upstream: Plans) -> None:
    assert index.plan(config, upstream).status == "to do"
    assert run(config, upstream).startswith(f"{IMAGES} images, exact; ")
    done = index.plan(config, upstream)
    assert done.complete
    origin = index_origin(upstream["train"].output("best"), upstream["evaluate"].output("gallery"))
    loaded = GalleryIndex.load(done.outputs["index"], origin)
    assert loaded.images.facts.items == IMAGES


def test_a_large_gallery_is_indexed_approximately(
    config: PipelineConfig, upstream: Plans, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faiss_index, "_EXACT_VECTORS", IMAGES - 1)
    assert "6 images, approximate (HNSW), with recall 1.000 of the first ten, measured with the captions" in run(
        config, upstream
    )


def test_a_compressed_index_says_what_it_costs(config: PipelineConfig, upstream: Plans, tmp_path: Path) -> None:
    full = index.plan(config, upstream).directory
    small = load_config(None, [f"work_dir={tmp_path}", "name=tiny", "index.compress=pca8-int8"])
    summary = run(small, upstream)
    assert re.search(
        "6 images, exact, pca8-int8, fitted to the 30 captions and their images, with recall [.0-9]+ of the first ten, "
        "measured with the captions; 30 captions, .*; RSUM [.0-9]+ instead of [.0-9]+$",
        summary,
    )
    assert index.plan(small, upstream).directory.name != full.name
    short = load_config(None, [f"work_dir={tmp_path}", "name=tiny", "index.compress=pca17"])
    with pytest.raises(StageError, match=r"index\.compress: .* have 16 dimensions"):
        run(short, upstream)


def test_the_command_sets_the_form_of_the_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[PipelineConfig] = []
    monkeypatch.setattr(index_command, "run_stages", lambda config, *_: asked.append(config))
    for form in ("pca8-int8", "none"):
        index_command.main(["--compress", form, "--set", "index.compress=int8", "--dry-run"])
    assert [config.index.compress for config in asked] == ["pca8-int8", None]


@pytest.mark.parametrize("stage", ["train", "evaluate"])
def test_there_is_no_index_without_a_gallery(config: PipelineConfig, upstream: Plans, stage: str) -> None:
    unfinished = {**upstream, stage: replace(upstream[stage], done=0)}
    with pytest.raises(StageError, match=f"the output of {stage} is to do .* run `python pipelines/{stage}.py`"):
        run(config, unfinished)
