"""Checks shared by the readers: paths, splits, text and JSON files, each failing with one clear DatasetError."""

import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from preprocessing.datasets.record import DatasetError
from preprocessing.reading import damage_as, parse_json
from preprocessing.storage.address import is_s3, join, require_inner_name
from preprocessing.storage.opening import open_storage


def _absolute(path: str | Path, what: str) -> Path:
    with damage_as(DatasetError, f"{what}: {str(path)[:200]} cannot be used", "correct the path"):
        absolute = Path(path).expanduser().absolute()
        absolute.is_dir()  # names that no file can have are errors
    return absolute


def require_file(path: str | Path, what: str) -> Path:
    """Return the absolute path of an existing file; the error names `what` it should have been."""
    absolute = _absolute(path, what)
    if absolute.is_dir():
        raise DatasetError(f"{what}: {absolute} is a folder, a file is needed; name the file itself")
    if not absolute.is_file():
        raise DatasetError(f"{what}: there is no file {absolute}; correct the path")
    return absolute


def require_folder(path: str | Path, what: str) -> Path:
    """Return the absolute path of an existing folder; raises as :func:`require_file`."""
    absolute = _absolute(path, what)
    if not absolute.is_dir():
        raise DatasetError(f"{what}: there is no folder {absolute}; correct the path")
    return absolute


def require_image_folder(path: str | Path, what: str) -> str:
    """Return the address of a folder of images: an absolute path, or ``s3://bucket/folder`` that is not empty."""
    if not is_s3(str(path)):
        return str(require_folder(path, what))
    try:
        storage = open_storage(str(path))
    except ValueError as error:
        raise DatasetError(f"{what}: {error}") from error
    if next(storage.list(), None) is None:
        raise DatasetError(f"{what}: nothing lies under {path}; correct the address")
    return storage.address


def image_path(folder: str, name: object, where: str) -> str:
    """Return the address of image `name`, read at `where`, in `folder`: it may be missing, but not lead out of it."""
    return join(folder, os.path.normpath(require_inner_name(name, f"{where}: image", DatasetError)))


def numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of a utf-8 text file (without a byte order mark), counted from 1, without their ends."""
    with path.open("rb") as file:
        for number, raw in enumerate(file, start=1):
            try:
                yield number, raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
            except UnicodeDecodeError as error:
                raise DatasetError(f"{path}:{number}: not utf-8 ({error.reason}); convert the file to utf-8") from error


def read_json_object(path: Path) -> dict[str, Any]:
    """Return the object at the top of a JSON file."""
    with damage_as(DatasetError, f"{path}: not a JSON file", "download it again"):
        # A caption with half a character is skipped by itself, when shards are made.
        content = parse_json(path.read_bytes(), any_text=True)
    if not isinstance(content, dict):
        raise DatasetError(f"{path}: the top level is a {type(content).__name__}, an object is needed")
    return content


def require_field(entry: object, field: str, kind: type, where: str) -> Any:
    """Return `entry[field]`, checked to be of its `kind`; `where` is the place in the file."""
    if not isinstance(entry, dict):
        raise DatasetError(f"{where}: {type(entry).__name__} where an object is needed")
    if field not in entry:
        raise DatasetError(f"{where}: the field {field!r} is missing")
    value = entry[field]
    if not isinstance(value, kind) or isinstance(value, bool):
        raise DatasetError(f"{where}: the field {field!r} holds {value!r:.80}, which is a {type(value).__name__}")
    return value


def entries(content: dict[str, Any], field: str, file: Path) -> Iterator[tuple[str, Any]]:
    """Yield the entries of a list in a JSON file, each with its place for messages."""
    for position, entry in enumerate(require_field(content, field, list, str(file))):
        yield f"{file}: {field}[{position}]", entry


def require_new(places: dict[str, str], what: str, identifier: object, where: str) -> None:
    """Enter an id with its position in a file; raise DatasetError with both positions if it is there already."""
    first = places.setdefault(str(identifier), where)
    if first is not where:
        raise DatasetError(f"{where}: {what} {identifier} is there already, in {first}; remove one of the two")


def load_array(file: Path, needed: str, kind: str, dimensions: Collection[int]) -> npt.NDArray[Any]:
    """Map a .npy file of floats (`kind` "f") or texts ("U"), never running code of it; errors say what is `needed`."""
    remedy = f"{needed} needed: copy it again, or store it without objects"
    with damage_as(DatasetError, f"{file}: not a readable npy file", remedy):
        array = np.load(file, mmap_mode="r", allow_pickle=False)
    if not isinstance(array, np.ndarray):
        raise DatasetError(f"{file}: not one array; {needed} needed, stored by numpy.save")
    if array.dtype.kind != kind or array.ndim not in dimensions:
        raise DatasetError(f"{file}: {array.dtype} of shape {array.shape}; {needed} needed")
    return array
