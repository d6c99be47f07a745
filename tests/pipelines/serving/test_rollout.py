"""A change of version while a service runs: done, refused, or followed by the end of the service."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import AsyncMock

import pytest

from pipelines.registry.models import RegistryError
from pipelines.retrieval.gallery_storage import write_state
from pipelines.runtime.stage import StageError
from pipelines.serving import rollout
from pipelines.serving.rollout import Replicas, Rollout, Served, State, find_served

OLD, NEW = Served("shop/1", "shop/1"), Served("shop/2", "shop/2")
LOADING, DONE, FAILED = State(1, False, ""), State(1, True, ""), State(1, False, "it is damaged")


class Cluster:
    """What is deployed, one after another, and the state that the replicas are in."""

    def __init__(self) -> None:
        self.deployed: list[str] = []
        self.went_back: list[str] = []
        self.state = DONE
        self.replicas = Replicas(AsyncMock(), self.deployed.append, lambda: self.state, self.went_back.append)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.setattr(
        rollout, "newer_version", lambda pinned, _: "there is a newer one" if pinned == "shop/1" else ""
    )
    return Cluster()


@pytest.fixture
def following(cluster: Cluster) -> Rollout:
    return Rollout(OLD, cluster.replicas, "unused", "shop")


def means(monkeypatch: pytest.MonkeyPatch, found: Served | Exception) -> None:
    def find(*_: str) -> Served:
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(rollout, "find_served", find)


def test_a_new_version_is_taken_up_once(
    cluster: Cluster, following: Rollout, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    means(monkeypatch, NEW)
    cluster.state = LOADING
    for _ in range(3):
        following.look()
        following.settle()
    assert capsys.readouterr().out == ""
    cluster.state = DONE
    following.settle()
    following.look()
    assert cluster.deployed == ["shop/2"]
    assert capsys.readouterr().out == "shop/2 is served now, in place of shop/1\n"


def test_the_old_version_stays_if_the_new_one_cannot_be_loaded(
    cluster: Cluster, following: Rollout, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    means(monkeypatch, NEW)
    following.look()
    following.settle()
    cluster.state = FAILED
    following.settle()
    cluster.state = DONE
    for _ in range(3):
        following.settle()
        following.look()
    assert (cluster.deployed, cluster.went_back) == (["shop/2"], ["shop/1"])
    out = capsys.readouterr().out
    assert out == "shop/2 cannot be loaded, shop/1 stays: it is damaged\n"


def test_a_service_that_does_not_follow_tells_what_is_newer_once(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    pinned = Rollout(OLD, cluster.replicas, "unused", None)
    for _ in range(2):
        pinned.look()
        pinned.settle()
    assert capsys.readouterr().out == "there is a newer one\n"
    assert not cluster.deployed


def test_an_mlflow_that_is_away_ends_nothing(
    following: Rollout, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    means(monkeypatch, RegistryError("it does not answer"))
    for _ in range(2):
        following.look()
        following.settle()
    assert capsys.readouterr().out == "cannot see whether there is a newer version: it does not answer\n"


@pytest.mark.parametrize("state", [State(0, False, "out of memory"), FAILED])
def test_a_service_ends_if_no_replica_answers_and_none_starts(
    cluster: Cluster, following: Rollout, state: State
) -> None:
    cluster.state = state
    if state.answering:
        following.settle()  # another one still answers
        return
    with pytest.raises(StageError, match="the replicas of shop/1 do not start any more: out of memory"):
        following.settle()


def test_a_gallery_is_another_one_after_each_update(tmp_path: Path) -> None:
    folder = tmp_path / "holiday"
    folder.mkdir()
    state = {"model": "shop/1", "images": "photos", "origin": {}, "current": "000001"}
    write_state(folder, state)
    first = find_served(str(folder), "unused")
    assert find_served(str(folder), "unused") == first
    assert (first.version, first.title) == ("shop/1", "holiday, indexed with shop/1,")
    write_state(folder, state)
    assert find_served(str(folder), "unused") != first
    assert find_served(str(tmp_path), "unused") == Served(str(tmp_path), str(tmp_path))
