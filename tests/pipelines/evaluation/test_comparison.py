"""Two models compared; their own evaluations are given, as the stage leaves them."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet
import pytest
import torch
from mlflow import MlflowClient

from pipelines.config import PipelineConfig, load_config
from pipelines.evaluation import GALLERY
from pipelines.evaluation.comparison import compare
from pipelines.evaluation.evaluated_model import EvaluatedModel
from pipelines.kinds.kind import TWO_TOWERS
from pipelines.retrieval.gallery import Gallery
from pipelines.runtime.stage import StageDir, StageError
from preprocessing.datasets import Caption, Record
from vse_core.evaluation.recall import evaluate_retrieval

IMAGES = 40


def gallery_of(noise: float, order: list[int]) -> Gallery:
    """Embeddings of images with two captions each that know the truth up to some noise, in some order."""
    images = torch.randn(IMAGES, 1, 8, generator=torch.Generator().manual_seed(0))
    errors = torch.randn(2 * IMAGES, 8, generator=torch.Generator().manual_seed(1))
    texts = images[:, 0].repeat_interleave(2, dim=0) + noise * errors
    records = [
        Record(str(image), f"/{image}.jpg", "dev", tuple(Caption(f"{image}#{c}", f"{c} of {image}") for c in range(2)))
        for image in range(IMAGES)
    ]
    captions = [2 * image + c for image in order for c in range(2)]
    return Gallery(images[order], texts[captions], tuple(records[image] for image in order))


GALLERIES = {
    "good": gallery_of(1.0, list(range(IMAGES))),
    "bad": gallery_of(3.0, list(reversed(range(IMAGES)))),
    "short": gallery_of(1.0, list(range(IMAGES - 1))),
}


@pytest.fixture
def config(work_dir: Path) -> PipelineConfig:
    return load_config(None, [f"work_dir={work_dir}"])


@pytest.fixture
def models(work_dir: Path) -> dict[str, EvaluatedModel]:
    models = {}
    for name, gallery in GALLERIES.items():
        stage = StageDir(work_dir, "evaluate", f"fingerprint of {name}")
        gallery.save(stage.create() / GALLERY)
        stage.complete({"metrics": {}, "summary": ""}, [])
        models[name] = EvaluatedModel(name, Path(name), TWO_TOWERS, "fingerprint of features", stage.path)
    return models


def test_metrics_tables_and_queries(
    models: dict[str, EvaluatedModel], config: PipelineConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    report = compare((models["good"], models["bad"]), 1, "dev", config.mirror, config.experiment)
    expected = [evaluate_retrieval(g.images_BKD, g.texts_CD, 2).rsum for g in list(GALLERIES.values())[:2]]
    assert report.summary.startswith(f"dev RSUM {expected[0]:.1f} and {expected[1]:.1f}: difference +")

    client = MlflowClient(config.tracking_uri)
    (run,) = client.search_runs([client.get_experiment_by_name(config.experiment.name).experiment_id])
    metrics = {name.removeprefix("dev/difference/"): value for name, value in run.data.metrics.items()}
    assert metrics["rsum"] == pytest.approx(expected[0] - expected[1])
    assert 0 < metrics["rsum_low"] < metrics["rsum"] < metrics["rsum_high"]
    assert metrics["rsum_p"] < 0.01
    assert [item.path for item in client.list_artifacts(run.info.run_id, "compare")] == ["compare/queries.parquet"]

    rows = pyarrow.parquet.read_table(report.directory / "queries.parquet").to_pylist()
    assert sorted(row["query_id"] for row in rows if row["direction"] == "i2t") == sorted(map(str, range(IMAGES)))
    leads = [row["second_model_rank"] / row["first_model_rank"] for row in rows]
    assert leads == sorted(leads, reverse=True)
    for name, gallery in zip(("first", "second"), GALLERIES.values(), strict=False):
        found = [row[f"{name}_model_rank"] == 1 for row in rows if row["direction"] == "i2t"]
        assert (
            100 * sum(found) / IMAGES == evaluate_retrieval(gallery.images_BKD, gallery.texts_CD, 2).image_to_text.r01
        )

    out = capsys.readouterr().out
    assert f"{metrics['rsum']:+.1f}" in out
    assert (
        compare((models["good"], models["bad"]), 1, "dev", config.mirror, config.experiment).directory
        == report.directory
    )


def test_models_of_other_images_are_refused(models: dict[str, EvaluatedModel], config: PipelineConfig) -> None:
    with pytest.raises(StageError, match="good and short cannot be compared"):
        compare((models["good"], models["short"]), 1, "dev", config.mirror, config.experiment)
