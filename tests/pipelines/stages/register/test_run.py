"""The register stage over the output of earlier stages: once, resumable, and without MLflow a clear message."""

import errno
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from mlflow import MlflowClient

from pipelines.config import CardConfig, PipelineConfig, load_config
from pipelines.registry.models import FINGERPRINT_TAG, MODEL_CARD, find_bundle
from pipelines.runtime.stage import MANIFEST, Plans, StageDir, StageError
from pipelines.stages.register import plan as register
from pipelines.stages.register import run as register_run
from pipelines.tracking import PipelineRuns
from preprocessing.storage.redaction import SecretAddress
from tests.pipelines.stages.given import given
from tests.pipelines.tiny_bundle import write_tiny_bundle


@pytest.fixture(scope="module")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Plans:
    """The outputs of the stages before, in a folder."""
    folder = tmp_path_factory.mktemp("register")
    bundle = write_tiny_bundle(folder / "bundle")
    splits = {split: folder / split for split in ("train", "dev")}
    for split, directory in splits.items():
        counts = {"images": 6, "captions": 30}
        write_manifest(directory, {"counts": counts, "skipped": [], "fingerprint": f"features of {split}"})
    plans = given(
        folder,
        extract=splits,
        train={"best": bundle / "model"},
        evaluate={"gallery": bundle / "gallery"},
        index={"index": bundle / "index"},
    )
    training = {"history": [{"rsum": 300.0}, {"rsum": 321.5}], "seconds": 12.0}
    # Next to the split of the same name.
    plans["train"] = replace(plans["train"], directory=folder / "training")
    write_manifest(plans["train"].directory, training)
    write_manifest(plans["evaluate"].directory, {"metrics": {"rsum": 321.5, "i2t_r01": 40.0}})
    return plans


@pytest.fixture
def config(tmp_path: Path) -> PipelineConfig:
    return load_config(None, [f"work_dir={tmp_path / 'work'}", "name=tiny", "seed=3"])


def write_manifest(folder: Path, content: dict[str, Any]) -> None:
    folder.mkdir()
    (folder / MANIFEST).write_text(json.dumps(content))


def run(config: PipelineConfig, upstream: Plans) -> str:
    with PipelineRuns(config.experiment, "f" * 64).child("register") as tracker:
        return register_run.run(config, upstream, tracker).summary


def test_register_makes_one_version(config: PipelineConfig, upstream: Plans) -> None:
    before = register.plan(config, upstream)
    assert (before.status, before.complete) == ("to do", False)
    split = config.dataset.eval_split
    assert run(config, upstream) == f"tiny version 1, {split} RSUM 321.5"
    assert register.plan(config, upstream).complete

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
    assert version.description == (register.plan(config, upstream).directory / MODEL_CARD).read_text()
    assert "| RSUM | 321.5 |" in version.description
    assert MODEL_CARD in [file.path for file in client.list_artifacts(version.run_id)]
    assert (find_bundle("tiny", config.tracking_uri)[1] / MODEL_CARD).read_text() == version.description


def test_register_that_was_killed_before_its_manifest_makes_no_second_version(
    config: PipelineConfig, upstream: Plans
) -> None:
    run(config, upstream)
    (register.plan(config, upstream).directory / "manifest.json").unlink()
    assert not register.plan(config, upstream).complete
    assert run(config, upstream).startswith("tiny version 1,")
    assert len(MlflowClient(config.tracking_uri, config.tracking_uri).search_model_versions("name = 'tiny'")) == 1


def test_a_card_that_was_filled_in_changes_that_of_the_version(config: PipelineConfig, upstream: Plans) -> None:
    run(config, upstream)
    assert register.plan(config, upstream).complete
    registry = config.registry.model_copy(update={"card": CardConfig(data_licence="ours")})
    config = config.model_copy(update={"registry": registry})
    assert not register.plan(config, upstream).complete
    run(config, upstream)
    plan = register.plan(config, upstream)
    assert plan.complete
    assert "ours" in (plan.directory / MODEL_CARD).read_text()
    (version,) = MlflowClient(config.tracking_uri).search_model_versions("name='tiny'")
    assert "ours" in version.description


def test_another_password_of_the_database_is_no_other_registration(config: PipelineConfig, upstream: Plans) -> None:
    def fingerprint(address: str) -> str:
        tracking = config.tracking.model_copy(update={"uri": SecretAddress(address)})
        return register.stage_dir(config.model_copy(update={"tracking": tracking}), upstream).fingerprint

    first, rotated, other = (
        fingerprint(f"postgresql://mlflow:{password}@{host}/mlflow")
        for password, host in (("one-secret", "db"), ("another-secret", "db"), ("one-secret", "other"))
    )
    assert first == rotated != other


def test_a_database_that_is_gone_has_no_registered_model(config: PipelineConfig, upstream: Plans) -> None:
    plan = register.plan(config, upstream)
    StageDir(config.work_dir, register.NAME, plan.fingerprint).complete({"summary": "registered before"}, [])
    database = Path(config.tracking_uri.removeprefix("sqlite:///"))
    database.touch()
    assert register.plan(config, upstream).complete
    database.unlink()
    assert not register.plan(config, upstream).complete


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "No space left on device"), shutil.Error([("a", "b", "full")])]
)
def test_a_full_disk_is_one_message(
    config: PipelineConfig, upstream: Plans, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    monkeypatch.setattr(shutil, "copytree", Mock(side_effect=error))
    with pytest.raises(StageError, match=r"^register: cannot write to .*make room there"):
        run(config, upstream)


def test_a_bundle_that_a_killed_run_left_half_written_is_completed(config: PipelineConfig, upstream: Plans) -> None:
    directory = register.plan(config, upstream).directory
    (directory / "model").mkdir(parents=True)
    (directory / "model" / "model.json").write_text("{")
    assert run(config, upstream).startswith("tiny version 1,")
    shutil.copy(upstream["train"].output("best") / "model.json", directory / "expected.json")
    assert (directory / "model" / "model.json").read_bytes() == (directory / "expected.json").read_bytes()
