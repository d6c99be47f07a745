"""Resources that training requests, and requests refused because the cluster can never meet them."""

from __future__ import annotations

from typing import Any

import pytest

from pipelines.config import PipelineConfig, load_config
from pipelines.runtime import ray_internals
from pipelines.runtime.cluster import ClusterError
from pipelines.training.capacity import require_room, require_room_for_actor


def config(*overrides: str) -> PipelineConfig:
    return load_config(None, [f"training.{override}" for override in overrides])


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """A cluster of a head without room, two machines with 8 CPUs and 4 GPUs, and one that has gone."""
    import ray

    gpus = {"CPU": 8.0, "GPU": 4.0}
    machines = [
        {"Alive": True, "NodeManagerAddress": "10.0.0.1", "Resources": {}},
        {"Alive": True, "NodeManagerAddress": "10.0.0.2", "Resources": gpus},
        {"Alive": True, "NodeManagerAddress": "10.0.0.3", "Resources": gpus},
        {"Alive": False, "NodeManagerAddress": "10.0.0.4", "Resources": gpus},
    ]
    monkeypatch.setattr(ray, "nodes", lambda: machines)
    monkeypatch.setattr(ray_internals, "is_autoscaled", lambda: False)
    return machines


@pytest.mark.parametrize(
    "settings",
    [
        ["workers=16"],
        ["workers=[16, 99]"],
        ["workers=8", "gpus_per_worker=1"],
        ["workers=2", "cpus_per_worker=8"],
        ["workers=20", "gpus_per_worker=0.1", "cpus_per_worker=0.1"],
    ],
)
def test_what_fits_passes(nodes: list[dict[str, Any]], settings: list[str]) -> None:
    require_room(config(*settings).training)


@pytest.mark.parametrize(
    ("settings", "total"),
    [
        (["workers=17"], 16),
        (["workers=[17, 99]"], 16),
        (["workers=9", "gpus_per_worker=1"], 8),
        (["workers=3", "cpus_per_worker=5"], 2),
    ],
)
def test_what_never_fits_is_refused(nodes: list[dict[str, Any]], settings: list[str], total: int) -> None:
    with pytest.raises(ClusterError, match=rf"than the {total} that .* 10.0.0.2 has 8 CPUs, 4 GPUs.*: lower workers"):
        require_room(config(*settings).training)


def test_an_actor_that_fits_on_no_machine_is_refused(nodes: list[dict[str, Any]]) -> None:
    require_room_for_actor("features", 8, 4)
    with pytest.raises(ClusterError, match=r"parsing: an actor with 64 CPUs and 0 GPUs fits on no machine .* 8 CPUs"):
        require_room_for_actor("parsing", 64)


def test_a_cluster_that_grows_is_not_judged(nodes: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_internals, "is_autoscaled", lambda: True)
    require_room(config("workers=1000").training)
    require_room_for_actor("parsing", 64)
