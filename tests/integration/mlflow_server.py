"""MLflow's server as compose.yaml starts it: PostgreSQL behind it, users before it."""

from __future__ import annotations

import os
import signal
import subprocess
import sysconfig
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.infra.pins import INFRA
from tests.ports import free_port

SERVE = INFRA / "mlflow" / "serve.sh"
_START_SECONDS = 120


@contextmanager
def running(
    database: Mapping[str, str], folder: Path, artifacts: str, password: str, hosts: str, **environment: str
) -> Iterator[int]:
    """Start a server on a free port of the loopback, and yield the port.

    Args:
        database: variables of libpq (see `postgres.running`).
        folder: for its log; it runs there.
        artifacts: folder or s3:// address.
        password: of the user "admin".
        hosts: names that it goes by; with a star for the port: "127.0.0.1:*".
        environment: what else it is to know, such as where S3 is.
    """
    port = free_port()
    settings = {
        "PATH": f"{sysconfig.get_path('scripts')}:{os.environ['PATH']}",
        "MLFLOW_HOST": "127.0.0.1",
        "MLFLOW_PORT": str(port),
        "MLFLOW_WORKERS": "1",
        "MLFLOW_ARTIFACTS": artifacts,
        "MLFLOW_AUTH_ADMIN_PASSWORD": password,
        "MLFLOW_FLASK_SERVER_SECRET_KEY": "secret",
        "MLFLOW_SERVER_ALLOWED_HOSTS": hosts,
        **environment,
    }
    log_file = folder / "mlflow.log"
    with log_file.open("wb") as log:
        process = subprocess.Popen(
            [SERVE], env={**os.environ, **database, **settings}, cwd=folder, stdout=log, stderr=log, process_group=0
        )
        try:
            wait_for(process, port, log_file)
            yield port
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(60)


def wait_for(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    """Wait until it answers, whatever it answers."""
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=10).close()
        except urllib.error.HTTPError:
            return  # not under this name
        except OSError:
            time.sleep(0.5)
        else:
            return
    raise RuntimeError(f"the server has not started: {log.read_text(errors='replace')[-3000:]}")
