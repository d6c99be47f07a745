"""The connection to MLflow: its settings, its errors, and the addresses of its pages."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.tracking.mlflow_internals import quiet_database_setup
from preprocessing.storage.atomic import locked
from preprocessing.storage.redaction import RedactedError, SecretAddress, redact_logs, redacted

if TYPE_CHECKING:
    from mlflow import MlflowClient

# A server that is away must cost seconds, not the minutes of MLflow's own patience; what fails is sent again later.
_MLFLOW_SETTINGS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "15",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
}

_SQLITE, _SETUP_LOCK, _SQLITE_SECONDS = "sqlite:///", ".mlflow.lock", 20.0
# Databases of servers, with their ports.
DATABASE_PORTS = {"postgresql": 5432, "mysql": 3306, "mssql": 1433}
_DATABASE_ADVICE = {
    "disk is full": "make room on the disk of that file, and run the same command again",
    "database is locked": "another process has locked it: end that, or run the same command again later",
    "malformed": "restore it from a copy, or move it away: a new one is made, without the runs recorded so far",
    "not a database": "restore it from a copy, or name another file",
}


class TrackingError(RedactedError):
    """A run cannot be opened in MLflow: the message says why and what to change."""


def connect(uri: str) -> MlflowClient:
    """Return a client of a server, or of a database, which gets its tables; TrackingError if an address is wrong."""
    redact_logs()
    for name, value in _MLFLOW_SETTINGS.items():
        os.environ.setdefault(name, value)
    from mlflow import MlflowClient

    quiet_database_setup()
    address = SecretAddress(uri).reveal()
    with named_outages(uri, "connect"), _database_ready(database_of(uri)):
        return MlflowClient(address, registry_uri=address)


def require_database(uri: str) -> None:
    """Raise TrackingError if a run's database is a file that is not on this machine: MLflow would make an empty one."""
    path = database_of(uri)
    if path is not None and not path.is_file():
        raise TrackingError(
            f"tracking.uri: the database {path} is not on {socket.gethostname()}, which works for this run: name a "
            "server that all machines reach, or a database in a folder that they share"
        )


def database_of(uri: str) -> Path | None:
    """Return the file of a database, whose address may end in options (`?timeout=60`); None for a server."""
    return Path(uri.removeprefix(_SQLITE).partition("?")[0]) if uri.startswith(_SQLITE) else None


@contextlib.contextmanager
def _database_ready(path: Path | None) -> Iterator[None]:
    """Try to read a database of sqlite, as MLflow would try for minutes; one of several processes makes the tables."""
    if path is None:
        yield
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with locked(path.with_name(_SETUP_LOCK), fcntl.LOCK_EX):
        if path.exists():
            with contextlib.closing(sqlite3.connect(path, timeout=_SQLITE_SECONDS)) as database:
                database.execute("PRAGMA schema_version").fetchone()
        yield


@contextlib.contextmanager
def named_outages(uri: str, action: str, kind: type[RedactedError] = TrackingError) -> Iterator[None]:
    """Turn what :func:`outages` lists into an error of a kind that names the address and the action: "open a run"."""
    try:
        yield
    except outages() as error:  # its text has the address
        raise kind(f"tracking.uri {uri}: cannot {action}: {reason_of(error)}") from None


def reason_of(error: Exception) -> str:
    """Return the first line of an error without passwords and the SQL below it, and for a database what to do."""
    reason = redacted(str(error).strip().partition("\n")[0])
    advice = next((advice for sign, advice in _DATABASE_ADVICE.items() if sign in reason), "")
    return f"{reason}: {advice}" if advice else reason


def outages() -> tuple[type[Exception], ...]:
    """Return the errors of MLflow, its database, its artifacts' S3 and files that do not answer or refuse."""
    from pipelines.tracking.delivery import OUTAGES

    return OUTAGES


@contextlib.contextmanager
def unless_gone() -> Iterator[None]:
    """Pass over what MLflow does not know any more."""
    try:
        yield
    except Exception as error:
        if not is_gone(error):
            raise


def is_gone(error: Exception) -> bool:
    """Return whether MLflow does not know what it was asked for."""
    return getattr(error, "error_code", None) == "RESOURCE_DOES_NOT_EXIST"
