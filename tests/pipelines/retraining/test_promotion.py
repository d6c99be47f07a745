"""Promotion: the first model becomes champion, then one significantly better and worse in no guarded metric."""

from __future__ import annotations

import errno
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from mlflow import MlflowClient

from pipelines.config import load_config
from pipelines.evaluation import Rsum
from pipelines.registry.models import CHALLENGER, CHAMPION, RegistryError, aliases_of
from pipelines.retraining import promotion
from pipelines.retraining.promotion import (
    BEFORE_TAG,
    DECISION_TAG,
    Decision,
    clear,
    guarded_falls,
    promote,
    rollback,
    unreadable,
)
from pipelines.retrieval import search_model
from pipelines.retrieval.search_model import SearchError
from pipelines.runtime.stage import StageError, StageReport
from preprocessing.reading import damage_as


@pytest.fixture
def uri(work_dir: Path) -> str:
    return load_config(None, [f"work_dir={work_dir}"]).tracking_uri


@pytest.fixture(autouse=True)
def unloadable(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The versions that cannot be loaded, with the reasons; nothing here reads their files."""
    reasons: dict[str, str] = {}
    monkeypatch.setattr(promotion, "unreadable", lambda reference, _: reasons.get(reference))
    return reasons


@pytest.fixture
def client(uri: str) -> MlflowClient:
    return MlflowClient(uri, uri)


def register(client: MlflowClient) -> int:
    """A version whose files nothing here reads."""
    if not client.search_registered_models("name = 'shop'"):
        client.create_registered_model("shop")
    version = int(client.create_model_version("shop", "/nowhere").version)
    client.set_registered_model_alias("shop", CHALLENGER, str(version))
    return version


@dataclass
class Contest:
    """A comparison whose result the test sets: difference, low, high; and the R@1 of both models."""

    folder: Path
    rsum: Sequence[float] = (5.0, 1.0, 9.0)
    r1: Sequence[float] = (30.0, 28.0)

    def __call__(self, first: str, second: str) -> StageReport:
        assert (first, second) == ("shop/2", "shop/1")
        metrics = [{"rsum": 0.0, "i2t_r01": r1, "t2i_r01": 20.0} for r1 in self.r1]
        recalls = {"rsum": [250.0, 245.0, *self.rsum, 0.01]}
        (self.folder / "manifest.json").write_text(json.dumps({"recalls": recalls, "metrics": metrics}))
        return StageReport("compare", self.folder, "")


RSUM = Rsum(240.0, 230.5, 250.0, chance=12.5)


def judged(uri: str, contest: Contest) -> Decision:
    return promote("shop", uri, {"i2t_r01": 1.0, "t2i_r01": 1.0}, contest, lambda _: RSUM)


def judged_twice(uri: str, client: MlflowClient, contest: Contest) -> Decision:
    """Judge the first version, which needs no contest, and a second one."""
    register(client)
    judged(uri, contest)
    register(client)
    return judged(uri, contest)


def champion(client: MlflowClient) -> int:
    return int(client.get_model_version_by_alias("shop", CHAMPION).version)


def test_the_first_model_needs_no_contest(uri: str, client: MlflowClient, tmp_path: Path) -> None:
    contest = Contest(tmp_path)
    register(client)
    decision = judged(uri, contest)
    assert (decision.promoted, decision.challenger, decision.champion) == (True, 1, None)
    assert champion(client) == 1
    assert client.get_model_version("shop", "1").tags[DECISION_TAG] == (
        "the first model: there was no champion; RSUM 240.0 (230.5 to 250.0), chance 12.5"
    )
    again = judged(uri, contest)
    assert (again.promoted, again.reason) == (False, "it is the champion already")
    with pytest.raises(StageError, match=r"shop/1 has replaced no champion"):
        rollback("shop", uri)


@pytest.mark.parametrize("low", [12.5, 3.0])
def test_a_first_model_that_is_no_better_than_chance_is_not_promoted(
    low: float, uri: str, client: MlflowClient
) -> None:
    register(client)
    asked: list[str] = []

    def measure(reference: str) -> Rsum:
        asked.append(reference)
        return Rsum(15.0, low, 20.0, chance=12.5)

    decision = promote("shop", uri, {}, lambda *_: pytest.fail("there is nothing to compare with"), measure)
    assert (decision.promoted, decision.champion, asked) == (False, None, ["shop/1"])
    expected = (
        f"the first model: there was no champion, but it is not better than chance: RSUM 15.0 ({low:.1f} to 20.0)"
    )
    assert decision.reason == f"{expected}, chance 12.5"
    assert aliases_of("shop", uri) == {CHALLENGER: 1}
    assert client.get_model_version("shop", "1").tags[DECISION_TAG] == decision.reason


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
    uri: str,
    client: MlflowClient,
    tmp_path: Path,
    rsum: list[float],
    r1: list[float],
    promoted: bool,
    reason: str,
) -> None:
    decision = judged_twice(uri, client, Contest(tmp_path, rsum, r1))
    assert (decision.promoted, decision.champion) == (promoted, 1)
    assert reason in decision.reason
    assert champion(client) == (2 if promoted else 1)
    assert client.get_model_version("shop", "2").tags[DECISION_TAG] == decision.reason


def test_rolling_back_to_a_champion_that_can_be_loaded(
    uri: str, client: MlflowClient, tmp_path: Path, unloadable: dict[str, str]
) -> None:
    assert judged_twice(uri, client, Contest(tmp_path)).promoted
    assert client.get_model_version("shop", "2").tags[BEFORE_TAG] == "1"
    unloadable["shop/1"] = "it has format 0"
    with pytest.raises(StageError, match="shop/1 cannot be champion, as it cannot be loaded: it has format 0"):
        rollback("shop", uri)
    assert champion(client) == 2
    unloadable.clear()
    assert rollback("shop", uri) == (2, 1)
    assert champion(client) == 1
    assert client.get_model_version("shop", "2").tags[DECISION_TAG] == "rolled back to version 1"


def test_a_challenger_that_cannot_be_loaded_is_refused(
    uri: str, client: MlflowClient, tmp_path: Path, unloadable: dict[str, str]
) -> None:
    register(client)
    unloadable["shop/1"] = "it has format 0"
    with pytest.raises(StageError, match="shop/1 cannot be champion, as it cannot be loaded: it has format 0"):
        judged(uri, Contest(tmp_path))


def test_a_champion_that_cannot_be_loaded_counts_as_none(
    uri: str,
    client: MlflowClient,
    tmp_path: Path,
    unloadable: dict[str, str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    contest = Contest(tmp_path, rsum=[-40.0, -50.0, -30.0])
    assert not judged_twice(uri, client, contest).promoted
    unloadable["shop/1"] = "it has format 0"
    decision = judged(uri, contest)
    assert (decision.promoted, decision.champion, champion(client)) == (True, None, 2)
    reason = "the champion, version 1, cannot be loaded and counts as none: it has format 0"
    assert decision.reason == f"{reason}; {RSUM}"
    assert reason in capsys.readouterr().err
    assert BEFORE_TAG not in client.get_model_version("shop", "2").tags


def test_a_rollback_during_a_contest_is_not_lost(uri: str, client: MlflowClient) -> None:
    """The challenger is compared with the version that is champion then."""
    for version in (1, 2, 3):
        register(client)
        if version < 3:
            client.set_registered_model_alias("shop", CHAMPION, str(version))
    client.set_model_version_tag("shop", "2", BEFORE_TAG, "1")
    compared: list[tuple[str, str]] = []

    def compare(first: str, second: str) -> StageReport:
        compared.append((first, second))
        if len(compared) == 1:
            rollback("shop", uri)
        return StageReport("compare", Path(), "")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(
            promotion, "_contest", lambda _report, _guards, *versions: Decision(versions[1] == 2, *versions, "judged")
        )
        decision = promote("shop", uri, {}, compare, lambda _: RSUM)
    assert compared == [("shop/3", "shop/2"), ("shop/3", "shop/1")]
    assert (decision.promoted, champion(client)) == (False, 1)


def test_a_champion_that_memory_did_not_reach_for_is_a_champion_still(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(reference: str, uri: str) -> None:
        with damage_as(SearchError, "its index is damaged", "register it again"):
            raise failure

    monkeypatch.setattr(search_model, "load_search_model", load)
    for failure in (MemoryError(), OSError(errno.EIO, "Input/output error"), ValueError("not an index")):
        if isinstance(failure, ValueError):
            assert "not an index" in (unreadable("shop/1", "uri") or "")
        else:
            with pytest.raises(SearchError):
                unreadable("shop/1", "uri")


def test_clearing_the_champion(uri: str, client: MlflowClient, tmp_path: Path) -> None:
    register(client)
    judged(uri, Contest(tmp_path))
    assert clear("shop", uri) == 1
    assert aliases_of("shop", uri) == {CHALLENGER: 1}
    assert client.get_model_version("shop", "1").tags[DECISION_TAG] == "is no longer the champion: cleared"
    with pytest.raises(StageError, match="'shop' has no champion to clear"):
        clear("shop", uri)


def test_what_is_not_there_is_said(uri: str, client: MlflowClient, tmp_path: Path) -> None:
    contest = Contest(tmp_path)
    with pytest.raises(RegistryError, match="'shop' is not a registered model"):
        judged(uri, contest)
    with pytest.raises(StageError, match="'shop' has no champion"):
        rollback("shop", uri)
    register(client)
    client.create_registered_model("store")
    client.create_model_version("store", "/nowhere")
    with pytest.raises(StageError, match=r"store/1 is not a version of shop, .* --set registry\.name=store"):
        promote("shop", uri, {}, contest, lambda _: RSUM, "store/1")
    with pytest.raises(RegistryError, match=r"the MLflow database .* does not exist"):
        judged(f"sqlite:///{tmp_path}/empty/mlflow.db", Contest(tmp_path))


def test_guards_name_metrics_that_there_are() -> None:
    metrics = {"rsum": 200.0, "attack/total": 100.0}
    assert guarded_falls({"attack/total": 5.0}, {**metrics, "attack/total": 95.0}, metrics) == []
    assert guarded_falls({"attack/total": 5.0}, {**metrics, "attack/total": 94.0}, metrics) == [
        "attack/total falls by 6.0, more than 5"
    ]
    with pytest.raises(StageError, match=r"no metric 'r_1'; it has attack/total, rsum"):
        guarded_falls({"r_1": 1.0}, metrics, metrics)
