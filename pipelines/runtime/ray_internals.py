"""All uses of Ray's undocumented parts: why each is needed, and the public API that would replace it.

tests/pipelines/runtime/test_ray_internals.py fails when one of them is gone.
"""

import logging
import os
import socket
from pathlib import Path
from typing import Any

_LOOPBACK = "127.0.0.1"
_GCS_PORT = "RAY_GCS_SERVER_PORT"
_TOKEN_VARIABLES = frozenset({"RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"})

# A thread of Ray Serve's for the code of a replica costs more than it gains if that code has threads of its own, and
# so do messages through Ray's core. Would be replaced by: options of a deployment and a handle.
SERVE_SETTINGS = {"RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD": "0", "RAY_SERVE_USE_GRPC_BY_DEFAULT": "1"}


def protect_token() -> None:
    """Let the owner alone read the file with Ray's token, before Ray writes it. Would be replaced by: Ray doing so."""
    path = Path.home() / ".ray" / "auth_token"
    if os.environ.get("RAY_AUTH_MODE") != "disabled" and not _TOKEN_VARIABLES & os.environ.keys():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
    if path.exists() and path.stat().st_mode & 0o077:
        path.chmod(0o600)


def quiet_token_notice() -> None:
    """Keep Ray's notice that it asks for a token out of the terminal. Would be replaced by: no notice of a default."""
    logger = logging.getLogger("ray._private.authentication.authentication_token_setup")
    logger.addFilter(_is_no_token_notice)


def _is_no_token_notice(record: logging.LogRecord) -> bool:
    return not record.getMessage().startswith("Token authentication is enabled")


def init_local(**options: Any) -> None:
    """Start Ray on this machine, at a port that is chosen before and written to RAY_ADDRESS.

    Helpers of Ray Train look for the cluster of the machine by themselves and may find another one than ours. Would be
    replaced by: a parameter of `ray.init` for the port of a local cluster.
    """
    import ray

    with socket.socket() as free:
        free.bind((_LOOPBACK, 0))
        port = free.getsockname()[1]
    protect_token()
    os.environ |= {_GCS_PORT: str(port), "RAY_ADDRESS": f"{_LOOPBACK}:{port}"}
    ray.init(address="local", **options)


def is_local() -> bool:
    """Return whether the cluster is one that :func:`init_local` has started."""
    return _GCS_PORT in os.environ


def forget_local() -> None:
    """Remove the address that :func:`init_local` chose, once its cluster has ended; does nothing without one."""
    if os.environ.pop(_GCS_PORT, None) is not None:
        del os.environ["RAY_ADDRESS"]


def is_autoscaled() -> bool:
    """Return whether the cluster adds machines on demand. Would be replaced by: a function that returns its limits."""
    import ray

    return ray._private.state.state.get_cluster_config() is not None  # only autoscalers publish one


def requires_token() -> bool:
    """Return whether the cluster that we are connected to lets nobody in without a token.

    Would be replaced by: a public function. RAY_AUTH_MODE may be unset, and its default depends on Ray's version.
    """
    from ray._private.authentication.authentication_utils import is_token_auth_enabled

    return bool(is_token_auth_enabled())


def configure_train(collective_timeout: float) -> None:
    """Set the environment of Ray Train's processes: `ray.train.report` gives up on a worker after a time in seconds.

    Would be replaced by: fields of `ray.train.RunConfig` or `FailureConfig`.
    """
    # The controller polls the workers, and collects their reports, at this interval; Ray's default is 2 seconds.
    os.environ.setdefault("RAY_TRAIN_HEALTH_CHECK_INTERVAL_S", "0.5")
    os.environ["RAY_TRAIN_COLLECTIVE_TIMEOUT_S"] = str(collective_timeout)
    # An actor of Ray's that tells workers of a node that is drained, of which its core logs an error at every start.
    # Ours are told by SIGTERM.
    os.environ.setdefault("RAY_TRAIN_ENABLE_PREEMPTION_WATCHER", "0")
