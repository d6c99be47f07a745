"""The connection to MLflow: its settings, its errors, and the addresses of its pages."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pipelines.tracking.mlflow_internals import quiet_database_setup, run_page
from preprocessing.storage.redaction import RedactedError, SecretAddress, redact_logs

if TYPE_CHECKING:
    from mlflow import MlflowClient

# A server that is away must cost seconds, not the minutes of MLflow's own patience; what fails is sent again later.
_MLFLOW_SETTINGS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "15",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
}


class TrackingError(RedactedError):
    """A run cannot be opened in MLflow: the message says why and what to change."""


def connect(uri: str) -> MlflowClient:
    """Return a client of a server or database; nothing is asked of it yet.

    Raises:
        TrackingError: it is no address that MLflow takes.
    """
    redact_logs()
    for name, value in _MLFLOW_SETTINGS.items():
        os.environ.setdefault(name, value)
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException

    quiet_database_setup()
    address = SecretAddress(uri).reveal()
    try:
        return MlflowClient(address, registry_uri=address)
    except MlflowException as error:  # its text has the address
        raise TrackingError(f"tracking.uri {uri}: {error}") from None


def outages() -> tuple[type[Exception], ...]:
    """Return what is raised when MLflow or its artifacts' S3 does not answer or refuses, and by sockets and files."""
    from boto3.exceptions import Boto3Error
    from botocore.exceptions import BotoCoreError, ClientError
    from mlflow.exceptions import MlflowException

    return (MlflowException, OSError, Boto3Error, BotoCoreError, ClientError)


def page(uri: str, experiment_id: str, run_id: str) -> str:
    """Return the address of a run's page; for a database, the page of an MLflow server started over it on its port."""
    server = (
        SecretAddress(uri).without_user.rstrip("/")
        if uri.startswith(("http://", "https://"))
        else "http://127.0.0.1:5000"
    )
    return run_page(server, experiment_id, run_id)
