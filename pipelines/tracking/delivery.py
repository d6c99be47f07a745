"""Delivery to MLflow in few requests; importing this takes seconds."""

import sqlite3
from pathlib import Path

from boto3.exceptions import Boto3Error
from botocore.exceptions import BotoCoreError, ClientError
from mlflow import MlflowClient
from mlflow.entities import LoggedModelOutput, Metric, Param, RunTag
from mlflow.exceptions import MlflowException
from sqlalchemy.exc import SQLAlchemyError

from pipelines.tracking.records import LoggedModel, Pending

# The errors of MLflow, its database, its artifacts' S3 and files that do not answer or refuse.
OUTAGES = (MlflowException, SQLAlchemyError, sqlite3.Error, OSError, Boto3Error, BotoCoreError, ClientError)


def send(client: MlflowClient, pending: Pending, artifacts: Path) -> None:
    """Send everything, forgetting each thing once it has arrived; what arrives twice does no harm."""
    run_id = pending.run.run_id
    if pending.params or pending.tags or pending.metrics:
        known = client.get_run(run_id).data.params if pending.params else {}
        params = [Param(name, value) for name, value in pending.params.items() if name not in known]
        metrics = [Metric(*metric) for metric in pending.metrics]
        client.log_batch(run_id, metrics, params, [RunTag(*tag) for tag in pending.tags.items()])
        pending.params, pending.tags, pending.metrics = {}, {}, []
    while pending.models:
        _send_model(client, pending.run.experiment_id, run_id, pending.models[0])
        del pending.models[0]
    for path in sorted(path for path in artifacts.rglob("*") if path.is_file()):
        folder = path.parent.relative_to(artifacts).as_posix()
        client.log_artifact(run_id, str(path), None if folder == "." else folder)
        path.unlink()


def _send_model(client: MlflowClient, experiment_id: str, run_id: str, logged: LoggedModel) -> None:
    known = client.search_logged_models([experiment_id], f"source_run_id = '{run_id}' AND name = '{logged.name}'")
    if known:
        model = known[0]
    else:
        model = client.create_logged_model(experiment_id, logged.name, run_id)
        client.log_outputs(run_id, [LoggedModelOutput(model.model_id, logged.metrics[0][3])])
    name, digest = logged.data
    origin = {"model_id": model.model_id, "dataset_name": name, "dataset_digest": digest, "run_id": run_id}
    client.log_batch(run_id, metrics=[Metric(*metric, **origin) for metric in logged.metrics])
    client.finalize_logged_model(model.model_id, "READY")
