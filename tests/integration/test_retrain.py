"""Retraining over four days of arriving images: more, none, and a poisoned batch; and what a kill leaves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from pipelines.config import PipelineConfig, load_config
from pipelines.registry.models import CHALLENGER, CHAMPION
from pipelines.retraining import retrain
from pipelines.retraining.journal import LOG, STATUS, Journal
from pipelines.stages import extract
from tests.integration.arriving_scenes import ArrivingScenes

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(900), pytest.mark.usefixtures("ray_cluster")]

TINY = (
    "name=shop",
    "features={extractor: grid, weights: tiny_resnet, random_seed: 0, batch_size: 50, shard_size: 50}",
    "model={embed_dim: 64, text: {word_dim: 32}}",
    "training={epochs: 2, batch_size: 64, warmup: 10 steps, learning_rate: 0.002, cpus_per_worker: 1}",
    "loss={mask_same_image: true, all_negatives: 10 epochs}",
)
DAYS = {"first": 200, "more": 200, "poisoned": 400}


def start(config: PipelineConfig) -> dict[str, Any]:
    """One start of the schedule, as in a process of its own; returns the status that it leaves."""
    extract._summary.cache_clear()
    retrain.retrain(config)
    status: dict[str, Any] = json.loads((config.work_dir / "retrain" / "shop" / STATUS).read_text())
    return status


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def test_four_days(work_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scenes = ArrivingScenes(tmp_path / "data", sum(DAYS.values()), evaluation=100)
    scenes.arrive(DAYS["first"])
    config = load_config(None, [f"work_dir={work_dir}", scenes.settings, *TINY])
    client = MlflowClient(config.tracking_uri, config.tracking_uri)

    def version(alias: str) -> int:
        return int(client.get_model_version_by_alias("shop", alias).version)

    first = start(config)["record"]
    assert (first["outcome"], first["start"]["version"], first["decision"]["champion"]) == ("promoted", None, None)
    assert first["data"]["train"]["new_images"] == first["data"]["train"]["images"] == 200
    assert first["data"]["train"]["shards"]["extract"] == {"all": 4, "taken_over": 0}

    scenes.arrive(DAYS["more"])
    # Killed at the end, when its model is the champion already: it does not begin once more, with that one.
    with monkeypatch.context() as patched:
        patched.setattr(Journal, "finish", interrupt)
        with pytest.raises(KeyboardInterrupt):
            start(config)
    assert version(CHAMPION) == 2
    second = start(config)["record"]
    assert second["metrics"]["rsum"] > first["metrics"]["rsum"]
    assert second["start"]["version"] == 1
    assert second["data"]["train"]["new_images"] == 200
    assert second["data"]["train"]["new_captions"] == 5 * 200
    assert second["data"]["train"]["shards"]["extract"] == {"all": 8, "taken_over": 4}
    assert second["data"]["dev"]["new_images"] == second["data"]["dev"]["gone_images"] == 0
    assert second["data"]["dev"]["fingerprint"] == first["data"]["dev"]["fingerprint"]
    assert (second["outcome"], version(CHAMPION)) == ("promoted", 2)

    before = {path: path.stat().st_mtime_ns for path in work_dir.rglob("*") if path.is_file()}
    assert start(config)["outcome"] == "nothing new"
    changed = {
        path.name for path in work_dir.rglob("*") if path.is_file() and before.get(path) != path.stat().st_mtime_ns
    }
    assert changed == {STATUS, LOG, "work.lock"}

    scenes.arrive(DAYS["poisoned"], poisoned=True)
    poisoned = start(config)["record"]
    assert (poisoned["outcome"], poisoned["decision"]["promoted"]) == ("refused", False)
    assert (version(CHAMPION), version(CHALLENGER)) == (2, 3)
    assert start(config)["outcome"] == "nothing new"

    lines = (work_dir / "retrain" / "shop" / LOG).read_text().splitlines()
    assert [line.split("  ")[1].strip() for line in lines] == [
        "promoted",
        "interrupted",
        "promoted",
        "nothing new",
        "refused",
        "nothing new",
    ]
    experiment = client.get_experiment_by_name(config.experiment.name)
    runs = client.search_runs([experiment.experiment_id])
    outcomes = {run.data.tags["vse.outcome"]: run for run in runs if "vse.outcome" in run.data.tags}
    assert set(outcomes) == {"promoted", "refused"}
    refused = outcomes["refused"]
    assert refused.info.status == "FINISHED"
    assert "not better by more than chance" in refused.data.tags["mlflow.note.content"]
    assert refused.data.metrics["retrain/train_new_images"] == 400
    below = [run for run in runs if run.data.tags.get("mlflow.parentRunId") == refused.info.run_id]
    assert len(below) == 1  # the pipeline, above its stages
