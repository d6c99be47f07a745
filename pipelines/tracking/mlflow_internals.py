"""All uses of MLflow's undocumented parts: why each is needed, and the public API that would replace it.

tests/pipelines/tracking/test_mlflow_internals.py fails when one of them is gone, or when its public replacement is
there.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from preprocessing.storage.redaction import SecretAddress

if TYPE_CHECKING:
    from mlflow import MlflowClient

# The tag by which MLflow's pages show an experiment as model training, without asking whoever opens it.
# Would be replaced by: a parameter of `MlflowClient.create_experiment`.
TRAINING_EXPERIMENT = {"mlflow.experimentKind": "custom_model_development"}

# The query of an address of MLflow's pages that shows them for training models, not for agents, whatever was chosen
# before. Would be replaced by: a setting of the server.
TRAINING_VIEW = "workflowType=machine_learning"

# Where a server started on this machine shows its pages.
PAGES = "http://127.0.0.1:5000"


def quiet_database_setup() -> None:
    """Keep MLflow's messages about a new database's tables back. Would be replaced by: a documented setting."""
    for name in ("alembic", "mlflow.store.db.utils"):
        logging.getLogger(name).setLevel(logging.WARNING)


@contextmanager
def monitored(run_id: str, address: str) -> Iterator[None]:
    """Log the load of this machine to a run, from a thread, while the context lasts; that of a resumed run continues.

    `mlflow.enable_system_metrics_logging` does the same for runs that `mlflow.start_run` has opened, on this process's
    tracking address. Would be replaced by: a documented class or a function that takes a run and an address.
    """
    from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor

    logging.getLogger("mlflow.system_metrics").setLevel(logging.WARNING)
    monitor = SystemMetricsMonitor(run_id, resume_logging=True, tracking_uri=address)
    monitor.start()
    try:
        yield
    finally:
        monitor.finish()


def read_versions(database: Path, name: str) -> tuple[dict[int, str], dict[str, int]] | None:
    """Return the versions of a registered model with the addresses of their files, and its aliases, from a database.

    A search would otherwise mostly wait for MLflow to be imported. None if the tables are not those that we know. Would
    be replaced by: an `MlflowClient` that is imported in a tenth of a second.
    """
    versions = (
        "SELECT version, coalesce(storage_location, '') FROM model_versions "
        "WHERE name = ? AND current_stage != 'Deleted_Internal'"
    )
    aliases = "SELECT alias, version FROM registered_model_aliases WHERE name = ?"
    try:
        with closing(sqlite3.connect(f"file:{quote(str(database))}?mode=ro", uri=True)) as connection:
            return dict(connection.execute(versions, (name,))), dict(connection.execute(aliases, (name,)))
    except sqlite3.Error:
        return None


def run_page(uri: str, experiment_id: str, run_id: str) -> str:
    """Return the address of a run's page, also for a database served on its port. Would be replaced by: a method."""
    is_server = uri.startswith(("http://", "https://"))
    server = SecretAddress(uri).without_user.rstrip("/") if is_server else PAGES
    return f"{server}/#/experiments/{experiment_id}/runs/{run_id}?{TRAINING_VIEW}"


def forget(client: MlflowClient, run_ids: Iterable[str], model_ids: Iterable[str]) -> bool:
    """Remove deleted runs and logged models from a database for good; return False if a server has to do that.

    `mlflow gc` would remove all experiments that anybody has deleted as well. Would be replaced by: a method.
    """
    store = client._tracking_client.store
    if not hasattr(store, "_hard_delete_run"):
        return False
    for run_id in run_ids:
        store._hard_delete_run(run_id)
    for model_id in model_ids:
        store._hard_delete_logged_model(model_id)
    return True
