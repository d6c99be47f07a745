"""A search on Ray Tune end to end: it ends, it resumes where it stopped, and its winner can be trained."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from mlflow import MlflowClient

from pipelines.config import load_config
from pipelines.stages.runner import plan_stages
from pipelines.tuning.results import read_results
from pipelines.tuning.search import BEST, TABLE, run_search
from pipelines.tuning.space import SearchConfig

pytestmark = [pytest.mark.timeout(900), pytest.mark.usefixtures("ray_cluster")]

TINY = (
    "dataset={format: scenes, images: {train: 24, dev: 6}}",
    "features={extractor: grid, weights: tiny_resnet, random_seed: 0}",
    "model={embed_dim: 16}",
    "training={epochs: 2, batch_size: 40, warmup: 1 steps}",
)


def test_a_search_ends_and_goes_on(work_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = load_config(None, [f"work_dir={work_dir}", *TINY])
    margins = [0.1, 0.2]
    space = {"loss.margin": {"values": margins}, "training.gradient_clip": {"values": [2.0]}}
    search = SearchConfig.model_validate({"name": "margins", "method": "grid", "space": space, "concurrent": 2})
    folder = run_search(config, search)
    out = capsys.readouterr().out
    assert all(f"{margin:.4g}" in out for margin in margins)
    results = (folder / TABLE).read_text().splitlines()
    assert len(results) == 3
    best = load_config(folder / BEST)
    assert plan_stages(best, last="train")["train"].complete  # it is a trial, trained under its own fingerprint
    client = MlflowClient(config.tracking_uri)
    experiment = client.get_experiment_by_name(config.experiment.name)
    runs = client.search_runs([experiment.experiment_id])
    (parent,) = [run for run in runs if run.info.run_name == "margins"]
    trials = [run for run in runs if run.data.tags.get("mlflow.parentRunId") == parent.info.run_id]
    assert [run.info.status for run in [parent, *trials]] == ["FINISHED"] * 3
    assert parent.data.metrics["best/rsum"] == max(
        metric.value for run in trials for metric in client.get_metric_history(run.info.run_id, "dev/rsum")
    )
    # As after a kill behind the last trial: nothing is trained again, and the table is the same.
    (folder / "manifest.json").unlink()
    steps = {path: path.stat().st_mtime_ns for path in work_dir.glob("train/*/checkpoints/*/*")}
    assert run_search(config, search) == folder
    assert (folder / TABLE).read_text().splitlines() == results
    assert {path: path.stat().st_mtime_ns for path in work_dir.glob("train/*/checkpoints/*/*")} == steps
    # Without the state of the search its trials are found all the same.
    (folder / "manifest.json").unlink()
    shutil.rmtree(folder / "trials")
    run_search(config, search)
    assert {path: path.stat().st_mtime_ns for path in work_dir.glob("train/*/checkpoints/*/*")} == steps
    # The same settings as rows of a table: their trainings are found, and the table has their recalls.
    rows = {f"margin {margin}": {"loss.margin": margin, "training.gradient_clip": 2.0} for margin in margins}
    table = SearchConfig.model_validate({"name": "rows", "method": "rows", "rows": rows, "concurrent": 2})
    expected = {f"margin {t.settings['loss.margin']}": t.rsum for t in read_results(folder / TABLE)}
    folder = run_search(config, table)
    trials = read_results(folder / TABLE)
    assert {trial.settings["row"]: trial.rsum for trial in trials} == expected
    assert all(sum(trial.recalls.values()) == pytest.approx(trial.rsum) for trial in trials)
    assert load_config(folder / BEST).loss.margin in margins
    assert {path: path.stat().st_mtime_ns for path in work_dir.glob("train/*/checkpoints/*/*")} == steps
    assert "image to text R@1 / 5 / 10" in capsys.readouterr().out


@pytest.mark.nightly
def test_trials_that_drop_the_worst_captions_share_the_training_on_all_of_them(work_dir: Path) -> None:
    """It runs within the trial that comes first, whose epochs alone are reported."""
    config = load_config(None, [f"work_dir={work_dir}", *TINY])
    space = {"training.drop_worst": {"values": [0.1, 0.2]}}
    search = SearchConfig.model_validate({"name": "dropped", "method": "grid", "space": space, "concurrent": 2})
    trials = read_results(run_search(config, search) / TABLE)
    assert [(trial.settings["training.drop_worst"], trial.problem, trial.epochs) for trial in trials] == [
        (0.1, "", 2),
        (0.2, "", 2),
    ]
    assert len(list(work_dir.glob("train/*/manifest.json"))) == 3
    lines = {len(file.read_text().splitlines()) - 1 for file in work_dir.glob("train/*/dropped.csv")}
    assert lines == {12, 24}
