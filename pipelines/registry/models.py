"""The model registry: a trained model becomes a version of a registered model, and is found again by its name.

What is registered is a "bundle", a directory with four parts: `model`, `extractor` (what its images need), `gallery`
and `index` (of the gallery). MLflow keeps copies of them with the code that reads them.
"""

import re
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import mlflow
import pandas as pd
from mlflow import MlflowClient
from mlflow.entities.model_registry import ModelVersion
from mlflow.models import ModelSignature
from mlflow.models.model import ModelInfo
from mlflow.types.schema import Array, ColSpec, DataType, Schema

from pipelines.runtime.stage import StageError
from pipelines.tracking.client import connect, outages, reason_of
from preprocessing.storage.redaction import SecretAddress

BUNDLE_PARTS = ("model", "extractor", "gallery", "index")
# Versions from before there was an index have none.
_NEEDED_PARTS = BUNDLE_PARTS[:3]

# The newest version, not judged yet; pipelines/promote.py decides who is "champion". MLflow reserves "latest".
CHALLENGER = "challenger"
FINGERPRINT_TAG = "vse.fingerprint"

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("vse_core", "preprocessing", "pipelines")
# A folder in the current directory that only happens to be called like a registered model is not meant.
_PATHS = ("/", "./", "../", "~")
_REFERENCE = re.compile(r"(?P<name>[^@/]+)(?:@(?P<alias>[^@/]+)|/(?P<version>\d+))?")


class RegistryError(StageError):
    """A model that cannot be found; its message names the models that there are."""


@dataclass(frozen=True, slots=True)
class RegisteredVersion:
    """A version (from 1) of a registered model; `model_id` is the logged model behind it, which metrics refer to."""

    name: str
    version: int
    model_id: str

    @property
    def uri(self) -> str:
        """The address for `mlflow.pyfunc.load_model`."""
        return f"models:/{self.name}/{self.version}"


def find_registered(client: MlflowClient, name: str, fingerprint: str) -> RegisteredVersion | None:
    """Return the version that was registered under a fingerprint, the newest if there are several, or None."""
    for version in _versions(client, name):
        if version.tags.get(FINGERPRINT_TAG) == fingerprint:
            return RegisteredVersion(name, int(version.version), version.source.removeprefix("models:/"))
    return None


def register_bundle(
    bundle: Path,
    name: str,
    fingerprint: str,
    requirements: Sequence[str],
    tags: Mapping[str, str],
    metrics: Mapping[str, float],
) -> RegisteredVersion:
    """Log a bundle as a pyfunc in the active run and register it under the alias "challenger".

    A fingerprint that is registered already is not registered again. The requirements are what pip installs for the
    model. The tags go to the version, the metrics to the active run with the id of the logged model, so that MLflow
    shows them with the model. Raises RuntimeError where no run is active.
    """
    run = mlflow.active_run()
    if run is None:
        raise RuntimeError("a model is logged to a run: start one before registering")
    client = MlflowClient()
    found = find_registered(client, name, fingerprint)
    if found is None:
        info = _log_bundle(bundle, name, requirements, tags)
        mlflow.log_metrics(dict(metrics), run_id=run.info.run_id, model_id=info.model_id)
        version = mlflow.register_model(info.model_uri, name, tags={**tags, FINGERPRINT_TAG: fingerprint})
        found = RegisteredVersion(name, int(version.version), info.model_id)
    client.set_registered_model_alias(name, CHALLENGER, str(found.version))
    return found


def _log_bundle(bundle: Path, name: str, requirements: Sequence[str], tags: Mapping[str, str]) -> ModelInfo:
    with tempfile.TemporaryDirectory(prefix="vse-code-") as folder:
        code = Path(folder) / "packages.zip"
        _pack_code(code)
        return mlflow.pyfunc.log_model(
            name=name,
            python_model=str(ROOT / "pipelines" / "serving" / "pyfunc.py"),
            artifacts={part: str(bundle / part) for part in BUNDLE_PARTS},
            code_paths=[str(code)],
            pip_requirements=list(requirements),
            signature=model_signature(),
            input_example=pd.DataFrame({"text": ["a dog runs along the beach", "two people on a bench"]}),
            tags=dict(tags),
        )


def _pack_code(archive: Path) -> None:
    """Write our packages into one archive, always the same bytes: MLflow takes minutes for files one by one."""
    with zipfile.ZipFile(archive, "w") as packed:
        for package in PACKAGES:
            for path in sorted((ROOT / package).rglob("*")):
                if path.is_file() and "__pycache__" not in path.parts:
                    member = zipfile.ZipInfo(path.relative_to(ROOT).as_posix())
                    packed.writestr(member, path.read_bytes(), zipfile.ZIP_DEFLATED)


def resolve(client: MlflowClient, reference: str) -> str:
    """Turn NAME, NAME@ALIAS, NAME/VERSION or a `models:/` URI into the URI of one version.

    NAME alone means its newest version.

    Raises RegistryError where there is no such model, alias or version; the message lists what there is.
    """
    match = _REFERENCE.fullmatch(reference.removeprefix("models:/"))
    if match is None:
        raise RegistryError(f"cannot read {reference!r} as a model: write NAME, NAME@ALIAS or NAME/VERSION")
    name, alias, number = match["name"], match["alias"], match["version"]
    if name.startswith("m-") and reference.startswith("models:/") and not alias and not number:
        return reference  # a logged model by its id
    versions = _versions(client, name)
    if not versions:
        names = ", ".join(sorted(model.name for model in client.search_registered_models())) or "none"
        raise RegistryError(f"there is no registered model {name!r}; registered models: {names}")
    numbers = [int(version.version) for version in versions]
    if alias is not None:
        aliases = client.get_registered_model(name).aliases
        if alias not in aliases:
            known = ", ".join(sorted(aliases)) or "none"
            raise RegistryError(f"model {name!r} has no alias {alias!r}; its aliases: {known}")
        return f"models:/{name}@{alias}"
    if number is not None and int(number) not in numbers:
        known = ", ".join(str(known) for known in sorted(numbers))
        raise RegistryError(f"model {name!r} has no version {number}; its versions: {known}")
    return f"models:/{name}/{number or numbers[0]}"


def version_of(reference: str, tracking_uri: str) -> int:
    """Return the version that NAME, NAME@ALIAS or NAME/VERSION means; RegistryError where it is unknown."""
    client = _client(tracking_uri)
    name, separator, alias = resolve(client, reference).removeprefix("models:/").partition("@")
    if separator:
        return int(client.get_model_version_by_alias(name, alias).version)
    return int(name.rpartition("/")[2])


def aliases_of(name: str, tracking_uri: str) -> dict[str, int]:
    """Return the aliases of a registered model with the versions that they stand for; none where there is no such
    model.
    """
    client = _client(tracking_uri)
    if not _versions(client, name):
        return {}
    return {alias: int(version) for alias, version in client.get_registered_model(name).aliases.items()}


def set_alias(name: str, alias: str, version: int, tracking_uri: str) -> None:
    """Point an alias to a version."""
    _client(tracking_uri).set_registered_model_alias(name, alias, str(version))


def tags_of(name: str, version: int, tracking_uri: str) -> dict[str, str]:
    """Return the tags of a version."""
    tags: dict[str, str] = _client(tracking_uri).get_model_version(name, str(version)).tags
    return tags


def tag_version(name: str, version: int, tags: Mapping[str, str], tracking_uri: str) -> None:
    """Set tags of a version."""
    client = _client(tracking_uri)
    for key, value in tags.items():
        client.set_model_version_tag(name, str(version), key, value)


def describe_version(name: str, version: int, text: str, tracking_uri: str) -> None:
    """Set the description of a version, in Markdown."""
    _client(tracking_uri).update_model_version(name, str(version), description=text)


def _client(tracking_uri: str) -> MlflowClient:
    """Return a client of a server or database; RegistryError where there is no such database, or TrackingError."""
    database = tracking_uri.removeprefix("sqlite:///")
    if database != tracking_uri and not Path(database).is_file():
        # MLflow would make an empty one.
        raise RegistryError(f"there is no MLflow database {database}: run the pipeline first, or name another address")
    return connect(tracking_uri)


def find_bundle(reference: str, tracking_uri: str) -> tuple[str, Path]:
    """Return a name for messages, and the directory of the parts of a registered model or of a bundle's directory.

    A registered bundle is MLflow's own directory where that is on this machine, else a copy. No code that is registered
    with the model runs. The reference is NAME, NAME@ALIAS, NAME/VERSION, a `models:/` URI, or a directory. Raises
    RegistryError where there is no such model, it is none of this pipeline, or MLflow does not answer.
    """
    directory = Path(reference).expanduser()
    if reference.startswith(_PATHS) or (directory / "model").is_dir():
        return str(directory), directory
    client = _client(tracking_uri)
    try:
        address = SecretAddress(tracking_uri).reveal()
        mlflow.set_tracking_uri(address)
        mlflow.set_registry_uri(address)
        uri = resolve(client, reference)
        bundle = Path(mlflow.artifacts.download_artifacts(uri)) / "artifacts"
    except outages() as error:
        raise RegistryError(
            f"model {reference!r} cannot be fetched from MLflow at {tracking_uri}: {reason_of(error)}"
        ) from error
    missing = [part for part in _NEEDED_PARTS if not (bundle / part).is_dir()]
    if missing:
        raise RegistryError(f"{uri} was not registered by this pipeline: it has no {', '.join(missing)}")
    return uri.removeprefix("models:/"), bundle


def find_model(reference: str, tracking_uri: str) -> Path:
    """Return a model's own directory, with `model.json` in it: as `find_bundle`, or a checkpoint's directory.

    Raises RegistryError as `find_bundle`, or where the directory holds no model.
    """
    directory = Path(reference).expanduser()
    if (directory / "model.json").is_file():
        return directory
    model = find_bundle(reference, tracking_uri)[1] / "model"
    if not (model / "model.json").is_file():
        raise RegistryError(f"{reference} holds no model: neither model.json nor model/model.json is in it")
    return model


def model_signature() -> ModelSignature:
    """Return the input and output columns of the pyfunc, as its class documents them."""
    inputs = [ColSpec(DataType.string, column, required=False) for column in ("text", "image")]
    inputs.append(ColSpec(Array(Array(DataType.double)), "features", required=False))
    outputs = [ColSpec(Array(DataType.double), "embedding"), ColSpec(DataType.long, "views")]
    return ModelSignature(inputs=Schema(inputs), outputs=Schema(outputs))


def _versions(client: MlflowClient, name: str) -> list[ModelVersion]:
    """Return all versions of a model, newest first; none where there is no such model."""
    quoted = name.replace("'", "''")
    found = client.search_model_versions(f"name = '{quoted}'", max_results=10_000)
    return sorted(found, key=lambda version: int(version.version), reverse=True)
