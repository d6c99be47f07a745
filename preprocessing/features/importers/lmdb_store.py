"""LMDB stores with one entry an image: npz files, or ViLBERT's dictionaries of base64 arrays."""

import base64
import binascii
import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from preprocessing.features.extractor import ExtractorError
from preprocessing.features.images import ImageError
from preprocessing.features.importers.folder import read_npz
from preprocessing.features.importers.source import Array, PublishedRegions, checked_regions
from preprocessing.features.plain_pickle import PlainPickleError, read_plain

# ViLBERT's stores list their keys under this one.
_KEYS = b"keys"


class LmdbStore:
    """Entries by image id. A value is an npz file with MILVLG's names, or a pickled dictionary of plain values.

    ViLBERT's dictionaries hold num_boxes, boxes and features (base64 of float32) and perhaps image_w and image_h. Of
    such a pickle only numbers, text, bytes and lists and dictionaries of them are built: one that names any class, or
    any function but the one with which Python 3 writes bytes in protocol 2, is refused.
    """

    def __init__(self, path: Path) -> None:
        try:
            import lmdb
        except ImportError as error:
            raise ExtractorError("LMDB stores are read by lmdb: pip install 'vse-pipeline[features]'") from error
        self._path, self._error = path, lmdb.Error
        if path.is_dir() and not (path / "data.mdb").is_file():
            raise ExtractorError(f"{path} holds no data.mdb; name the folder of the LMDB store")
        try:
            # Unlocked, for the folder may be read-only: nobody writes a published store.
            self._store = lmdb.open(str(path), subdir=path.is_dir(), readonly=True, lock=False, readahead=False)
        except lmdb.Error as error:
            raise ExtractorError(f"{path} cannot be read as an LMDB store: {error}") from error
        file = path / "data.mdb" if path.is_dir() else path
        needed = (self._store.info()["last_pgno"] + 1) * self._store.stat()["psize"]
        if file.stat().st_size < needed:  # reading beyond the end of the mapped file would kill the process
            raise ExtractorError(
                f"{file} was cut short: {file.stat().st_size:,} of {needed:,} bytes; download it again"
            )

    def places(self) -> Iterator[tuple[str, bytes]]:
        """Keys, in their order."""
        try:
            with self._store.begin() as transaction:
                for key in transaction.cursor().iternext(keys=True, values=False):
                    if key != _KEYS:
                        yield key.decode("utf-8", "replace"), key
        except self._error as error:
            raise ExtractorError(f"{self._path} is damaged: {error}; download it again") from error

    def read(self, image_id: str, place: bytes) -> PublishedRegions:
        """The entry of a key."""
        try:
            with self._store.begin() as transaction:
                value = transaction.get(place)
        except self._error as error:
            raise ImageError(f"damaged entry: {error}") from error
        if value is None:
            raise ImageError("the entry is gone")
        if value.startswith(b"PK"):
            return read_npz(io.BytesIO(value), image_id)
        try:
            return _from_dictionary(read_plain(value), image_id)
        except PlainPickleError as error:
            raise ImageError(f"neither an npz file nor a pickle of plain values: {error}") from error


def _from_dictionary(entry: Any, image_id: str) -> PublishedRegions:
    if not isinstance(entry, Mapping):
        raise ImageError(f"a {type(entry).__name__} where a dictionary is needed")
    missing = {"num_boxes", "boxes", "features"} - set(entry)
    if missing:
        raise ImageError(f"a dictionary without {', '.join(sorted(missing))}")
    count = entry["num_boxes"]
    if not isinstance(count, int) or count < 1:
        raise ImageError(f"num_boxes is {count!r:.40}, a positive whole number is needed")
    features, boxes = _decoded(entry["features"], "features"), _decoded(entry["boxes"], "boxes")
    if len(features) % count or len(boxes) != 4 * count:
        raise ImageError(f"{len(features)} numbers of features and {len(boxes)} of boxes for {count} boxes")
    width, height = entry.get("image_w"), entry.get("image_h")
    size = (width, height) if isinstance(width, int) and isinstance(height, int) else None
    return checked_regions(image_id, features.reshape(count, -1), boxes.reshape(count, 4), size)


def _decoded(value: Any, name: str) -> Array:
    if not isinstance(value, bytes | str):
        raise ImageError(f"{name} is a {type(value).__name__}, base64 is needed")
    try:
        numbers: Array = np.frombuffer(base64.b64decode(value, validate=True), "<f4")
    except (binascii.Error, ValueError) as error:
        raise ImageError(f"{name}: no base64 of float32 ({error}); damaged or cut short") from error
    return numbers
