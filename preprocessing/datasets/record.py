"""The record that every dataset reader yields, and the protocol of the readers."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol


class DatasetError(ValueError):
    """A dataset is missing, malformed or wrongly configured; the message says where and how to fix it."""


@dataclass(frozen=True, slots=True)
class Caption:
    """One caption: its id, unique in its split, and its text exactly as the dataset holds it."""

    caption_id: str
    text: str


@dataclass(frozen=True, slots=True)
class Record:
    """One image (or video) with its captions, if it has any.

    `image_uri` is an absolute local path, or `s3://BUCKET/KEY`, or `scene://SEED/INDEX` for a generated image, or
    `/abs/ARCHIVE.tar#NAME@START+SIZE` for a file in an archive, or `/abs/{split}_ims.npy#ROW` and
    `/abs/{split}_ft.hdf5#NAME` for published features.
    """

    image_id: str
    image_uri: str
    split: str
    captions: tuple[Caption, ...]


class Dataset(Protocol):
    """A dataset reader: named splits, each a stable sequence of records."""

    @property
    def splits(self) -> tuple[str, ...]:
        """Return the names that `records` takes."""

    @property
    def root(self) -> str:
        """Return the folder, a path or `s3://`, to which image URIs are relative in shards; "" where there is none."""

    def records(self, split: str) -> Iterator[Record]:
        """Yield the records of a split in the order of its list or file; a DatasetError says what is malformed."""
