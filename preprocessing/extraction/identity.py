"""Identity of a split: digests over its records that change with any id, caption or image file."""

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from preprocessing.datasets.record import Archive, ArchivedDataset, Dataset
from preprocessing.storage import S3Storage, is_s3, relative

_INSIDE_A_FILE = re.compile(r"\.npy#|\.hdf5#|\.tar#")


@dataclass(frozen=True, slots=True)
class SplitSummary:
    """Digests and counts of a split; empty captions count. Records that are appended change only the last `shards`.

    A split of `archives` has a shard for each of them, and counts of 0: they are known when the archives are read.
    """

    digest: str
    images: int
    captions: int
    shards: tuple[str, ...]
    archives: tuple[Archive, ...] = ()


def summarize(dataset: Dataset, split: str, shard_size: int) -> SplitSummary:
    """Return the digests of a split and of its shards, from a listing of its archives or of its records."""
    if isinstance(dataset, ArchivedDataset):
        return _of_archives(tuple(dataset.archives(split)))
    digest, shard = hashlib.sha256(), hashlib.sha256()
    shards: list[str] = []
    images = captions = 0
    for entry in entries(dataset, split):
        if images and images % shard_size == 0:
            shards.append(shard.hexdigest())
            shard = hashlib.sha256()
        for each in (digest, shard):
            each.update(json.dumps(entry, separators=(",", ":")).encode() + b"\n")
        images += 1
        captions += len(entry[-1])
    return SplitSummary(digest.hexdigest(), images, captions, (*shards, shard.hexdigest()) if images else ())


def _of_archives(archives: tuple[Archive, ...]) -> SplitSummary:
    stamps = [json.dumps(archive.stamp, separators=(",", ":")).encode() + b"\n" for archive in archives]
    digest = hashlib.sha256(b"".join(stamps)).hexdigest()
    return SplitSummary(digest, 0, 0, tuple(hashlib.sha256(stamp).hexdigest() for stamp in stamps), archives)


def entries(dataset: Dataset, split: str) -> Iterator[tuple[str, str, list[Any] | None, list[tuple[str, str]]]]:
    """Yield the identity of each record: its id, its image relative to the root, a stamp of the image, and captions.

    The stamp is size and time of a local file, size and ETag of an object on S3, None of an image that is generated or
    missing. Captions are pairs of caption id and text.
    """
    stamp = _object_stamp(dataset.root) if is_s3(dataset.root) else _stamp
    for record in dataset.records(split):
        texts = [(caption.caption_id, caption.text) for caption in record.captions]
        yield record.image_id, relative_uri(record.image_uri, dataset.root), stamp(record.image_uri), texts


def relative_uri(uri: str, root: str) -> str:
    """Return an image's URI relative to the dataset's root, as it is written into shards."""
    return relative(uri, root) if root else uri


def _object_stamp(folder: str) -> Callable[[str], list[Any] | None]:
    """Return a function from image to size and ETag, None if missing; one listing is faster than a request for each."""
    listed: dict[str, list[Any]] = {entry.name: [entry.bytes, entry.version] for entry in S3Storage(folder).list()}
    return lambda uri: listed.get(relative(_file_of(uri), folder))


def _file_of(uri: str) -> str:
    """Return the file of an image: itself, or the array that it is a row of, or the archive that it lies in."""
    inside = _INSIDE_A_FILE.search(uri)
    return uri if inside is None else uri[: inside.end() - 1]


def _stamp(uri: str) -> list[Any] | None:
    """Return size in bytes and time of change in nanoseconds of a local file; None: generated, or missing."""
    if "://" in uri:
        return None
    try:
        status = Path(_file_of(uri)).stat()
    except (OSError, ValueError):  # missing, or a name that no file has: skipped with the reason where it is read
        return None
    return [status.st_size, status.st_mtime_ns]
