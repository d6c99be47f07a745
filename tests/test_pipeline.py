"""The main job as a user starts it, as small as it can be, with a Ray of its own: from scenes to a registered model."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from mlflow import MlflowClient

ROOT = Path(__file__).resolve().parents[1]
STEPS = 2 * 3  # epochs of three batches of 30 captions
SETTINGS = (
    "dataset.images={train: 18, dev: 6}",
    "features.shard_size=10",
    "model={embed_dim: 16, text: {word_dim: 8}}",
    "training={epochs: 2, batch_size: 32, log_steps: 1, warmup: 1 steps}",
)


@pytest.mark.timeout(900)
def test_from_scenes_to_a_registered_model(work_dir: Path) -> None:
    settings = [f"--set={setting}" for setting in (f"work_dir={work_dir}", *SETTINGS)]
    command = [sys.executable, str(ROOT / "pipelines" / "full.py"), *settings]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 0, done.stdout
    (losses,) = work_dir.glob("train/*/losses.jsonl")
    assert [json.loads(line)["step"] for line in losses.read_text().splitlines()] == list(range(1, STEPS + 1))
    (record,) = work_dir.glob("pipelines/*/outputs.json")
    made = {path.parent.relative_to(work_dir).as_posix() for path in work_dir.glob("**/manifest.json")}
    assert set(json.loads(record.read_text())["folders"]) == made | {f"pipelines/{record.parent.name}"}
    client = MlflowClient(f"sqlite:///{work_dir}/mlflow.db")
    assert client.get_model_version_by_alias("scenes", "challenger").version == 1
    (experiment,) = client.search_experiments(filter_string="name = 'scenes'")
    runs = {run.info.run_name: run for run in client.search_runs([experiment.experiment_id])}
    assert {run.info.status for run in runs.values()} == {"FINISHED"}
    assert 0 < runs["evaluate"].data.metrics["dev/rsum"] <= 600
