"""Hashes of a split's images and captions, small enough to keep, and the difference between two states of a split."""

import hashlib
import io
import json
from array import array
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from preprocessing.datasets.record import Dataset
from preprocessing.extraction.file_hashes import FileHashes
from preprocessing.extraction.identity import entries
from preprocessing.storage.atomic import write_bytes_atomic

Numbers = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class DatasetDiff:
    """Changes of a split. An image whose file has changed counts as one new and one gone, with its captions."""

    new_images: int
    gone_images: int
    new_captions: int
    gone_captions: int

    def __str__(self) -> str:
        """Return the changes in words: "+2,000 images, +10,000 captions"."""
        names = ("+{:,} images", "-{:,} images", "+{:,} captions", "-{:,} captions")
        parts = [name.format(count) for name, count in zip(names, astuple(self), strict=True) if count]
        return ", ".join(parts) or "as before"


@dataclass(frozen=True)
class DataManifest:
    """The images (id, file, stamp) and captions (ids, text) of a split as sorted 64-bit hashes: 8 bytes each."""

    images: Numbers
    captions: Numbers

    @classmethod
    def of(cls, dataset: Dataset, split: str, hashes: FileHashes | None = None) -> Self:
        """Hash the records of a split; by default no hash of a file is kept."""
        images, captions = array("Q"), array("Q")
        for image_id, uri, stamp, texts in entries(dataset, split, hashes or FileHashes()):
            images.append(_number([image_id, uri, stamp]))
            captions.extend(_number([image_id, *text]) for text in texts)
        return cls(*(np.unique(np.frombuffer(numbers, np.uint64)) for numbers in (images, captions)))

    def since(self, before: Self | None) -> DatasetDiff:
        """Return the changes since then; all is new where there was nothing before."""
        then = before or DataManifest(np.empty(0, np.uint64), np.empty(0, np.uint64))
        pairs = [(self.images, then.images), (self.captions, then.captions)]
        return DatasetDiff(
            *(len(np.setdiff1d(a, b, assume_unique=True)) for now, old in pairs for a, b in ((now, old), (old, now)))
        )

    def save(self, path: Path) -> None:
        """Write it as an .npz file."""
        data = io.BytesIO()
        np.savez(data, images=self.images, captions=self.captions)
        write_bytes_atomic(path, data.getvalue())

    @classmethod
    def load(cls, data: bytes) -> Self:
        """Read the contents of a file that `save` has written."""
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            return cls(arrays["images"], arrays["captions"])


def _number(content: list[Any]) -> int:
    line = json.dumps(content, separators=(",", ":")).encode()
    return int.from_bytes(hashlib.blake2b(line, digest_size=8).digest(), "little")
