"""Two models compared; their own evaluations are given, as the stage leaves them."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet
import pytest
from mlflow import MlflowClient

from pipelines.config import PipelineConfig, load_config
from pipelines.evaluation.comparison import compare
from pipelines.evaluation.evaluated_model import EvaluatedModel
from pipelines.runtime.stage import StageError
from tests.pipelines.evaluation.test_ensemble import IMAGES, evaluated, gallery_of
from vse_core.evaluation.recall import evaluate_retrieval

GALLERIES = {
    "good": gallery_of(0, 1, 8, list(range(IMAGES)), 1.0),
    "bad": gallery_of(0, 1, 8, list(reversed(range(IMAGES))), 3.0),
    "short": gallery_of(0, 1, 8, list(range(IMAGES - 1)), 1.0),
}


@pytest.fixture
def config(work_dir: Path) -> PipelineConfig:
    return load_config(None, [f"work_dir={work_dir}"])


@pytest.fixture
def models(work_dir: Path) -> dict[str, EvaluatedModel]:
    return {name: evaluated(work_dir, name, gallery) for name, gallery in GALLERIES.items()}


def test_metrics_tables_and_queries(
    models: dict[str, EvaluatedModel], config: PipelineConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    report = compare((models["good"], models["bad"]), config)
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
    assert compare((models["good"], models["bad"]), config).directory == report.directory


def test_models_of_other_images_are_refused(models: dict[str, EvaluatedModel], config: PipelineConfig) -> None:
    with pytest.raises(StageError, match="good and short cannot be compared"):
        compare((models["good"], models["short"]), config)
