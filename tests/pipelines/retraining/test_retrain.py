"""When there is something to retrain, what a second start does, and how schedulers learn of it; nothing is trained."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pipelines.config import PipelineConfig, load_config
from pipelines.retention.choice import Rules
from pipelines.retention.work_folder import WorkFolder
from pipelines.retraining import retrain
from pipelines.retraining.journal import LOG, STATUS
from pipelines.retraining.promotion import Decision
from pipelines.runtime.lock import exclusive
from pipelines.runtime.stage import StageError
from pipelines.stages.extract import plan as extract
from preprocessing.storage.base import BusyError

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def data_as_it_is_now() -> None:
    extract._summary.cache_clear()


def loaded(work_dir: Path, *overrides: str, images: int = 20) -> PipelineConfig:
    settings = [f"work_dir={work_dir}", f"dataset.images={{train: {images}, dev: 4}}", "training.batch_size=4"]
    return load_config(None, [*settings, "name=shop", *overrides])


def read(config: PipelineConfig, name: str) -> str:
    return (config.work_dir / "retrain" / "shop" / name).read_text(encoding="utf-8")


def outcomes(config: PipelineConfig) -> list[str]:
    return [line.split("  ")[1].strip() for line in read(config, LOG).splitlines()]


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The retrainings that have begun, by their identity; each ends as refused."""
    identities: list[str] = []

    def train(config: PipelineConfig, journal: Any, identity: str, last: Any) -> dict[str, Any]:
        identities.append(identity)
        return {
            "identity": identity,
            "outcome": "refused",
            "ended": "today",
            "seconds": 1.0,
            "start": {"version": None},
            "changes": "train as before",
            "decision": {"challenger": 2, "reason": "not better by more than chance"},
            "run": "http://mlflow/run",
        }

    monkeypatch.setattr(retrain, "_train_and_judge", train)
    return identities


def test_what_has_been_retrained_on_is_not_new(tmp_path: Path, trained: list[str]) -> None:
    config = loaded(tmp_path)
    text = "version 2 from scratch: not better by more than chance [train as before; 1 s] http://mlflow/run"
    assert retrain.retrain(config) == f"refused: {text}"
    assert retrain.retrain(config) == "nothing new: data and settings are those of today (refused)"
    assert len(trained) == 1
    assert outcomes(config) == ["refused", "nothing new"]
    assert json.loads(read(config, STATUS))["outcome"] == "nothing new"


def test_a_preview_does_nothing(tmp_path: Path, trained: list[str]) -> None:
    config = loaded(tmp_path)
    assert retrain.preview(config) == "would retrain: train +20 images, +100 captions; dev +4 images, +20 captions"
    assert not (tmp_path / "retrain").exists()
    retrain.retrain(config)
    assert retrain.preview(config) == "nothing new: data and settings are those of today (refused)"
    assert len(trained) == 1


def table_of_scenes(folder: Path) -> Path:
    table = folder / "table.csv"
    for name in ("a", "b"):
        (folder / f"{name}.jpg").write_bytes(b"a photograph")
    rows = ["a.jpg,a dog,dev,2020", "b.jpg,a cat,train,2021"]
    table.write_text("\n".join(["image,caption,split,year", *rows]))
    return table


@pytest.mark.parametrize(
    ("changed", "is_new"), [("", False), ("2020", True), ("a dog", True)], ids=["nothing", "a year", "a caption"]
)
def test_a_table_that_was_written_again(tmp_path: Path, trained: list[str], changed: str, is_new: bool) -> None:
    table = table_of_scenes(tmp_path)
    columns = f"tables: {{train: {table}, dev: {table}}}, split_column: split"
    config = loaded(tmp_path / "work", f"dataset={{format: table, {columns}}}")
    retrain.retrain(config)
    extract._summary.cache_clear()
    content = table.read_text()
    os.utime(table, ns=(0, 17))
    table.write_text(content.replace(changed, "other") if changed else content)
    assert retrain.retrain(config).startswith("refused" if is_new else "nothing new")
    assert len(trained) == 1 + is_new


def test_a_kind_of_model_that_is_not_registered_is_refused_before_any_work(tmp_path: Path, trained: list[str]) -> None:
    config = loaded(tmp_path, "preset=hgr_infty", f"model.text.graphs={tmp_path}/graphs.json")
    for refused in (retrain.retrain, retrain.preview):
        with pytest.raises(StageError, match="HGR's model has no embeddings and is not registered"):
            refused(config)
    assert not trained
    assert not (tmp_path / "retrain").exists()


def test_a_start_from_a_version_that_was_pruned_is_chosen_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the data is again what it was long ago."""
    monkeypatch.setattr(retrain, "versions_of", lambda *_: {1, 3})
    config = loaded(tmp_path)
    assert retrain._is_there(config, {"champion": 3, "version": None})
    assert retrain._is_there(config, {"champion": None, "version": None})
    assert not retrain._is_there(config, {"champion": 2, "version": 2})


@pytest.mark.parametrize(
    ("change", "is_new"),
    [
        ({"images": 21}, True),
        ({"overrides": ["training.epochs=9"]}, True),
        ({"overrides": ["retrain.start=scratch"]}, True),
        ({"overrides": ["evaluation.folds=2"]}, True),
        ({"overrides": ["features.actors=2"]}, False),
        ({"overrides": ["training.cpus_per_worker=0.5"]}, False),
    ],
)
def test_what_is_new(tmp_path: Path, trained: list[str], change: dict[str, Any], is_new: bool) -> None:
    retrain.retrain(loaded(tmp_path))
    retrain.retrain(loaded(tmp_path, *change.get("overrides", []), images=change.get("images", 20)))
    assert len(set(trained)) == len(trained) == 1 + is_new


@pytest.mark.parametrize(
    ("failure", "outcome"),
    [
        (StageError("train: collapsed"), "failed"),
        (KeyboardInterrupt(), "interrupted"),
        (RuntimeError("no answer from http://user:planted@host"), "failed"),
    ],
)
def test_what_has_not_gone_through_is_tried_again(
    tmp_path: Path, trained: list[str], monkeypatch: pytest.MonkeyPatch, failure: BaseException, outcome: str
) -> None:
    config = loaded(tmp_path)

    def fail(*_: Any) -> dict[str, Any]:
        assert json.loads(read(config, STATUS))["outcome"] == "running"
        raise failure

    with monkeypatch.context() as patched:
        patched.setattr(retrain, "_train_and_judge", fail)
        with pytest.raises(type(failure)):
            retrain.retrain(config)
    status = json.loads(read(config, STATUS))
    assert status["outcome"] == outcome
    assert type(failure).__name__ in status["reason"]
    assert "planted" not in read(config, STATUS) + read(config, LOG)
    assert retrain.retrain(config).startswith("refused")
    assert outcomes(config) == [outcome, "refused"]


def test_a_start_that_fails_before_it_trains_is_on_record(
    tmp_path: Path, trained: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that pruning removes its run in MLflow."""
    config = loaded(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(retrain, "identity_of", lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            retrain.retrain(config)
    (run,) = WorkFolder(config).runs
    assert (run.model, run.version, run.is_repeated, run.needed) == ("shop", None, True, "")
    assert any(folder.startswith("mlflow:") for folder in run.folders)


def test_another_command_at_one_of_its_stages_is_no_failure(
    tmp_path: Path, trained: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With --wait it is tried again every few seconds."""
    config = loaded(tmp_path, "retrain.keep=2")

    def be_busy(*_: Any) -> None:
        raise BusyError("extract is being worked on")

    with monkeypatch.context() as patched:
        patched.setattr(retrain, "_train_and_judge", be_busy)
        patched.setattr(retrain, "prune", None)
        for _ in range(2):
            with pytest.raises(BusyError):
                retrain.retrain(config)
    assert json.loads(read(config, STATUS))["outcome"] == "interrupted"
    assert not (config.work_dir / "retrain" / "shop" / LOG).exists()


def test_two_at_once(tmp_path: Path, trained: list[str]) -> None:
    """The second leaves the status to the first."""
    config = loaded(tmp_path)
    folder = config.work_dir / "retrain" / "shop"
    with exclusive(config.mirror, folder), pytest.raises(BusyError):
        retrain.retrain(config)
    other = loaded(tmp_path, "registry.name=another")
    with exclusive(config.mirror, folder):
        assert retrain.retrain(other).startswith("refused")


def test_nothing_new_imports_nothing_heavy(tmp_path: Path, trained: list[str]) -> None:
    """In a process of its own, since this one has imported everything already."""
    config = loaded(tmp_path)
    retrain.retrain(config)
    code = (
        "import sys; from pipelines.retraining import retrain; from pipelines.config import PipelineConfig\n"
        f"print(retrain.retrain(PipelineConfig.model_validate_json({config.model_dump_json()!r})))\n"
        "print([name for name in ('torch', 'ray', 'mlflow', 'transformers') if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, cwd=ROOT)
    assert result.stdout == "nothing new: data and settings are those of today (refused)\n[]\n", result.stderr


def test_a_challenger_that_had_won_before_a_kill_has_won() -> None:
    assert retrain._is_champion(Decision(True, 2, 1, "better"))
    assert retrain._is_champion(Decision(False, 2, 2, "it is the champion already"))
    assert not retrain._is_champion(Decision(False, 2, 1, "not better"))


def test_old_versions_are_pruned_after_every_start_whatever_comes_of_it(
    work_dir: Path, trained: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = loaded(work_dir, "retrain.keep=2")
    limits: list[Rules] = []

    def prune(_config: PipelineConfig, rules: Rules, *, is_real: bool) -> str:
        limits.append(rules)
        assert is_real
        if len(limits) > 1:
            raise StageError("no room")
        return "removed 1 runs"

    monkeypatch.setattr(retrain, "prune", prune)
    assert retrain.retrain(config).startswith("refused")
    assert "removed 1 runs" in capsys.readouterr().out
    assert retrain.retrain(config).startswith("nothing new")
    assert "shop: nothing more is pruned: no room" in capsys.readouterr().err
    monkeypatch.setattr(retrain, "_retrain", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        retrain.retrain(config)
    assert limits == 3 * [Rules(keep=2)]
