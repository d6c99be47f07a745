"""Several models evaluated together; their own evaluations are given, as the stage leaves them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from mlflow import MlflowClient

from pipelines.config import PipelineConfig, load_config
from pipelines.evaluation import GALLERY
from pipelines.evaluation.ensemble import evaluate_ensemble
from pipelines.evaluation.evaluated_model import EvaluatedModel
from pipelines.kinds.kind import TWO_TOWERS
from pipelines.retrieval.gallery import Gallery
from pipelines.runtime.stage import StageDir, StageError
from preprocessing.datasets import Caption, Record
from vse_core.evaluation.recall import evaluate_retrieval, rank_retrieval

IMAGES = 40


def gallery_of(seed: int, views: int, dim: int, order: list[int], noise: float = 1.5) -> Gallery:
    """Noisy embeddings of images and two captions each, in some order."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.randn(IMAGES, views, dim, generator=generator)
    texts = images[:, 0].repeat_interleave(2, dim=0) + noise * torch.randn(2 * IMAGES, dim, generator=generator)
    records = [
        Record(
            str(image), "", "dev", tuple(Caption(f"{seed}-{image}-{c}", f"caption {c} of {image}") for c in range(2))
        )
        for image in range(IMAGES)
    ]
    captions = [2 * image + c for image in order for c in range(2)]
    return Gallery(images[order], texts[captions], tuple(records[image] for image in order))


@pytest.fixture
def config(work_dir: Path) -> PipelineConfig:
    return load_config(None, [f"work_dir={work_dir}"])


@pytest.fixture
def members(work_dir: Path) -> list[EvaluatedModel]:
    """Three models, whose galleries differ in width, number of views and order."""
    galleries = {
        "a": gallery_of(1, 1, 8, list(range(IMAGES))),
        "b": gallery_of(2, 3, 6, list(reversed(range(IMAGES)))),
        "c": gallery_of(3, 1, 8, list(range(IMAGES - 1))),
    }
    return [evaluated(work_dir, name, gallery) for name, gallery in galleries.items()]


def evaluated(work_dir: Path, name: str, gallery: Gallery) -> EvaluatedModel:
    """The output of an evaluation."""
    stage = StageDir(work_dir, "evaluate", f"fingerprint of {name}")
    gallery.save(stage.create() / GALLERY)
    result = evaluate_retrieval(gallery.images_BKD, gallery.texts_CD, [2] * len(gallery.records))
    stage.complete({"metrics": result.as_dict(), "summary": f"{name} alone"}, [])
    return EvaluatedModel(name, Path(name), TWO_TOWERS, "fingerprint of features", stage.path)


def test_rows_of_the_members_and_of_the_mean_of_their_similarities(
    members: list[EvaluatedModel], config: PipelineConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    report = evaluate_ensemble(members[:2], config)
    first, second = gallery_of(1, 1, 8, list(range(IMAGES))), gallery_of(2, 3, 6, list(range(IMAGES)))
    expected = rank_retrieval([(g.images_BKD, g.texts_CD) for g in (first, second)], 2)[1].result()
    alone = [evaluate_retrieval(g.images_BKD, g.texts_CD, 2) for g in (first, second)]
    assert report.summary.startswith(f"2 models together: dev RSUM {expected.rsum:.1f} (")
    assert report.summary.endswith(") over 40 images and 80 captions")

    rows = {line.split("│")[1].strip(): line for line in capsys.readouterr().out.splitlines() if line.startswith("│")}
    for name, result in zip(["a", "b", "ensemble"], [*alone, expected], strict=True):
        assert f"{result.rsum:.1f}" in rows[name]

    client = MlflowClient(config.tracking_uri)
    experiment = client.get_experiment_by_name(config.experiment.name)
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.status == "FINISHED"
    assert run.data.metrics["dev/rsum"] == pytest.approx(expected.rsum)
    assert [run.data.metrics[f"member_{n}/rsum"] for n in (1, 2)] == pytest.approx([each.rsum for each in alone])
    assert run.data.tags["vse.models"] == "a b"

    again = evaluate_ensemble(members[:2], config)
    assert again.directory == report.directory
    assert len(client.search_runs([experiment.experiment_id])) == 1


def test_models_of_other_images_are_refused(members: list[EvaluatedModel], config: PipelineConfig) -> None:
    with pytest.raises(StageError, match=r"a and c cannot be compared: .* 1 are only in the first, such as 39; give"):
        evaluate_ensemble([members[0], members[2]], config)
