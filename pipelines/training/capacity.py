"""The room that a cluster has for the workers of a training."""

from collections.abc import Mapping, Sequence
from typing import Any

import ray

from pipelines.config.training import TrainingConfig
from pipelines.runtime import ray_internals
from pipelines.runtime.cluster import ClusterError


def require_room(training: TrainingConfig) -> None:
    """Raise ClusterError for workers that the cluster has no room for, were it empty; not if it scales itself."""
    if ray_internals.is_autoscaled():
        return
    nodes = [node for node in ray.nodes() if node["Alive"]]
    total = _room(training, nodes)
    if total >= training.fewest_workers:
        return
    resources = [(node["NodeManagerAddress"], node["Resources"]) for node in nodes]
    there = "; ".join(f"{name} has {of.get('CPU', 0):g} CPUs, {of.get('GPU', 0):g} GPUs" for name, of in resources)
    raise ClusterError(
        f"training.workers {training.fewest_workers} with {training.cpus_per_worker:g} CPUs and "
        f"{training.gpus_per_worker:g} GPUs each are more than the {total} that the cluster has room for ({there}): "
        "lower workers, cpus_per_worker or gpus_per_worker, or add machines"
    )


def room_for(training: TrainingConfig) -> int:
    """Return the number of such trainings that the cluster, were it empty, has room for at a time; at least one."""
    workers = _room(training, [node for node in ray.nodes() if node["Alive"]])
    return max(1, workers // training.most_workers)


def _room(training: TrainingConfig, nodes: Sequence[Mapping[str, Any]]) -> int:
    wanted = {"CPU": training.cpus_per_worker, "GPU": training.gpus_per_worker}
    # A ten-thousandth is the precision of Ray's own arithmetic.
    return sum(
        min(int((node["Resources"].get(kind, 0) + 1e-4) // each) for kind, each in wanted.items() if each)
        for node in nodes
    )
