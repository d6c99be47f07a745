"""Work with a trained model, where a worker of the training would run: the head of a cluster has no GPU, and waits."""

from collections.abc import Callable
from typing import Any, TypeVar

from pipelines.config import PipelineConfig
from pipelines.runtime import cluster, ray_internals
from pipelines.runtime.errors import in_one_line
from pipelines.runtime.logs import configure_worker
from pipelines.runtime.stage import StageError
from pipelines.tracking import RunHandle, Tracker

T = TypeVar("T")


def on_worker(config: PipelineConfig, work: Callable[..., T], *arguments: Any, tracker: Tracker | None = None) -> T:
    """Call a function with the arguments, and with a tracker if there is one: on the cluster, or else in this process.

    On a cluster, not one that was started here for the training, it is a task of Ray with the CPU cores and GPUs of a
    training's worker. It finds on its machine what is on the storage or on a disk that all machines share, and pulls it
    itself. If the process dies, Ray starts it again, three times at most. Raises what the function raises, StageError
    if its process dies again and again, and ClusterError if no machine has those cores and GPUs.
    """
    if cluster.cluster_address(config.ray.address) is None or ray_internals.is_local():
        return work(*arguments, *([] if tracker is None else [tracker]))
    was_connected = cluster.is_connected()
    cluster.connect(config.ray.address)
    import ray
    from ray.exceptions import RayError, RayTaskError

    from pipelines.training.capacity import require_room

    require_room(config.training.model_copy(update={"workers": 1}))
    resources = {"num_cpus": config.training.cpus_per_worker, "num_gpus": config.training.gpus_per_worker}
    name = work.__module__.removesuffix(".run").rpartition(".")[2]
    task = ray.remote(max_retries=3, **resources)(_called).options(name=name)
    try:
        result: T = ray.get(task.remote(name, work, arguments, None if tracker is None else tracker.handle))
    except RayTaskError as error:
        raise error.cause from error
    except RayError as error:
        raise StageError(f"{name}: its process on the cluster has died: {in_one_line(error)}") from error
    finally:
        if not was_connected:
            cluster.disconnect()
    return result


def _called(stage: str, work: Callable[..., T], arguments: tuple[Any, ...], run: RunHandle | None) -> T:
    configure_worker(stage, run.run_id if run else "")
    if run is None:
        return work(*arguments)
    tracker = Tracker(run)
    try:
        return work(*arguments, tracker)
    finally:
        tracker.detach()
