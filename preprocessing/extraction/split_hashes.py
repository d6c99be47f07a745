"""Hashes of what a split consists of, small enough to keep, and the difference between two states of a split."""

from __future__ import annotations

import hashlib
import io
import json
from array import array
from collections.abc import Iterable
from dataclasses import astuple, dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from preprocessing.datasets.record import ArchivedDataset, Dataset
from preprocessing.extraction.identity import ImageStamps, entries, has_own_file, image_stamps
from preprocessing.storage.atomic import write_bytes_atomic

Numbers = npt.NDArray[np.uint64]


def _none() -> Numbers:
    return np.empty(0, np.uint64)


@dataclass(frozen=True)
class DatasetDiff:
    """Changes of a split. An image whose file has changed counts as one new and one gone; its captions are the same.

    A split in archives is counted by these alone: what is in them is known when they are read.
    """

    new_images: int = 0
    gone_images: int = 0
    new_captions: int = 0
    gone_captions: int = 0
    new_archives: int = 0
    gone_archives: int = 0

    def __str__(self) -> str:
        """Return the changes in words: "+2,000 images, +10,000 captions"."""
        kinds = ("images", "captions", "archives")
        signs = [f"{sign}{{:,}} {kind}" for kind in kinds for sign in "+-"]
        parts = [sign.format(count) for sign, count in zip(signs, astuple(self), strict=True) if count]
        return ", ".join(parts) or "as before"


@dataclass(frozen=True)
class DataManifest:
    """The images (id, file, stamp) and captions (ids, text) of a split as sorted 64-bit hashes: 8 bytes each.

    A split in archives has the stamps of these alone. `new_images`, which are not kept, are the ids of the images that
    an earlier state lacked, or had with another file; those of images within a larger file are not known.
    """

    images: Numbers = field(default_factory=_none)
    captions: Numbers = field(default_factory=_none)
    archives: Numbers = field(default_factory=_none)
    new_images: frozenset[str] = frozenset()

    @classmethod
    def of(
        cls, dataset: Dataset, split: str, stamps: ImageStamps | None = None, before: DataManifest | None = None
    ) -> Self:
        """Hash the listed archives of a split, or its records; by default no hash of a file is kept."""
        if isinstance(dataset, ArchivedDataset):
            return cls(archives=_sorted(array("Q", [_number([*each.stamp]) for each in dataset.archives(split)])))
        images, captions, new_images = array("Q"), array("Q"), set()
        for image_id, uri, stamp, texts in entries(dataset, split, stamps or image_stamps(dataset)):
            images.append(_number([image_id, uri, stamp]))
            captions.extend(_number([image_id, *text]) for text in texts)
            if before is not None and has_own_file(uri) and not _is_in(before.images, images[-1]):
                new_images.add(image_id)
        return cls(_sorted(images), _sorted(captions), new_images=frozenset(new_images))

    @classmethod
    def of_captions(cls, captions: Iterable[tuple[str, str, str]]) -> Self:
        """Hash captions alone, each given as the id of its image, its own id and its text."""
        return cls(captions=_sorted(array("Q", [_number([*caption]) for caption in captions])))

    def with_captions(self, others: Self) -> Self:
        """Return it with the captions of another as well."""
        return replace(self, captions=np.union1d(self.captions, others.captions))

    def since(self, before: Self | None) -> DatasetDiff:
        """Return the changes since then; all is new if there was nothing before."""
        then = before or DataManifest()
        pairs = [(self.images, then.images), (self.captions, then.captions), (self.archives, then.archives)]
        return DatasetDiff(
            *(len(np.setdiff1d(a, b, assume_unique=True)) for now, old in pairs for a, b in ((now, old), (old, now)))
        )

    def has_caption(self, image_id: str, caption_id: str, text: str) -> bool:
        """Return whether a caption was there with this text."""
        return _is_in(self.captions, _number([image_id, caption_id, text]))

    def save(self, path: Path) -> None:
        """Write it as an .npz file."""
        data = io.BytesIO()
        np.savez(data, allow_pickle=False, images=self.images, captions=self.captions, archives=self.archives)
        write_bytes_atomic(path, data.getvalue())

    @classmethod
    def load(cls, data: bytes) -> Self:
        """Read the contents of a file that `save` has written."""
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            return cls(**arrays)


def _sorted(numbers: array[int]) -> Numbers:
    return np.unique(np.frombuffer(numbers, np.uint64))


def _is_in(numbers: Numbers, number: int) -> bool:
    index = int(np.searchsorted(numbers, np.uint64(number)))
    return index < len(numbers) and bool(numbers[index] == number)


def _number(content: list[Any]) -> int:
    line = json.dumps(content, separators=(",", ":")).encode()
    return int.from_bytes(hashlib.blake2b(line, digest_size=8).digest(), "little")
