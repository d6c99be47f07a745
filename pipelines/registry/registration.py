"""Registration: a bundle becomes a version of a registered model, with the code that reads it."""

import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import mlflow
import pandas as pd
from mlflow import MlflowClient
from mlflow.models import ModelSignature
from mlflow.models.model import ModelInfo
from mlflow.types.schema import Array, ColSpec, DataType, Schema

from pipelines.registry.models import (
    BUNDLE_PARTS,
    CHALLENGER,
    CORRECTION,
    FINGERPRINT_TAG,
    MODEL_CARD,
    RegisteredVersion,
    find_registered,
)
from pipelines.tracking import Tracker
from preprocessing.storage.redaction import SecretAddress
from vse_core.digests import DIGESTS

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("vse_core", "preprocessing", "pipelines")


@contextmanager
def active_run(tracker: Tracker) -> Iterator[None]:
    """Make a tracker's run the active one of MLflow's module-level functions; its status is left alone."""
    tracker.flush()
    address = SecretAddress(tracker.handle.uri).reveal()
    mlflow.set_tracking_uri(address)
    mlflow.set_registry_uri(address)
    mlflow.start_run(run_id=tracker.run_id)
    try:
        yield
    finally:
        mlflow.end_run("RUNNING")


def register_bundle(
    bundle: Path,
    name: str,
    fingerprint: str,
    requirements: Sequence[str],
    tags: Mapping[str, str],
    metrics: Mapping[str, float],
    description: str = "",
) -> RegisteredVersion:
    """Log a bundle as a pyfunc in the active run and register it under the alias "challenger".

    A fingerprint that is registered already is not registered again. The requirements are what pip installs for the
    model. The tags go to the version, the metrics to the active run with the id of the logged model, so that MLflow
    shows them with the model. The description of the version is Markdown.
    """
    client = MlflowClient()
    found = find_registered(client, name, fingerprint)
    if found is None:
        info = _log_bundle(bundle, name, requirements, tags)
        mlflow.log_metrics(dict(metrics), model_id=info.model_id)
        version = mlflow.register_model(info.model_uri, name, tags={**tags, FINGERPRINT_TAG: fingerprint})
        found = RegisteredVersion(name, int(version.version), info.model_id)
    client.set_registered_model_alias(name, CHALLENGER, str(found.version))
    client.update_model_version(name, str(found.version), description=description)
    return found


def _log_bundle(bundle: Path, name: str, requirements: Sequence[str], tags: Mapping[str, str]) -> ModelInfo:
    parts = [part for part in (*BUNDLE_PARTS, CORRECTION, DIGESTS, MODEL_CARD) if (bundle / part).exists()]
    inputs = [ColSpec(DataType.string, column, required=False) for column in ("text", "image")]
    outputs = [ColSpec(Array(DataType.double), "embedding"), ColSpec(DataType.long, "views")]
    outputs.append(ColSpec(DataType.double, "bias"))
    with tempfile.TemporaryDirectory(prefix="vse-code-") as folder:
        code = Path(folder) / "packages.zip"
        _pack_code(code)
        return mlflow.pyfunc.log_model(
            name=name,
            python_model=str(ROOT / "pipelines" / "serving" / "pyfunc.py"),
            artifacts={part: str(bundle / part) for part in parts},
            code_paths=[str(code)],
            pip_requirements=list(requirements),
            signature=ModelSignature(Schema(inputs), Schema(outputs)),
            input_example=pd.DataFrame({"text": ["a dog runs along the beach", "two people on a bench"]}),
            tags=dict(tags),
        )


def _pack_code(archive: Path) -> None:
    """Write our packages into one archive, always the same bytes: MLflow takes minutes for files one by one."""
    with zipfile.ZipFile(archive, "w") as packed:
        for package in PACKAGES:
            for path in sorted((ROOT / package).rglob("*")):
                if path.is_file() and "__pycache__" not in path.parts and path.name != "pyproject.toml":
                    member = zipfile.ZipInfo(path.relative_to(ROOT).as_posix())
                    packed.writestr(member, path.read_bytes(), zipfile.ZIP_DEFLATED)
