"""Exact random access to the samples of a directory of shards."""

import contextlib
import io
from collections.abc import Iterator
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from preprocessing.reading import damage_as, parse_json, reason
from preprocessing.shards.caption_table import as_table, check_record, read_table
from preprocessing.shards.index import FIX, ShardError, check_digest, verify_shard
from preprocessing.shards.open_shards import OpenShards, Pin
from preprocessing.shards.split_index import FILES, SplitIndex, member_places
from preprocessing.storage.mirror import table_path

_NPY_PREFIX = 10
_FLOAT16 = np.dtype("<f2")


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

    Construction reads the sidecars unless it is given an index. Tars are mapped when first needed; with `pin` they are
    fetched then, or before that by :meth:`fetch`.

    Args:
        directory: holds shard-00000.tar, shard-00000.json, shard-00001.tar and so on without a gap.
        feature: name of the array to read, such as "grid"; or "jpg", and :meth:`file` gives the image files.
        max_open_shards: how many tars are mapped at once; each takes one file descriptor.
        verify: compare each sample with its checksum, if there is one, when it is first read.
        pin: keeps a tar on this machine for as long as its block lasts; None if all are local.
        index: of the directory and the feature; by default :meth:`SplitIndex.read`, which raises ShardError.

    Attributes:
        num_captions: of all images.
        is_image_files: :meth:`file` gives image files, and there are no features.
        caption_starts: flat number of each image's first caption, then the number of all captions, int64 (images + 1,).
        is_streamed: tars are fetched on demand.
    """

    def __init__(
        self,
        directory: Path,
        feature: str,
        max_open_shards: int = 256,
        verify: bool = False,
        pin: Pin | None = None,
        index: SplitIndex | None = None,
    ) -> None:
        self.directory = Path(directory)
        self.feature = feature
        self.is_image_files = feature in FILES
        self.is_streamed = pin is not None
        self.index = SplitIndex.read(self.directory, feature, are_here=pin is None) if index is None else index
        self.caption_starts = self.index.caption_starts
        self.num_captions = int(self.caption_starts[-1])
        self._pin: Pin = pin or (lambda _: contextlib.nullcontext())
        self._unchecked = np.full(len(self), verify and len(self.index.checksums) == len(self))
        self._open = OpenShards(self.index.tars, max_open_shards, self._pin)
        self._last_records: tuple[int, list[dict[str, Any]]] = (-1, [])

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self.caption_starts) - 1

    @property
    def caption_counts(self) -> npt.NDArray[np.int64]:
        """Return the number of captions of each image, int64 (images,)."""
        return np.diff(self.caption_starts)

    @cached_property
    def feature_dim(self) -> int:
        """Return the width F of the features; raise ShardError if there is no sample to tell it from."""
        if len(self) == 0:
            raise ShardError(f"the shards in {self.directory} hold no sample: all images were skipped")
        return int(self._array(0).shape[1])

    @property
    def shard_captions(self) -> list[int]:
        """Return the number of captions in each shard."""
        counts: list[int] = np.diff(self.caption_starts[self.index.first_images]).tolist()
        return counts

    def fetch(self, images: npt.NDArray[np.int64]) -> None:
        """Fetch the shards of these images in the background; returns at once."""
        self._open.fetch(np.unique(np.searchsorted(self.index.first_images, images, side="right") - 1).tolist())

    def features(self, image: int) -> npt.NDArray[np.float16]:
        """Return the features of one image, shape (N, F), as a read-only view; raise ShardError if damaged."""
        array_NF = self._array(image)
        if array_NF.shape[1] != self.feature_dim:
            raise ShardError(f"{self.where(image)}: {array_NF.shape[1]} wide, not {self.feature_dim}; {FIX}")
        return array_NF

    def meta(self, image: int) -> dict[str, Any]:
        """Return the record of one image: image_id, image (URI), split, captions (a list of {caption_id, text})."""
        shard, row = self._place(image)
        last, records = self._last_records
        if last != shard:
            records = self._table(shard).to_pylist()
            self._last_records = shard, records
        return records[row]

    def metas(self) -> Iterator[dict[str, Any]]:
        """Yield the records of all images; raises as :meth:`meta`."""
        return map(self.meta, range(len(self)))

    def texts(self) -> Iterator[str]:
        """Yield the captions of all images, in order; raises as :meth:`meta`."""
        for shard in range(len(self.index.tars)):
            yield from self._table(shard)["captions"].combine_chunks().flatten().field("text").to_pylist()

    def _table(self, shard: int) -> pa.Table:
        """Return the captions of a shard, from its tar if it was written before there were tables."""
        path = self.index.tars[shard].path
        with self._pin(table_path(path)):
            if table_path(path).is_file():
                table = read_table(path)
            else:
                with self._pin(path):
                    table = as_table(record for _, record in read_records(path))
        first, end = self.index.first_images[shard : shard + 2]
        counts = pc.list_value_length(table["captions"]).to_pylist()
        if counts != np.diff(self.caption_starts[first : end + 1]).tolist():
            raise ShardError(f"the captions of shard {path} are not those that its sidecar counts; {FIX}")
        return table

    def images_of(self, captions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the image of each caption, for an array of flat caption numbers that exist."""
        return np.searchsorted(self.caption_starts, captions, side="right") - 1

    def _array(self, image: int) -> npt.NDArray[np.float16]:
        data = self.file(image)
        end = _NPY_PREFIX + int.from_bytes(data[8:_NPY_PREFIX], "little")
        try:
            rows, width = _npy_shape(bytes(data[:end]))
            if rows < 1 or width < 1 or end + rows * width * _FLOAT16.itemsize != len(data):
                raise ValueError(f"an array of shape ({rows}, {width}) does not fit {len(data) - end} bytes")
        except ValueError as error:
            raise ShardError(f"{self.where(image)}: {self.feature}.npy is damaged ({error}); {FIX}") from error
        return np.frombuffer(data, dtype=_FLOAT16, offset=end).reshape(rows, width)

    def file(self, image: int) -> memoryview:
        """Return one image's file, or the .npy file of its features, as it is stored; nothing is copied."""
        shard, _ = self._place(image)
        offset, size = self.index.places[:, image].tolist()
        data = memoryview(self._open[shard])[offset : offset + size]
        if self._unchecked[image]:
            if xxhash.xxh3_64_intdigest(data) != self.index.checksums[image]:
                raise ShardError(f"{self.where(image)}: {self.feature} has changed since it was written; {FIX}")
            self._unchecked[image] = False
        return data

    def _place(self, image: int) -> tuple[int, int]:
        """Return the shard of an image and its position in it."""
        if not 0 <= image < len(self):
            raise IndexError(f"there are {len(self)} images, got {image}")
        shard = int(np.searchsorted(self.index.first_images, image, side="right")) - 1
        return shard, image - int(self.index.first_images[shard])

    def where(self, image: int) -> str:
        """Return the shard of an image and its position in it, for messages."""
        shard, row = self._place(image)
        return f"shard {self.index.tars[shard].path}, sample {row}"


def read_records(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the records of one shard with their keys, in order; raise ShardError if the shard is damaged."""
    index = verify_shard(path, deep=False)
    places = member_places(path, index, "json").T.tolist()
    check_digest(path, index.sha256)
    with path.open("rb") as file:
        for key, (offset, size) in zip(index.keys, places, strict=True):
            file.seek(offset)
            with damage_as(ShardError, f"shard {path}, sample {key}: json is damaged", FIX):
                record = parse_json(file.read(size))
                check_record(record)
            yield key, record


def verify_table(path: Path) -> None:
    """Compare the table of a shard's captions with the records in the tar; raise ShardError if they differ."""
    if table_path(path).is_file() and read_table(path) != as_table(record for _, record in read_records(path)):
        raise ShardError(f"the captions {table_path(path)} are not those in the tar; {FIX}")
