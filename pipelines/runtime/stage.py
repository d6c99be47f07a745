"""The contract of the stages: fingerprint, output directory, plan before the work and report afterwards."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from pipelines.runtime.commands import command
from pipelines.runtime.errors import is_disk_error
from pipelines.schema.weights import OPEN_CLIP, READ
from preprocessing.reading import damage_as, parse_json
from preprocessing.storage.atomic import write_json_atomic
from preprocessing.storage.base import Entry
from preprocessing.storage.mirror import NO_MIRROR, Mirror
from preprocessing.storage.redaction import RedactedError
from vse_core.digests import compare_digests, file_digest, json_digest, sealed, unsealed
from vse_core.open_clip_format import is_open_clip

MANIFEST = "manifest.json"
_AGAIN = "delete it and run the stage again"
# Keys of the manifests of earlier versions.
_RENAMED = {"set_aside": "skipped", "shards_taken_over": "reused_shards"}


# The identity of what is made of JSON: inputs, settings, and the version of the code.
fingerprint = json_digest


class StageError(RedactedError, RuntimeError):
    """A stage cannot do its work; the message, printed without a traceback, says why and what to change."""


class NoRoomError(StageError):
    """A disk is full, or may not be written to: the same command works once there is room, or permission."""


@contextmanager
def disk_errors(work: str, folder: Path) -> Iterator[None]:
    """Turn an error of a disk that is full, or that we may not write to, into a NoRoomError that names the folder."""
    try:
        yield
    except Exception as error:
        # The error of a copied folder has what happened to each file.
        reason = error.args[0][0][2] if isinstance(error, shutil.Error) else error
        if not (is_disk_error(error) or isinstance(error, shutil.Error)):
            raise
        raise NoRoomError(
            f"{work}: cannot write to {folder} ({reason}): make room there, or fix what the message names, and run the "
            "same command again, which resumes"
        ) from error


def content_digest(path: Path) -> str:
    """Return the sha256 (64 hex digits) of a file, or of a folder's files that are read as weights; read once."""
    files = [path] if path.is_file() else sorted(file for kind in _read(path) for file in path.glob(kind))
    return fingerprint([[file.name, file_digest(file)] for file in files])


def _read(folder: Path) -> Iterable[str]:
    return {*READ, *OPEN_CLIP["weights"]} if is_open_clip(folder) else READ


@contextmanager
def empty_folder(directory: Path) -> Iterator[Path]:
    """Yield an empty folder in a directory, to be filled and then emptied by `move_up`: so what is made is known."""
    made = directory / ".making"
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir()
    yield made
    shutil.rmtree(made)


def move_up(made: Path) -> list[str]:
    """Move the files of an `empty_folder` into the directory around it; return their names."""
    names = sorted(file.name for file in made.iterdir())
    for name in names:
        (made / name).replace(made.parent / name)
    return names


@dataclass(frozen=True)
class StageDir:
    """The output directory of one stage at one fingerprint: `<root>/<stage>/<first 16 digits of the fingerprint>/`.

    The manifest is written last, by rename: a directory with a manifest is complete, one without may hold parts. If
    outputs are kept on a storage as well, it is complete when its manifest is there, whatever this machine has of it.
    The manifest names the outputs with their digests, but for the tars, which have theirs in their sidecars.
    """

    root: Path
    stage: str
    fingerprint: str
    mirror: Mirror = NO_MIRROR

    @property
    def path(self) -> Path:
        """The directory itself; nothing here creates it but `create` and `complete`."""
        return self.root / self.stage / self.fingerprint[:16]

    def create(self) -> Path:
        """Make the directory, with its parents, and return it."""
        self.path.mkdir(parents=True, exist_ok=True)
        return self.path

    def is_complete(self) -> bool:
        """Return whether there is a manifest of this fingerprint; one on the storage is copied to this machine.

        In a dry run it is read where it is. One of format 0, without digests, is to be made again from what is there.
        """
        manifest = self.path / MANIFEST
        if not self.mirror.has(manifest):
            return False
        self.mirror.pull_file(manifest)
        found = self.read_manifest()
        return found["fingerprint"] == self.fingerprint and "digests" in found

    def read_manifest(self) -> dict[str, Any]:
        """Return the manifest as it was given to `complete`, with the keys `stage`, `fingerprint` and `digests` added.

        Raises StageError if it is absent or not a manifest, DigestError if it was changed or a later version wrote it.
        """
        path = self.path / MANIFEST
        return _manifest(path.read_bytes() if path.is_file() else self.mirror.read(path), path)

    def pull(self, wanted: Callable[[str], bool] = lambda _: True) -> Mapping[str, Entry]:
        """Copy the files that only the storage has and whose relative names are `wanted`; return all that it has."""
        return self.mirror.pull(self.path, wanted)

    def complete(
        self, manifest: Mapping[str, Any], outputs: Iterable[str], stored: Mapping[str, Entry] | None = None
    ) -> None:
        """Declare the stage complete: write the manifest aside, then rename it into place.

        `outputs` names the files that it has made, and folders that hold nothing else; nothing else in the directory is
        copied or listed. They are copied to the storage; of files that were copied as they were made, only those are
        that it lacks or has in another size, by what it has (`stored`). Raises StorageError if that fails; then the
        stage is not complete.
        """
        self.create()
        files = {name: self.path / name for output in outputs for name in self._files(output)}
        if stored is None:
            self.mirror.push(*files.values())
        else:
            self.mirror.push_missing(self.path, files, stored)
        added = {
            "stage": self.stage,
            "fingerprint": self.fingerprint,
            "digests": {name: file_digest(file) for name, file in files.items() if file.suffix != ".tar"},
        }
        record = sealed({**manifest, **added})
        # There first: one that is here alone would hide that of another machine, which then does the work again.
        self.mirror.write(self.path / MANIFEST, record)
        write_json_atomic(self.path / MANIFEST, record)

    def _files(self, output: str) -> list[str]:
        path = self.path / output
        files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
        return [file.relative_to(self.path).as_posix() for file in files]


def manifest_in(directory: Path) -> dict[str, Any]:
    """Return the manifest of a complete stage on this machine; raises as `read_manifest`, or if it lacks a key."""
    path = directory / MANIFEST
    return _manifest(path.read_bytes() if path.is_file() else None, path)


def _manifest(text: bytes | None, path: Path) -> dict[str, Any]:
    if text is None:
        raise StageError(f"no {path}: the stage has not finished; run it again")
    with damage_as(StageError, f"{path} is not a stage manifest", _AGAIN):
        manifest = _Part(unsealed(parse_json(text), path, _AGAIN), path)
        if not isinstance(manifest.get("counts", {}), dict):
            raise ValueError("`counts` must be a mapping")
        return manifest


class _Part(dict[str, Any]):
    def __init__(self, content: Mapping[str, Any], path: Path) -> None:
        items = ((_RENAMED.get(key, key), value) for key, value in content.items())
        super().__init__({key: _Part(value, path) if isinstance(value, dict) else value for key, value in items})
        self._path = path

    def __missing__(self, key: str) -> NoReturn:
        raise StageError(f"{self._path} has no {key!r}: {_AGAIN}")

    def __reduce__(self) -> tuple[type[dict[str, Any]], tuple[dict[str, Any]]]:
        return dict, (dict(self),)


def check_outputs(*directories: Path) -> None:
    """Compare outputs in stage directories, but for tars, with the manifests there; DigestError if one was changed."""
    for directory in directories:
        compare_digests(directory, manifest_in(directory)["digests"], directory / MANIFEST)


def check_output(directory: Path, name: str) -> None:
    """Compare one file of a complete stage with the manifest, if that lists it; raises as `check_outputs`."""
    digests = manifest_in(directory)["digests"]
    compare_digests(directory, {name: digests[name]} if name in digests else {}, directory / MANIFEST)


@dataclass(frozen=True)
class ShardSet:
    """The shards of one split, made or still to be made."""

    directory: StageDir
    paths: tuple[Path, ...]
    images: int
    captions: int
    fingerprint: str


@dataclass(frozen=True)
class StagePlan:
    """The work that a stage would do now.

    `fingerprint` is the identity of the output: inputs, settings that change it, version of the code's format. Of
    `total` units, at least 1, `done` are there: all if the stage is complete. `unit` is their name in the plural
    ("shards"), `size` the amount of work for the plan's table. `outputs` are the parts of the output that later stages
    use, such as {"train": <directory>}; `shards` those of each split.
    """

    name: str
    fingerprint: str
    directory: Path
    total: int
    done: int
    unit: str
    size: str
    outputs: Mapping[str, Path] = field(default_factory=dict)
    shards: Mapping[str, ShardSet] = field(default_factory=dict)

    @classmethod
    def of_one(cls, stage: StageDir, unit: str, size: str, outputs: Mapping[str, Path]) -> StagePlan:
        """Return the plan of a stage that makes a single thing, which is done or to do."""
        return cls(stage.stage, stage.fingerprint, stage.path, 1, int(stage.is_complete()), unit, size, outputs)

    @property
    def folders(self) -> list[Path]:
        """Return the folders that the stage writes to: one, or one a split."""
        return [each.directory.path for each in self.shards.values()] or [self.directory]

    @property
    def complete(self) -> bool:
        """Return whether nothing is left to do."""
        return self.done >= self.total

    @property
    def status(self) -> str:
        """Progress: up to date, to do, or partly done (3 of 14 shards)."""
        if self.complete:
            return "up to date"
        return f"partly done ({self.done} of {self.total} {self.unit})" if self.done else "to do"

    def output(self, name: str) -> Path:
        """Return a part of the output; raises StageError if the stage has not finished."""
        self.require_complete()
        return self.outputs[name]

    def require_complete(self) -> None:
        """Raise StageError if the stage has not finished."""
        if not self.complete:
            raise StageError(
                f"the output of {self.name} is {self.status} under this configuration; run `{command(self.name)}` with "
                f"the same options first, or `{command('full')}`"
            )


# The plans of the stages of a pipeline, by name and in their order.
Plans = Mapping[str, StagePlan]


def used_folders(plans: Plans) -> list[Path]:
    """Return the folders that stages write to, for the record of a run that reads them."""
    return [folder for plan in plans.values() for folder in plan.folders]


@dataclass(frozen=True)
class StageReport:
    """The work that a stage has done, or that it was `up_to_date`: "6,998 images in 14 shards, 2 skipped"."""

    name: str
    directory: Path
    summary: str
    up_to_date: bool = False
    seconds: float = 0.0
