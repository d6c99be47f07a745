"""The record that every dataset reader yields, and the protocol of the readers."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable


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


class Archive(Protocol):
    """An archive of images, known by what a listing says of it; the records are read from the archive itself."""

    @property
    def stamp(self) -> tuple[str, int, str]:
        """Return its address relative to the dataset's root, its bytes, and its ETag (S3) or time of change (disk)."""

    def __iter__(self) -> Iterator[Record]:
        """Yield its records; a DatasetError says what is malformed."""


class Dataset(Protocol):
    """A dataset reader: named splits, each a stable sequence of records."""

    @property
    def splits(self) -> tuple[str, ...]:
        """Return the names that `records` takes."""

    @property
    def root(self) -> str:
        """Return the folder, a path or `s3://`, to which image URIs are relative in shards; "" if there is none."""

    def records(self, split: str) -> Iterator[Record]:
        """Yield the records of one of `splits` in the order of its file; a DatasetError says what is malformed."""


@runtime_checkable
class ArchivedDataset(Dataset, Protocol):
    """A dataset that lies in archives, which are not opened to tell whether they have changed."""

    def archives(self, split: str) -> list[Archive]:
        """Return the archives of a split in their order, by listing them."""
