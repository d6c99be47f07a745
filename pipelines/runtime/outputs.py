"""The record of the folders that a run uses, in `<work_dir>/pipelines/<fingerprint>/` here and on the storage.

A run is a pipeline, a comparison or the like, or a retraining with all pipelines and comparisons below it. What a later
run reuses is in the records of both: retention removes a folder with the last run that uses it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from pathlib import Path

from pydantic import BaseModel

from preprocessing.reading import damage_as, parse_json
from preprocessing.storage.address import require_inner_name
from preprocessing.storage.atomic import write_json_atomic
from preprocessing.storage.base import StorageError
from preprocessing.storage.mirror import Mirror
from vse_core.digests import sealed, unsealed

OUTPUTS = "outputs.json"
_REMEDY = "remove its folder: what that run has made is then kept"
_run: ContextVar[Path | None] = ContextVar("run", default=None)


class RunOutputs(BaseModel):
    """The registered model that a run is for, when it last used another folder, and the folders, below work_dir."""

    model: str = ""
    at: datetime
    folders: list[str]
    # Its removal has begun, and what is left of it is of no use.
    is_going: bool = False


@contextmanager
def recording(folder: Path) -> Iterator[None]:
    """Record in a run's folder what is used within the block, unless that is a part of another run."""
    token = _run.set(_run.get() or folder)
    try:
        yield
    finally:
        _run.reset(token)


def record_outputs(mirror: Mirror, *folders: Path, model: str = "") -> None:
    """Add folders to the record of the run that this is a part of, if any, before they are made or used."""
    run = _run.get()
    if run is None:
        return
    known = read_outputs(mirror, run / OUTPUTS)
    names = {folder.relative_to(mirror.root).as_posix() for folder in (run, *folders)}
    if known is None or known.is_going or not names <= set(known.folders):
        before = [] if known is None else known.folders
        model = model if known is None else known.model or model
        write_outputs(mirror, run, RunOutputs(model=model, at=datetime.now(UTC), folders=sorted(names.union(before))))


def write_outputs(mirror: Mirror, run: Path, outputs: RunOutputs) -> None:
    """Write the record of a run."""
    run.mkdir(parents=True, exist_ok=True)
    write_json_atomic(run / OUTPUTS, sealed(outputs.model_dump(mode="json")))
    mirror.push(run / OUTPUTS)


def read_outputs(mirror: Mirror, file: Path) -> RunOutputs | None:
    """Return the record of a run; None if there is none, StorageError if it cannot be read."""
    data = mirror.read(file)
    if data is None:
        return None
    with damage_as(StorageError, f"{file} is not the record of a run", _REMEDY):
        outputs = RunOutputs.model_validate(unsealed(parse_json(data), file, _REMEDY))
    for folder in outputs.folders:
        require_inner_name(folder, str(file), StorageError)
    return outputs
