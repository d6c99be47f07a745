"""The connection to Ray: the cluster of the job we run in, one that the configuration names, or one on this machine."""

import contextlib
import ctypes
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from pipelines.plugins import worker_environment
from pipelines.runtime import ray_internals
from pipelines.runtime.errors import full_folders
from pipelines.runtime.logs import log_choices
from preprocessing.storage.redaction import RedactedError, give_to_children

# Nothing large travels through the object store: features go to shards, checkpoints to files. Ray's own default would
# take 30 % of the memory.
_OBJECT_STORE_BYTES = 300_000_000

# For processes that run networks on the CPU: keep freed memory. glibc gives large blocks back to the kernel at once and
# asks for them again, zeroed page by page, for every layer of every batch; that took more time than the arithmetic. One
# arena, since the threads that decode a shard end with it, and those of the next would fill another arena.
KEEP_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "17179869184", "MALLOC_ARENA_MAX": "1"}
# The same options of glibc's mallopt, and how much a service keeps: more makes it no faster.
_OPTIONS = {"MALLOC_MMAP_MAX_": -4, "MALLOC_TRIM_THRESHOLD_": -1, "MALLOC_ARENA_MAX": -8}
_KEPT_BYTES = 2**28


class ClusterError(RedactedError):
    """Ray cannot be reached or started, or is too small: the message says why and what to change."""


def keep_memory() -> None:
    """Let this process keep freed memory, at most `_KEPT_BYTES` of it, as those do that begin with `KEEP_MEMORY`.

    To be called before threads have arenas of their own, which keep none. Without glibc it does nothing.
    """
    with contextlib.suppress(AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        for name, value in KEEP_MEMORY.items():
            mallopt(_OPTIONS[name], min(int(value), _KEPT_BYTES))


def cluster_address(configured: str | None) -> str | None:
    """Return the address of the cluster to join, by default a job's (`RAY_ADDRESS`), or None to start one here."""
    return configured or os.environ.get("RAY_ADDRESS") or None


def local_cpus() -> int:
    """Return the number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def is_connected() -> bool:
    """Return whether this process is connected to a cluster."""
    if "ray" not in sys.modules:
        return False
    import ray

    return bool(ray.is_initialized())


def connect(configured: str | None) -> None:
    """Connect to the cluster (`ray.address`), or start one on this machine, once for all stages of a process.

    Raises ClusterError if the cluster does not answer or refuses us.
    """
    if is_connected():
        return
    address = cluster_address(configured)
    # Ray warns about a change of this default at every start.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    ray_internals.quiet_token_notice()
    import ray

    # Ray installs a handler of its own, which aborts the process within seconds, whatever it has still to write.
    handler = signal.getsignal(signal.SIGTERM)
    try:
        if address is None:
            _start_local()
        else:
            ray.init(address=address, logging_level="WARNING", runtime_env=_environment())
    except Exception as error:  # a start that fails raises this very class, a connection one of many others
        where = f"ray.address {address}" if address else "Ray on this machine"
        reason = str(error).strip().partition("\n")[0]
        remedy = "the machine may be too busy, or short of memory: try again"
        if address:
            remedy = (
                "check that `ray status` answers there, and that RAY_AUTH_MODE and the token are the same on both sides"
            )
        if full := full_folders():
            remedy = f"the disk of {' and '.join(full)} is full: make room there"
        raise ClusterError(f"{where}: cannot connect ({type(error).__name__}: {reason}); {remedy}") from error
    finally:
        if callable(handler) and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)


def _environment() -> dict[str, Any]:
    """Return what every worker of ours begins with: memory that it keeps, and this process's log and plugins."""
    environment = worker_environment()
    return environment | {"env_vars": KEEP_MEMORY | log_choices() | environment.get("env_vars", {})}


def disconnect() -> None:
    """Leave the cluster, and stop it if `connect` has started it; does nothing if Ray was never needed."""
    if is_connected():
        import ray

        ray.shutdown()
        ray_internals.forget_local()


def _start_local() -> None:
    # The workers import our packages from where this process has them, installed or not.
    root = str(Path(__file__).resolve().parents[2])
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if root not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([root, *filter(None, paths)])
    give_to_children()
    # With the dashboard, which is the default, although nobody may look at it: Ray Train asks its state API.
    ray_internals.init_local(
        num_cpus=local_cpus(),
        object_store_memory=_OBJECT_STORE_BYTES,
        logging_level="WARNING",
        runtime_env=_environment(),
    )
