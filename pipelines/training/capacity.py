"""The room that a cluster has for the workers of a training."""

from collections.abc import Mapping, Sequence
from typing import Any

import ray

from pipelines.config.training import TrainingConfig
from pipelines.runtime import ray_internals
from pipelines.runtime.cluster import ClusterError


def require_room(training: TrainingConfig) -> None:
    """Refuse training workers that do not fit into the cluster, were it empty.

    Autoscaling clusters are not checked.

    Raises ClusterError if the workers would wait for ever.
    """
    if ray_internals.is_autoscaled():
        return
    nodes = [node for node in ray.nodes() if node["Alive"]]
    total = _room(training, nodes)
    if total >= training.fewest_workers:
        return
    wanted = f"{training.cpus_per_worker:g} CPUs and {training.gpus_per_worker:g} GPUs"
    wanted += f" of type {training.gpu_type}" if training.gpu_type else ""
    there = "; ".join(f"{node['NodeManagerAddress']} has {_described(node['Resources'])}" for node in nodes)
    raise ClusterError(
        f"training.workers {training.fewest_workers} with {wanted} each, placed {training.placement}, are more "
        f"than the {total} that the cluster has room for ({there}): lower workers, cpus_per_worker or gpus_per_worker, "
        "change placement, or add machines"
    )


def room_for(training: TrainingConfig) -> int:
    """Return the number of such trainings that the cluster, were it empty, has room for at a time; at least one."""
    workers = _room(training, [node for node in ray.nodes() if node["Alive"]])
    return max(1, workers // training.most_workers)


def _room(training: TrainingConfig, nodes: Sequence[Mapping[str, Any]]) -> int:
    room = [_fitting(training, node["Resources"]) for node in nodes]
    if training.placement == "STRICT_PACK":
        return max(room, default=0)
    return sum(min(count, 1) for count in room) if training.placement == "STRICT_SPREAD" else sum(room)


def _fitting(training: TrainingConfig, resources: dict[str, float]) -> int:
    if training.gpu_type and f"accelerator_type:{training.gpu_type}" not in resources:
        return 0
    wanted = {"CPU": training.cpus_per_worker, "GPU": training.gpus_per_worker}
    # A ten-thousandth is the precision of Ray's own arithmetic.
    return min(int((resources.get(kind, 0) + 1e-4) // each) for kind, each in wanted.items() if each)


def _described(resources: dict[str, float]) -> str:
    types = [name.partition(":")[2] for name in resources if name.startswith("accelerator_type:")]
    gpus = f"{resources.get('GPU', 0):g} GPUs" + (f" ({', '.join(types)})" if types else "")
    return f"{resources.get('CPU', 0):g} CPUs, {gpus}"
