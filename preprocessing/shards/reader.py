"""Exact random access to the samples of a directory of shards."""

import hashlib
import io
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from preprocessing.reading import parse_json, reason
from preprocessing.shards.index import (
    FIX,
    MemberTable,
    ShardError,
    ShardIndex,
    check_digest,
    read_index,
    shard_path,
    verify_shard,
)
from preprocessing.shards.open_shards import OpenShards, Pin, TarFile

_SHARD = re.compile(r"shard-(\d{5,})\.(tar|json)")
_NPY_PREFIX = 10
_FLOAT16 = np.dtype("<f2")
# Members that are files; any other feature is an array, "<name>.npy".
_FILES = ("jpg",)


@lru_cache(maxsize=4096)
def _npy_shape(header: bytes) -> tuple[int, ...]:
    """Return the shape in a float16 .npy header, which all images with equally many rows share; raise ValueError."""
    stream = io.BytesIO(header)
    if np.lib.format.read_magic(stream) != (1, 0):
        raise ValueError("not a .npy file of version 1.0")
    try:
        shape, fortran_order, dtype = np.lib.format.read_array_header_1_0(stream)
    except Exception as error:  # it is parsed as Python
        raise ValueError(f"unreadable header ({reason(error)})") from error
    if dtype != _FLOAT16 or fortran_order:
        raise ValueError(f"expected float16 in C order, found {dtype}{' in Fortran order' if fortran_order else ''}")
    return shape


class ShardReader:
    """All samples of a directory of shards, by number, in the order of the shards and of the keys in them; thread-safe.

    Construction reads the sidecars, and raises ShardError where a shard is missing, incomplete, of another fingerprint
    or without the feature. Tars are mapped when first needed; with `pin` they are fetched then, or before that by
    :meth:`fetch`.

    Args:
        directory: holds shard-00000.tar, shard-00000.json, shard-00001.tar and so on without a gap.
        feature: name of the array to read, such as "grid"; or "jpg", and :meth:`file` gives the image files.
        max_open_shards: how many tars are mapped at once; each takes one file descriptor.
        verify: compare each tar with its sha256 when it is first mapped.
        pin: keeps a tar on this machine for as long as its block lasts; None where all are local.

    Attributes:
        caption_counts: captions of each image, int64, shape (images,).
        caption_starts: flat number of each image's first caption, then the number of all captions, int64 (images + 1,).
        is_streamed: tars are fetched on demand.
        skipped: what the extraction could not process: dicts with key, image_id, image, reason.
    """

    def __init__(
        self,
        directory: Path,
        feature: str,
        max_open_shards: int = 256,
        verify: bool = False,
        pin: Pin | None = None,
    ) -> None:
        self.directory = Path(directory)
        self.feature = feature
        self.is_streamed = pin is not None
        member = feature if feature in _FILES else f"{feature}.npy"
        tables = [_table(path, member, is_here=pin is None) for path in shard_paths(self.directory)]
        self.fingerprint = _common_fingerprint(self.directory, tables)
        self.skipped = [entry for table in tables for entry in table.skipped]
        self.caption_counts = np.concatenate([table.caption_counts for table in tables])
        self.caption_starts = np.concatenate([[0], np.cumsum(self.caption_counts)]).astype(np.int64)
        self._shard_of = np.repeat(np.arange(len(tables)), [len(table.caption_counts) for table in tables])
        self._features = np.concatenate([table.features for table in tables], axis=1)
        self._records = np.concatenate([table.records for table in tables], axis=1)
        self._grids = np.concatenate([table.grids for table in tables])
        self._tars = [table.tar for table in tables]
        self._open = OpenShards(self._tars, max_open_shards, verify, pin)

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self.caption_counts)

    @property
    def num_captions(self) -> int:
        """Return the number of captions of all images."""
        return int(self.caption_starts[-1])

    @property
    def is_image_files(self) -> bool:
        """Return whether :meth:`file` gives image files, where other readers give features."""
        return self.feature in _FILES

    @cached_property
    def feature_dim(self) -> int:
        """Return the width F of the features; raise ShardError where there is no sample to tell it from."""
        if len(self) == 0:
            raise ShardError(
                f"the shards in {self.directory} hold no sample: all {len(self.skipped)} images were skipped"
            )
        return int(self._array(0).shape[1])

    @property
    def shard_captions(self) -> list[int]:
        """Return the number of captions in each shard."""
        counts: list[int] = np.bincount(self._shard_of, self.caption_counts, len(self._tars)).astype(int).tolist()
        return counts

    def fetch(self, images: npt.NDArray[np.int64]) -> None:
        """Fetch the shards of these images in the background; returns at once."""
        self._open.fetch(np.unique(self._shard_of[images]).tolist())

    def features(self, image: int) -> npt.NDArray[np.float16]:
        """Return the features of one image, shape (N, F), as a read-only view; raise ShardError if damaged."""
        array_NF = self._array(image)
        if array_NF.shape[1] != self.feature_dim:
            raise ShardError(
                f"{self.where(image)}: features are {array_NF.shape[1]} wide, not {self.feature_dim}; {FIX}"
            )
        return array_NF

    def grid(self, image: int) -> tuple[int, int, int] | None:
        """Return rows and columns of the cells that an image's features are, and the number of features before them.

        None where they are no cells, or the shard was written before grids were recorded.
        """
        rows, columns, others = self._grids[image].tolist()
        return (rows, columns, others) if rows else None

    def file(self, image: int) -> memoryview:
        """Return one image's file as it is stored; nothing is copied."""
        return self._member(image, self._features)

    def meta(self, image: int) -> dict[str, Any]:
        """Return the record of one image: image_id, image (URI), split, captions (a list of {caption_id, text})."""
        data = self._member(image, self._records)
        try:
            record = _record(bytes(data))
        except ValueError as error:
            raise ShardError(f"{self.where(image)}: the record is damaged ({error}); {FIX}") from error
        if len(record["captions"]) != self.caption_counts[image]:
            raise ShardError(f"{self.where(image)}: the record has not as many captions as the sidecar says; {FIX}")
        return record

    def metas(self) -> Iterator[dict[str, Any]]:
        """Yield the records of all images, fetching streamed tars in advance; raises as :meth:`meta`."""
        fetched = -1
        for image in range(len(self)):
            shard = int(self._shard_of[image])
            if self.is_streamed and shard > fetched:
                fetched = shard
                self._open.fetch(range(shard + 1, min(shard + 3, len(self._tars))))
            yield self.meta(image)

    def images_of(self, captions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the image of each caption, for an array of flat caption numbers that exist."""
        return np.searchsorted(self.caption_starts, captions, side="right") - 1

    def _array(self, image: int) -> npt.NDArray[np.float16]:
        data = self._member(image, self._features)
        end = _NPY_PREFIX + int.from_bytes(data[8:_NPY_PREFIX], "little")
        try:
            rows, width = _npy_shape(bytes(data[:end]))
            if rows < 1 or width < 1 or end + rows * width * _FLOAT16.itemsize != len(data):
                raise ValueError(f"an array of shape ({rows}, {width}) does not fit {len(data) - end} bytes")
        except ValueError as error:
            raise ShardError(
                f"{self.where(image)}: {self.feature}.npy is damaged or not N x F ({error}); {FIX}"
            ) from error
        return np.frombuffer(data, dtype=_FLOAT16, offset=end).reshape(rows, width)

    def _member(self, image: int, places: npt.NDArray[np.int64]) -> memoryview:
        if not 0 <= image < len(self):
            raise IndexError(f"there are {len(self)} images, got {image}")
        offset, size = places[:, image].tolist()
        return memoryview(self._open[int(self._shard_of[image])])[offset : offset + size]

    def where(self, image: int) -> str:
        """Return the shard of an image and its position in it, for messages."""
        shard = int(self._shard_of[image])
        return f"shard {self._tars[shard].path}, sample {image - int(np.searchsorted(self._shard_of, shard))}"


def read_records(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the records of one shard with their keys, in order; raises as :func:`read_arrays`."""
    for key, (record,) in _read_members(path, ["json"], _record):
        yield key, record


def read_arrays(path: Path, names: Sequence[str]) -> Iterator[tuple[str, dict[str, npt.NDArray[Any]]]]:
    """Yield arrays of one shard by name ("region", "boxes"), with their keys, in order; raise ShardError if damaged."""

    def decode(data: bytes) -> npt.NDArray[Any]:
        array: npt.NDArray[Any] = np.load(io.BytesIO(data), allow_pickle=False)
        return array

    for key, arrays in _read_members(path, [f"{name}.npy" for name in names], decode):
        yield key, dict(zip(names, arrays, strict=True))


def _read_members(
    path: Path, members: Sequence[str], decode: Callable[[bytes], Any]
) -> Iterator[tuple[str, list[Any]]]:
    """Yield the decoded members of each sample of one shard, with its key, after comparing the tar with its sha256."""
    index = verify_shard(path, deep=False)
    places = [_places(path, index, member).T.tolist() for member in members]
    with path.open("rb") as file:
        check_digest(path, index.sha256, hashlib.file_digest(file, "sha256").hexdigest())
        for key, *of_sample in zip(index.keys, *places, strict=True):
            values = []
            for member, (offset, size) in zip(members, of_sample, strict=True):
                file.seek(offset)
                try:
                    values.append(decode(file.read(size)))
                except Exception as error:  # numpy parses headers as Python
                    raise ShardError(
                        f"shard {path}, sample {key}: {member} is damaged ({reason(error)}); {FIX}"
                    ) from error
            yield key, values


def _record(data: bytes) -> dict[str, Any]:
    """Return the record of an image; raise ValueError where it is none."""
    record: Any = parse_json(data)
    texts = [record.get(name) for name in ("image_id", "image", "split")] if isinstance(record, dict) else [None]
    captions = record.get("captions") if isinstance(record, dict) else None
    for caption in captions if isinstance(captions, list) else [None]:
        texts += [caption.get(name) for name in ("caption_id", "text")] if isinstance(caption, dict) else [None]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("it is not a record of an image with captions")
    return record  # type: ignore[no-any-return]


def shard_paths(directory: Path) -> list[Path]:
    """Return the paths of the tars by number, after checking that none is missing."""
    try:
        found = {int(match[1]) for entry in directory.iterdir() if (match := _SHARD.fullmatch(entry.name))}
    except OSError as error:
        raise ShardError(
            f"cannot read the shard directory {directory}: {error.strerror}; run the extraction first"
        ) from error
    if not found:
        raise ShardError(f"there are no shards (shard-00000.tar, ...) in {directory}: run the extraction first")
    missing = sorted(set(range(max(found) + 1)) - found)
    if missing:
        raise ShardError(f"shard {shard_path(directory, missing[0])} is missing ({len(missing)} in all); {FIX}")
    return [shard_path(directory, number) for number in sorted(found)]


@dataclass(frozen=True, slots=True)
class _Table:
    """The part of a sidecar that a reader keeps, as arrays, which take a fifth of the memory of Python's integers."""

    tar: TarFile
    fingerprint: str
    caption_counts: npt.NDArray[np.int64]
    features: npt.NDArray[np.int64]
    records: npt.NDArray[np.int64]
    grids: npt.NDArray[np.int32]
    skipped: list[dict[str, str]]


def _table(path: Path, member: str, is_here: bool) -> _Table:
    index = verify_shard(path, deep=False) if is_here else read_index(path)
    grids = index.grids.get(member.removesuffix(".npy")) or [(0, 0, 0)] * index.count
    return _Table(
        TarFile(path, index.bytes, index.sha256),
        index.fingerprint,
        np.array(index.caption_counts, dtype=np.int64),
        _places(path, index, member),
        _places(path, index, "json"),
        np.array(grids, dtype=np.int32).reshape(-1, 3),
        index.skipped,
    )


def _common_fingerprint(directory: Path, tables: list[_Table]) -> str:
    first = tables[0]
    for table in tables:
        if table.fingerprint != first.fingerprint:
            raise ShardError(
                f"shards in {directory} come from different runs: {first.tar.path.name} has fingerprint "
                f"{first.fingerprint}, {table.tar.path.name} has {table.fingerprint}; delete those of the old run and "
                "extract again"
            )
    return first.fingerprint


def _places(path: Path, index: ShardIndex, member: str) -> npt.NDArray[np.int64]:
    """Return offsets and sizes of one kind of member in a shard, shape (2, samples)."""
    if index.count and member not in index.members:
        raise ShardError(f"shard {path} holds {sorted(index.members)}, not {member!r}: name one of those as feature")
    table = index.members.get(member, MemberTable([], []))
    return np.array([table.offset, table.size], dtype=np.int64)
