"""The register stage over the output of earlier stages: once, resumable, and without MLflow a clear message."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from pipelines.config import PipelineConfig, load_config
from pipelines.evaluation.evaluator import GALLERY
from pipelines.registry.card import FILE
from pipelines.registry.models import FINGERPRINT_TAG
from pipelines.runtime.stage import MANIFEST, StageDir, StageError, StagePlan
from pipelines.stages import evaluate, extract, index, register, train
from pipelines.tracking import PipelineRuns
from tests.pipelines.tiny_bundle import write_tiny_bundle


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_bundle(tmp_path_factory.mktemp("register"))


@pytest.fixture
def config(bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PipelineConfig:
    """A configuration whose extraction and training are taken as done, with an evaluation that is on disk."""
    config = load_config(None, [f"work_dir={tmp_path / 'work'}", "name=tiny", "seed=3"])

    made = {GALLERY: bundle / "gallery", index.NAME: bundle / "index"}
    outputs = {"extract": {split: tmp_path / split for split in ("train", "dev")}}

    def plan(name: str) -> StagePlan:
        folder = tmp_path / {"train": "training"}.get(name, name)
        return StagePlan(name, f"fingerprint of {name}", folder, 1, 1, "parts", "", outputs.get(name, made))

    for split in ("train", "dev"):
        counts = {"images": 6, "captions": 30}
        write_manifest(tmp_path / split, {"counts": counts, "set_aside": [], "fingerprint": f"features of {split}"})
    write_manifest(tmp_path / "training", {"history": [{"rsum": 300.0}, {"rsum": 321.5}], "seconds": 12.0})
    evaluation = StageDir(config.work_dir, "evaluate", "fingerprint of evaluate")
    evaluation.complete({"metrics": {"rsum": 321.5, "i2t_r01": 40.0}})
    for module in (extract, train, evaluate, index):
        monkeypatch.setattr(module, "plan", lambda _, name=module.NAME: plan(name))
    monkeypatch.setattr(train, "best_model", lambda _: bundle / "model")
    return config


def write_manifest(folder: Path, content: dict[str, Any]) -> None:
    folder.mkdir()
    (folder / MANIFEST).write_text(json.dumps(content))


def run(config: PipelineConfig) -> str:
    with PipelineRuns(config, "f" * 64).child("register") as tracker:
        report = register.run(config, tracker)
    return f"{report.summary}{' (up to date)' if report.up_to_date else ''}"


def test_register_makes_one_version_and_says_so_the_second_time(config: PipelineConfig) -> None:
    before = register.plan(config)
    assert (before.status, before.complete) == ("to do", False)
    split = config.dataset.eval_split
    assert run(config) == f"tiny version 1, {split} RSUM 321.5"
    assert register.plan(config).complete
    assert run(config) == f"tiny version 1, {split} RSUM 321.5 (up to date)"

    client = MlflowClient(config.tracking_uri, config.tracking_uri)
    (version,) = client.search_model_versions("name = 'tiny'")
    expected = {"vse.rsum": "321.50", "vse.seed": "3", "vse.split": split, FINGERPRINT_TAG: before.fingerprint}
    assert expected.items() <= version.tags.items()
    assert version.tags["vse.data_fingerprint"] == "fingerprint of extract"
    (model,) = client.search_logged_models([client.get_run(version.run_id).info.experiment_id])
    assert {metric.key: metric.value for metric in model.metrics} == {f"{split}/rsum": 321.5, f"{split}/i2t_r01": 40.0}
    run_of_version = client.get_run(version.run_id)
    assert run_of_version.info.status == "FINISHED"
    assert run_of_version.data.tags["vse.model_uri"] == "models:/tiny/1"
    assert version.description == (register.plan(config).directory / FILE).read_text()
    assert "| RSUM | 321.5 |" in version.description
    assert FILE in [file.path for file in client.list_artifacts(version.run_id)]


def test_register_that_was_killed_before_its_manifest_makes_no_second_version(config: PipelineConfig) -> None:
    run(config)
    (register.plan(config).directory / "manifest.json").unlink()
    assert not register.plan(config).complete
    assert run(config).startswith("tiny version 1,")
    assert len(MlflowClient(config.tracking_uri, config.tracking_uri).search_model_versions("name = 'tiny'")) == 1


def test_a_database_that_is_gone_has_no_registered_model(config: PipelineConfig) -> None:
    plan = register.plan(config)
    StageDir(config.work_dir, register.NAME, plan.fingerprint).complete({"summary": "registered before"})
    database = Path(config.tracking_uri.removeprefix("sqlite:///"))
    database.touch()
    assert register.plan(config).complete
    database.unlink()
    assert not register.plan(config).complete


def test_another_name_is_another_registration(config: PipelineConfig) -> None:
    other = config.model_copy(update={"name": "other"})
    assert register.plan(other).fingerprint != register.plan(config).fingerprint


def test_register_needs_an_evaluated_model(config: PipelineConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    unfinished = replace(evaluate.plan(config), done=0)
    monkeypatch.setattr(evaluate, "plan", lambda _: unfinished)
    with pytest.raises(StageError, match="run the stages train and evaluate first"):
        run(config)


def test_a_bundle_that_a_killed_run_left_half_written_is_completed(config: PipelineConfig, bundle: Path) -> None:
    directory = register.plan(config).directory
    (directory / "model").mkdir(parents=True)
    (directory / "model" / "model.json").write_text("{")
    assert run(config).startswith("tiny version 1,")
    shutil.copy(bundle / "model" / "model.json", directory / "expected.json")
    assert (directory / "model" / "model.json").read_bytes() == (directory / "expected.json").read_bytes()
