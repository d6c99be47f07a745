"""Checks before any work starts: the configured data, folders, machines and servers must be there."""

import http.client
import os
import secrets
import socket
import tempfile
import urllib.error
import urllib.request
from itertools import islice
from pathlib import Path
from urllib.parse import urlsplit

from pipelines.config import ConfigError, PipelineConfig
from pipelines.config.training import GRAPH_PROTOCOLS
from pipelines.runtime.cluster import cluster_address, local_cpus
from pipelines.tracking.client import DATABASE_PORTS
from pipelines.training.left_out import named_pairs
from preprocessing.datasets import DatasetError, build_dataset
from preprocessing.datasets.checks import require_file, require_image_folder
from preprocessing.datasets.crisscrossed import crisscrossed_files
from preprocessing.storage.base import StorageError
from preprocessing.storage.opening import open_storage
from preprocessing.storage.redaction import ADDRESS_VARIABLE, SecretAddress

_SECONDS = 5.0


def check_before_start(config: PipelineConfig, trains: bool = True) -> None:
    """Check everything that a configuration refers to, in about a second, or a few if a server does not answer.

    If nothing `trains`, any number of captions will do. Raises ConfigError if something is not there; one message with
    the key, the value and what to change; StageError if a protocol is not for the split; DatasetError if the files of a
    protocol are not there.
    """
    is_dry_run = config.mirror.is_read_only
    check_writable("work_dir", config.work_dir, is_dry_run)
    check_storage("storage.address", config.storage.address, is_dry_run)
    check_storage("tracking.artifacts", config.tracking.artifacts, is_dry_run)
    _check_dataset(config, config.training.batch_size if trains else 1)
    _check_protocols(config)
    check_model(config)
    initial = config.training.initial
    if initial is not None and not (initial / "model.safetensors").is_file():
        raise ConfigError(
            f"training.initial: {initial} is not a directory of a model (it has no model.safetensors); name a best-... "
            "folder of a finished training, or leave it out"
        )
    if config.training.leave_out is not None:
        named_pairs(config.training.leave_out)
    _check_ray(config)
    check_tracking(config.tracking_uri, is_dry_run)


def check_writable(key: str, folder: Path, is_dry_run: bool = False) -> None:
    """Make a folder, or in a dry run see whether it can be made; raises ConfigError if nothing can be written to it."""
    try:
        if is_dry_run:
            folder = next(there for there in (folder, *folder.parents) if there.exists())
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{key}: cannot make the folder {folder}: {error.strerror}; name another") from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ConfigError(f"{key}: no permission to write into {folder}; name another folder")


def check_storage(key: str, address: str | None, is_dry_run: bool = False) -> None:
    """Write, read and delete a small file, which needs all permissions; ConfigError, with the key, if that fails.

    In a dry run nothing is written: only the list of what is there is asked for.
    """
    if address is None:
        return
    name = f".check-{secrets.token_hex(8)}"
    storage = open_storage(address)
    try:
        if is_dry_run:
            list(storage.list(name))
            return
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / name).write_bytes(name.encode())
            storage.upload(Path(folder) / name, name)
        storage.read(name)
        storage.delete(name)
    except (StorageError, OSError) as error:
        raise ConfigError(f"{key}: {error}") from error


def _check_dataset(config: PipelineConfig, batch: int) -> None:
    settings = config.dataset
    try:
        dataset = build_dataset(settings.format, **settings.options())
        if settings.format == "precomputed" and settings.images is not None:
            require_file(settings.names_file, "id_mapping")
            require_image_folder(settings.images, "images")
        for key in ("train_split", "eval_split"):
            split = getattr(settings, key)
            if split not in dataset.splits:
                raise ConfigError(f"dataset.{key}: there is no split {split!r}; there are {', '.join(dataset.splits)}")
        captions = (caption for record in dataset.records(settings.train_split) for caption in record.captions)
        found = sum(1 for _ in islice(captions, batch))
        if next(iter(dataset.records(settings.eval_split)), None) is None:
            raise ConfigError(f"dataset.eval_split: the split {settings.eval_split!r} is empty; name another")
    except DatasetError as error:
        raise ConfigError(f"dataset: {error}") from error
    if not found:
        raise ConfigError(f"dataset.train_split: the split {settings.train_split!r} has no captions; name another")
    if found < batch:
        raise ConfigError(
            f"training.batch_size: {batch} is more than the {found} captions of the split {settings.train_split!r}; "
            f"lower it to {found} or less"
        )


def _check_protocols(config: PipelineConfig) -> None:
    """Refuse protocols that do not fit the split, which the evaluation would only find after the training."""
    settings, dataset = config.evaluation, config.dataset
    if settings.cxc is not None and "cxc" in settings.protocols:
        crisscrossed_files(settings.cxc, dataset.eval_split)
    if (GRAPH_PROTOCOLS | {"retrieval"}).issuperset(settings.protocols):  # of any split
        return
    from pipelines.evaluation.protocols.rankings import require_published

    reader = build_dataset(dataset.format, **dataset.options())
    captions = [len(record.captions) for record in reader.records(dataset.eval_split)]
    require_published(settings.protocols, dataset.eval_split, captions)


def check_model(config: PipelineConfig) -> None:
    """Raise ConfigError if files that the model's encoders begin with are not there."""
    missing = config.model.missing_file()
    if missing is not None:
        raise ConfigError(missing)


def _check_ray(config: PipelineConfig) -> None:
    address = cluster_address(config.ray.address)
    if address is None:
        _check_room(config)
        return
    key = "ray.address" if config.ray.address else "environment variable RAY_ADDRESS"
    if address in ("auto", "local"):
        return
    scheme, host, port = _parts(key, address)
    if scheme not in ("", "ray") or port is None:
        raise ConfigError(
            f"{key}: {address!r} is not the address of a Ray head; write HOST:PORT, by default port 6379 "
            "(the http address of the dashboard belongs into RAY_API_SERVER_ADDRESS)"
        )
    secret = SecretAddress(config.tracking_uri).reveal()
    if secret != config.tracking_uri and secret != os.environ.get(ADDRESS_VARIABLE):
        raise ConfigError(
            f"tracking.uri: the password in {config.tracking_uri} is not sent to the machines of a cluster: set "
            f"{ADDRESS_VARIABLE} to the complete address on all of them before `ray start`, and here; or leave the "
            "password out and set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD there"
        )
    if not _answers(host, port):
        raise ConfigError(
            f"{key}: no Ray head answers at {address}; start one with `ray start --head`, correct the address, or "
            "leave it out to run on this machine"
        )


def _check_room(config: PipelineConfig) -> None:
    """Refuse more actors or workers than this machine has room for: Ray would wait for ever."""
    there = {"cpus": local_cpus(), "gpus": len(list(Path("/dev").glob("nvidia[0-9]*")))}
    for section, what, count in (
        ("features", "actor", config.features.actors),
        *([("parsing", "actor", config.parsing.actors)] if config.reads_graphs else []),
        ("training", "worker", config.training.fewest_workers),
    ):
        for kind, available in there.items():
            each = getattr(getattr(config, section), f"{kind}_per_{what}", 0)
            if count * each > available:
                raise ConfigError(
                    f"{section}.{what}s: {count} with {section}.{kind}_per_{what} {each:g} need {count * each:g} "
                    f"{kind.upper()[:-1]}s, this machine has {available}; lower one of the two, or name a cluster "
                    "(ray.address)"
                )


def check_tracking(uri: str, is_dry_run: bool = False) -> None:
    """Check that MLflow's address is one and answers; ConfigError if not. Its own client checks the credentials."""
    scheme = uri.partition(":")[0].lower()
    if scheme == "sqlite":
        check_writable("tracking.uri", Path(uri.removeprefix("sqlite:///")).parent, is_dry_run)
    elif scheme in ("http", "https"):
        _check_server(uri)
    elif scheme.partition("+")[0] in DATABASE_PORTS:
        _, host, port = _parts("tracking.uri", uri)
        if not _answers(host, port or DATABASE_PORTS[scheme.partition("+")[0]]):
            raise ConfigError(f"tracking.uri: no database answers at {host}; start it or correct the address")
    else:
        raise ConfigError(
            f"tracking.uri: {uri!r} is not an address MLflow takes here; write http://HOST:PORT of a server or "
            "sqlite:////PATH/mlflow.db (MLflow 3 has given up plain folders)"
        )


def _check_server(uri: str) -> None:
    remedy = "start it, correct the address, or leave tracking.uri out for a database in work_dir"
    try:
        with urllib.request.urlopen(f"{SecretAddress(uri).without_user.rstrip('/')}/health", timeout=_SECONDS):
            return
    except urllib.error.HTTPError as error:
        if error.code in (401, 403):  # it is there; MLflow's own client checks the credentials
            return
        raise ConfigError(
            f"tracking.uri: {uri} answers, but not as an MLflow server (HTTP {error.code}); {remedy}"
        ) from error
    except (OSError, ValueError, http.client.InvalidURL) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise ConfigError(f"tracking.uri: no MLflow server answers at {uri} ({reason}); {remedy}") from error


def _parts(key: str, address: str) -> tuple[str, str, int | None]:
    try:
        parts = urlsplit(address if "://" in address else f"//{address}")
        return parts.scheme, parts.hostname or "", parts.port
    except ValueError as error:
        raise ConfigError(f"{key}: {address!r} is not an address: {error}") from error


def _answers(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=_SECONDS):
            return True
    except (OSError, ValueError):  # ValueError: a name that no machine can have
        return False
