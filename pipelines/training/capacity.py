"""The room that a cluster has for the workers of a training, and for the actors of other stages."""

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
    raise ClusterError(
        f"training.workers {training.fewest_workers} with {training.cpus_per_worker:g} CPUs and "
        f"{training.gpus_per_worker:g} GPUs each are more than the {total} that the cluster has room for "
        f"({_described(nodes)}): lower workers, cpus_per_worker or gpus_per_worker, or add machines"
    )


def require_room_for_actor(section: str, cpus: float, gpus: float = 0) -> None:
    """Raise ClusterError if no machine has the cores and GPUs of one actor, which would be waited for without end.

    Further ones join when there is room. A cluster that scales itself is not asked.
    """
    nodes = [node for node in ray.nodes() if node["Alive"]]
    if ray_internals.is_autoscaled() or _fitting({"CPU": cpus, "GPU": gpus}, nodes):
        return
    raise ClusterError(
        f"{section}: an actor with {cpus:g} CPUs and {gpus:g} GPUs fits on no machine of the cluster "
        f"({_described(nodes)}): lower cpus_per_actor or gpus_per_actor, or add a machine"
    )


def room_for(training: TrainingConfig) -> int:
    """Return the number of such trainings that the cluster, were it empty, has room for at a time; at least one."""
    workers = _room(training, [node for node in ray.nodes() if node["Alive"]])
    return max(1, workers // training.most_workers)


def _room(training: TrainingConfig, nodes: Sequence[Mapping[str, Any]]) -> int:
    return _fitting({"CPU": training.cpus_per_worker, "GPU": training.gpus_per_worker}, nodes)


def _fitting(wanted: Mapping[str, float], nodes: Sequence[Mapping[str, Any]]) -> int:
    """Return how many processes that want so much of each resource fit on nodes."""
    # A ten-thousandth is the precision of Ray's own arithmetic.
    return sum(
        min(int((node["Resources"].get(kind, 0) + 1e-4) // each) for kind, each in wanted.items() if each)
        for node in nodes
    )


def _described(nodes: Sequence[Mapping[str, Any]]) -> str:
    resources = [(node["NodeManagerAddress"], node["Resources"]) for node in nodes]
    return "; ".join(f"{name} has {of.get('CPU', 0):g} CPUs, {of.get('GPU', 0):g} GPUs" for name, of in resources)
