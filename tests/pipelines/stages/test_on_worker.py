"""Where work with a model is done."""

import os

import pytest
import ray

from pipelines.config import PipelineConfig, load_config
from pipelines.runtime import ray_internals
from pipelines.runtime.cluster import ClusterError
from pipelines.runtime.stage import StageError
from pipelines.stages.on_worker import on_worker


def on_cluster(address: str, cpus: float) -> PipelineConfig:
    return load_config(None, [f"ray.address={address}", f"training.cpus_per_worker={cpus}"])


def test_without_a_cluster_it_is_done_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or with one that Ray was started as on this machine, for a training."""
    assert on_worker(load_config(None, []), os.getpid) == os.getpid()
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:9")
    monkeypatch.setenv(ray_internals._GCS_PORT, "9")
    assert on_worker(load_config(None, []), os.getpid) == os.getpid()


@pytest.mark.integration
def test_on_a_cluster_it_is_done_with_what_a_worker_of_the_training_has(ray_cluster: str) -> None:
    given = on_worker(on_cluster(ray_cluster, 2), lambda: ray.get_runtime_context().get_assigned_resources())
    assert given["CPU"] == 2
    assert on_worker(on_cluster(ray_cluster, 1), os.getpid) != os.getpid()

    def fails(text: str) -> None:
        raise StageError(f"there is {text}")

    with pytest.raises(StageError) as found:
        on_worker(on_cluster(ray_cluster, 1), fails, "a reason")
    assert str(found.value) == "there is a reason"
    with pytest.raises(ClusterError, match="1 with 99 CPUs"):
        on_worker(on_cluster(ray_cluster, 99), os.getpid)
