"""Promotion: the first model becomes champion, then one significantly better and worse in no guarded metric."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from mlflow import MlflowClient

from pipelines.config import PipelineConfig, load_config
from pipelines.registry.models import CHALLENGER, RegistryError
from pipelines.retraining import promotion
from pipelines.retraining.promotion import BEFORE_TAG, CHAMPION, DECISION_TAG, guarded_falls, promote, rollback
from pipelines.runtime.stage import StageError, StageReport


@pytest.fixture
def config(work_dir: Path) -> PipelineConfig:
    return load_config(None, [f"work_dir={work_dir}", "name=shop"])


@pytest.fixture
def client(config: PipelineConfig) -> MlflowClient:
    return MlflowClient(config.tracking_uri, config.tracking_uri)


def register(client: MlflowClient) -> int:
    """A version whose files nothing here reads."""
    if not client.search_registered_models("name = 'shop'"):
        client.create_registered_model("shop")
    version = int(client.create_model_version("shop", "/nowhere").version)
    client.set_registered_model_alias("shop", CHALLENGER, str(version))
    return version


@pytest.fixture
def contest(config: PipelineConfig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, list[float]]:
    """The comparison's result, set by the test: difference, low, high; and the R@1 of both models."""
    found = {"rsum": [5.0, 1.0, 9.0], "r1": [30.0, 28.0]}

    def compared(first: object, second: object) -> StageReport:
        metrics = [{"rsum": 0.0, "i2t_r01": r1, "t2i_r01": 20.0} for r1 in found["r1"]]
        recalls = {"rsum": [250.0, 245.0, *found["rsum"], 0.01]}
        (tmp_path / "manifest.json").write_text(json.dumps({"recalls": recalls, "metrics": metrics}))
        return StageReport("compare", tmp_path, "")

    monkeypatch.setattr(promotion, "compare_models", compared)
    monkeypatch.setattr(promotion.NamedModel, "find", lambda reference, _: reference)
    return found


def champion(client: MlflowClient) -> int:
    return int(client.get_model_version_by_alias("shop", CHAMPION).version)


def test_the_first_model_needs_no_contest(config: PipelineConfig, client: MlflowClient) -> None:
    register(client)
    decision = promote(config)
    assert (decision.promoted, decision.challenger, decision.champion) == (True, 1, None)
    assert champion(client) == 1
    assert client.get_model_version("shop", "1").tags[DECISION_TAG] == "the first model: there was no champion"
    again = promote(config)
    assert (again.promoted, again.reason) == (False, "it is the champion already")
    with pytest.raises(StageError, match=r"shop/1 took nobody's place"):
        rollback(config)


@pytest.mark.parametrize(
    ("rsum", "r1", "promoted", "reason"),
    [
        ([5.0, 1.0, 9.0], [30.0, 28.0], True, "RSUM +5.0 (+1.0 to +9.0) against version 1: better"),
        ([5.0, -0.5, 9.0], [30.0, 28.0], False, "not better by more than chance"),
        ([-40.0, -50.0, -30.0], [5.0, 28.0], False, "not better by more than chance"),
        ([5.0, 1.0, 9.0], [27.5, 28.0], True, "better"),
        ([5.0, 1.0, 9.0], [26.0, 28.0], False, "but i2t_r01 falls by 2.0, more than 1"),
    ],
)
def test_a_contest(
    config: PipelineConfig,
    client: MlflowClient,
    contest: dict[str, list[float]],
    rsum: list[float],
    r1: list[float],
    promoted: bool,
    reason: str,
) -> None:
    contest |= {"rsum": rsum, "r1": r1}
    register(client)
    promote(config)
    register(client)
    decision = promote(config)
    assert (decision.promoted, decision.champion) == (promoted, 1)
    assert reason in decision.reason
    assert champion(client) == (2 if promoted else 1)
    assert client.get_model_version("shop", "2").tags[DECISION_TAG] == decision.reason


def test_rolling_back(config: PipelineConfig, client: MlflowClient, contest: dict[str, list[float]]) -> None:
    register(client)
    promote(config)
    register(client)
    promote(config)
    assert client.get_model_version("shop", "2").tags[BEFORE_TAG] == "1"
    assert rollback(config) == (2, 1)
    assert champion(client) == 1
    assert client.get_model_version("shop", "2").tags[DECISION_TAG] == "rolled back to version 1"


def test_what_is_not_there_is_said(config: PipelineConfig, client: MlflowClient, tmp_path: Path) -> None:
    with pytest.raises(RegistryError, match="there is no registered model 'shop'"):
        promote(config)
    with pytest.raises(StageError, match="'shop' has no champion"):
        rollback(config)
    with pytest.raises(RegistryError, match="there is no MLflow database"):
        promote(load_config(None, [f"work_dir={tmp_path / 'empty'}"]))


def test_guards_name_metrics_that_there_are() -> None:
    metrics = {"rsum": 200.0, "attack/total": 100.0}
    assert guarded_falls({"attack/total": 5.0}, {**metrics, "attack/total": 95.0}, metrics) == []
    assert guarded_falls({"attack/total": 5.0}, {**metrics, "attack/total": 94.0}, metrics) == [
        "attack/total falls by 6.0, more than 5"
    ]
    with pytest.raises(StageError, match=r"no metric 'r_1'; it has attack/total, rsum"):
        guarded_falls({"r_1": 1.0}, metrics, metrics)
