"""The model registry: registered models are found by their names, and bundles by their folders, without MLflow.

What is registered is a "bundle", a directory with four parts: `model`, `extractor` (what its images need), `gallery`
and `index` (of the gallery), and `correction` (of hubs) if the training split is large enough for it, bound by one list
of the digests of all their files. MLflow keeps copies of them with the code that reads them.
"""

from __future__ import annotations

import atexit
import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from pipelines.runtime.cli import console
from pipelines.runtime.stage import StageError
from pipelines.schema.weights import PRETRAINED
from pipelines.tracking.client import connect, database_of, named_outages
from pipelines.tracking.mlflow_internals import read_versions
from preprocessing.storage.redaction import SecretAddress
from vse_core.digests import DIGESTS, check_bundle
from vse_core.open_clip_format import CONFIG

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import ModelVersion

BUNDLE_PARTS = ("model", "extractor", "gallery", "index")
# The part that a model of few training pairs, or of an earlier version, does not have.
CORRECTION = "correction"

# The card, next to the parts.
MODEL_CARD = "model_card.md"

# The newest version, not judged yet, and the one in use, by pipelines/promote.py. MLflow reserves "latest".
CHALLENGER, CHAMPION = "challenger", "champion"
FINGERPRINT_TAG = "vse.fingerprint"

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


def _registered(reference: str, name: str, tracking_uri: str) -> tuple[Mapping[int, str], Mapping[str, int]]:
    """Return the versions of a registered model, each with its location or "", and its aliases.

    A database on this machine is read without MLflow, which takes seconds to import. Raises RegistryError.
    """
    database = database_of(tracking_uri)
    if database is not None and (found := read_versions(database, name)) and found[0]:
        return found
    client = registry_client(tracking_uri)
    with named_outages(tracking_uri, f"find the model {reference!r}", RegistryError):
        versions = {int(version.version): "" for version in _versions(client, name)}
        if not versions:
            names = ", ".join(sorted(model.name for model in client.search_registered_models())) or "none"
            raise RegistryError(f"{name!r} is not a registered model; registered models: {names}")
        aliases = client.get_registered_model(name).aliases
        return versions, {alias: int(version) for alias, version in aliases.items()}


def current_version(reference: str, tracking_uri: str) -> tuple[str, str]:
    """Turn NAME, NAME@ALIAS, NAME/VERSION or a `models:/` URI into NAME/VERSION, and say why it is this version.

    NAME alone means the champion, or the newest version if there is none; of NAME/VERSION the reason is "". Raises
    RegistryError if MLflow does not answer, or lacks the model, alias or version; the message lists those that exist.
    """
    match = _REFERENCE.fullmatch(reference.removeprefix("models:/"))
    if match is None:
        raise RegistryError(f"cannot read {reference!r} as a model: write NAME, NAME@ALIAS or NAME/VERSION")
    name, alias, number = match["name"], match["alias"], match["version"]
    versions, aliases = _registered(reference, name, tracking_uri)
    if number is not None:
        if int(number) not in versions:
            known = ", ".join(map(str, sorted(versions)))
            raise RegistryError(f"model {name!r} has no version {number}; its versions: {known}")
        return f"{name}/{int(number)}", ""
    if alias is None:
        if CHAMPION in aliases:
            return f"{name}/{aliases[CHAMPION]}", "the champion"
        return f"{name}/{max(versions)}", "the newest version, as the model has no champion"
    if alias not in aliases:
        known = ", ".join(sorted(aliases)) or "none"
        raise RegistryError(f"model {name!r} has no alias {alias!r}; its aliases: {known}")
    return f"{name}/{aliases[alias]}", f"the {alias}"


def newer_version(pinned: str, tracking_uri: str) -> str:
    """Return a sentence about the version that NAME means now, if it is not the NAME/VERSION given; else "".

    A directory or a pretrained model has no other version. Raises RegistryError if MLflow does not answer.
    """
    name, separator, _ = pinned.partition("/")
    if not separator or pinned.startswith((*_PATHS, PRETRAINED)):
        return ""
    current, reason = current_version(name, tracking_uri)
    return "" if current == pinned else f"{pinned} is used; {name} now means {current}, {reason}"


def aliases_of(name: str, tracking_uri: str) -> dict[str, int]:
    """Return the aliases of a registered model with the versions that they stand for; none if it does not exist."""
    client = registry_client(tracking_uri)
    if not _versions(client, name):
        return {}
    return {alias: int(version) for alias, version in client.get_registered_model(name).aliases.items()}


def versions_of(name: str, tracking_uri: str) -> set[int]:
    """Return the versions of a registered model; none if it does not exist."""
    return {int(version.version) for version in _versions(registry_client(tracking_uri), name)}


def tags_of(name: str, version: int, tracking_uri: str) -> dict[str, str]:
    """Return the tags of a version."""
    tags: dict[str, str] = registry_client(tracking_uri).get_model_version(name, str(version)).tags
    return tags


def registry_client(tracking_uri: str) -> MlflowClient:
    """Return a client of a server or database; raises RegistryError if a database does not exist, or TrackingError."""
    database = database_of(tracking_uri)
    if database is not None and not database.is_file():
        # MLflow would make an empty one.
        raise RegistryError(
            f"the MLflow database {database} does not exist: run the pipeline first, or name the work directory "
            "(VSE_WORK_DIR) or MLflow's address (--tracking-uri)"
        )
    return connect(tracking_uri)


def pin(reference: str, tracking_uri: str) -> str:
    """Return NAME/VERSION of a registered model, or the absolute path of a folder: what means the same for ever.

    Of a pretrained model, which is saved first, it is `hf:NAME@DIGITS`. The version is told on stderr if the reference
    leaves it open. Raises RegistryError as `current_version`, or as `pin_pretrained`.
    """
    if reference.startswith(PRETRAINED):
        return _pretrained(reference)[0]
    directory = Path(reference).expanduser().absolute()
    if reference.startswith(_PATHS) or _bundle_in(directory) is not None:
        return str(directory)
    pinned, reason = current_version(reference, tracking_uri)
    if reason:
        console(stderr=True).print(f"{reference}: {pinned}, {reason}", soft_wrap=True)
    return pinned


def _pretrained(reference: str) -> tuple[str, Path]:
    from pipelines.registry.pretrained import find_pretrained, pin_pretrained  # the configuration

    pinned = pin_pretrained(reference)
    return pinned, find_pretrained(pinned)


def unpinned(pinned: str) -> str:
    """Return what `pin` was given, if that was a name or a folder alone."""
    if pinned.startswith(PRETRAINED):
        return pinned.rpartition("@")[0]
    return pinned if pinned.startswith(_PATHS) else pinned.partition("/")[0]


def _bundle_in(directory: Path) -> Path | None:
    """Return the folder of the parts: this one, or `artifacts` in the folder that MLflow keeps of a model."""
    return next((each for each in (directory, directory / "artifacts") if (each / "model").is_dir()), None)


def find_bundle(reference: str, tracking_uri: str) -> tuple[str, Path]:
    """Return the pinned name (see `pin`), and the directory of the parts of a registered model or a bundle.

    A registered bundle is MLflow's own directory if that is on this machine, else a copy. No code that is registered
    with the model runs. The reference is NAME, NAME@ALIAS, NAME/VERSION, a `models:/` URI, a directory, or `hf:` and a
    pretrained dual encoder, whose bundle has no gallery. Raises RegistryError if the model does not exist or is not of
    this pipeline, or MLflow does not answer, and DigestError if a file of it was changed or is missing, or another
    version of this program has registered it.
    """
    if reference.startswith(PRETRAINED):
        pinned, bundle = _pretrained(reference)
        check_bundle(bundle, pinned)
        return pinned, bundle
    pinned = pin(reference, tracking_uri)
    if not Path(pinned).is_absolute():
        bundle = _fetched(pinned, tracking_uri)
        check_bundle(bundle, f"the registered model {pinned}")
        return pinned, bundle
    found = _bundle_in(Path(pinned))
    if found is None:
        if any((Path(pinned) / name).is_file() for name in ("config.json", CONFIG)):
            raise RegistryError(f"{pinned} is a pretrained network: write {PRETRAINED}{pinned}")
        raise RegistryError(f"{pinned} holds no model: neither model.json nor the folder model is in it")
    check_bundle(found, pinned)
    return pinned, found


@cache
def _downloaded(pinned: str, tracking_uri: str) -> Path:  # noqa: ARG001 (versions of two servers are two)
    """Fetch a version into a folder that goes with this process, once: MLflow would leave a copy for each time."""
    import mlflow

    folder = tempfile.mkdtemp(prefix="vse-model-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(mlflow.artifacts.download_artifacts(f"models:/{pinned}", dst_path=folder))


def _fetched(pinned: str, tracking_uri: str) -> Path:
    name, _, version = pinned.rpartition("/")
    location = _registered(pinned, name, tracking_uri)[0].get(int(version), "")
    here = Path(unquote(location.removeprefix("file://"))) / "artifacts"
    if here.is_absolute() and here.is_dir():
        return here
    import mlflow

    with named_outages(tracking_uri, f"fetch the model {pinned!r}", RegistryError):
        address = SecretAddress(tracking_uri).reveal()
        mlflow.set_tracking_uri(address)
        mlflow.set_registry_uri(address)
        bundle = _downloaded(pinned, tracking_uri) / "artifacts"
    if not any((bundle / part).exists() for part in (*BUNDLE_PARTS, DIGESTS)):
        raise RegistryError(
            f"models:/{pinned} was not registered by this pipeline: it has no {', '.join(BUNDLE_PARTS)}"
        )
    return bundle


def find_model(reference: str, tracking_uri: str) -> tuple[str, Path]:
    """Return a name, and a model's own directory, with `model.json` in it: as `find_bundle`, or a checkpoint's.

    Raises as `find_bundle`; readers of the model check its own digests.
    """
    directory = Path(reference).expanduser()
    for model in (directory, directory / "model"):
        if (model / "model.json").is_file():
            return str(directory), model
    name, bundle = find_bundle(reference, tracking_uri)
    return name, bundle / "model"


def check_model(reference: str, tracking_uri: str) -> str:
    """Return the name that `find_model` would return, for a dry run: nothing is fetched from MLflow. Raises as that."""
    directory = Path(reference).expanduser()
    is_here = any((folder / "model.json").is_file() for folder in (directory, directory / "model"))
    if is_here or reference.startswith(_PATHS):
        return find_model(reference, tracking_uri)[0]
    return current_version(reference, tracking_uri)[0]


def _versions(client: MlflowClient, name: str) -> list[ModelVersion]:
    quoted = name.replace("'", "''")
    found = client.search_model_versions(f"name = '{quoted}'", max_results=10_000)
    return sorted(found, key=lambda version: int(version.version), reverse=True)
