"""Identity of a split: digests over its records that change with any id, caption or image file."""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from itertools import islice
from pathlib import Path

from preprocessing.datasets.record import Archive, ArchivedDataset, Dataset, Record
from preprocessing.extraction.file_hashes import FileHashes
from preprocessing.storage.address import is_s3, relative
from preprocessing.storage.opening import open_storage

Stamp = tuple[int, str | int]
ImageStamps = Callable[[list[str]], list[Stamp | None]]

_AT_ONCE = 1024
_to_json = json.JSONEncoder(separators=(",", ":")).encode
_INSIDE_A_FILE = re.compile(r"\.npy#|\.hdf5#|\.tar#")


@dataclass(frozen=True, slots=True)
class SplitSummary:
    """Digests and counts of a split; empty captions count. Records that are appended change only the last `shards`.

    `records` are the digests of the same shards without the images' stamps (`records_digest`).

    A split of `archives` has a shard for each of them, and counts of 0: they are known when the archives are read.
    """

    digest: str
    images: int
    captions: int
    shards: tuple[str, ...]
    records: tuple[str, ...] = ()
    archives: tuple[Archive, ...] = ()


def summarize(dataset: Dataset, split: str, shard_size: int, stamps: ImageStamps | None = None) -> SplitSummary:
    """Return the digests of a split and of its shards, from a listing of its archives or of its records.

    By default no hash of a file is kept.
    """
    if isinstance(dataset, ArchivedDataset):
        archives = tuple(dataset.archives(split))
        lines = [_line(archive.stamp) for archive in archives]
        digests = [hashlib.sha256(each).hexdigest() for each in (b"".join(lines), *lines)]
        return SplitSummary(digests[0], 0, 0, tuple(digests[1:]), archives=archives)
    digest, shard, records = hashlib.sha256(), hashlib.sha256(), hashlib.sha256()
    shards: list[tuple[str, str]] = []
    images = captions = 0
    for entry in entries(dataset, split, stamps or image_stamps(dataset)):
        if images and images % shard_size == 0:
            shards.append((shard.hexdigest(), records.hexdigest()))
            shard, records = hashlib.sha256(), hashlib.sha256()
        line = _line(entry)
        records.update(_line((*entry[:2], entry[3])))
        digest.update(line)
        shard.update(line)
        images += 1
        captions += len(entry[-1])
    last = [(shard.hexdigest(), records.hexdigest())] if images else []
    of_shards, of_records = zip(*shards, *last, strict=True) if images else ((), ())
    return SplitSummary(digest.hexdigest(), images, captions, of_shards, of_records)


def records_digest(records: Iterable[Record], root: str) -> str:
    """Return the digest of a shard's records: ids, captions, and the names of images, but not what these contain."""
    digest = hashlib.sha256()
    for record in records:
        digest.update(_line((record.image_id, relative_uri(record.image_uri, root), _texts(record))))
    return digest.hexdigest()


def entries(
    dataset: Dataset, split: str, stamps: ImageStamps
) -> Iterator[tuple[str, str, Stamp | None, list[tuple[str, str]]]]:
    """Yield the identity of each record: its id, its image relative to the root, a stamp of the image, and captions.

    Captions are pairs of caption id and text.
    """
    records = dataset.records(split)
    while chunk := list(islice(records, _AT_ONCE)):
        for record, stamp in zip(chunk, stamps([record.image_uri for record in chunk]), strict=True):
            yield record.image_id, relative_uri(record.image_uri, dataset.root), stamp, _texts(record)


def _texts(record: Record) -> list[tuple[str, str]]:
    return [(caption.caption_id, caption.text) for caption in record.captions]


def _line(content: tuple[object, ...]) -> bytes:
    return _to_json(content).encode() + b"\n"


def relative_uri(uri: str, root: str) -> str:
    """Return an image's URI relative to the dataset's root, as it is written into shards."""
    return relative(uri, root) if root else uri


def image_stamps(dataset: Dataset, hashes: FileHashes | None = None) -> ImageStamps:
    """Return a function from images of a data set to their stamps; each folder of S3 is listed once, when first met.

    The stamp is size and hash of a local file, size and ETag of an object on S3, size and time of a local file of many
    images, None of an image that is generated or missing. By default no hash of a file is kept.
    """

    @cache
    def listed(folder: str) -> dict[str, Stamp]:
        """Return the stamps of all objects of a folder: one listing is faster than many requests."""
        return {entry.name: (entry.bytes, entry.version) for entry in open_storage(folder).list()}

    def object_stamp(uri: str) -> Stamp | None:
        """Return the stamp of an object on S3; None if it is missing."""
        file = _file_of(uri)
        # A table without a root has the addresses of its images.
        folder = dataset.root or file.rpartition("/")[0]
        return listed(folder).get(relative(file, folder))

    return partial(_stamps, hashes or FileHashes(), object_stamp)


def _stamps(hashes: FileHashes, object_stamp: Callable[[str], Stamp | None], uris: list[str]) -> list[Stamp | None]:
    """Return the stamps of images; None: generated, or missing."""
    alone = [uri for uri in uris if "://" not in uri and has_own_file(uri)]
    hashed = dict(zip(alone, hashes.stamps([Path(uri) for uri in alone]), strict=True))
    return [object_stamp(uri) if is_s3(uri) else hashed[uri] if uri in hashed else _stamp_of_many(uri) for uri in uris]


def _stamp_of_many(uri: str) -> Stamp | None:
    """Return size in bytes and time of change in nanoseconds of a file of many images, which may be large."""
    if "://" in uri:
        return None
    try:
        status = Path(_file_of(uri)).stat()
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns


def has_own_file(uri: str) -> bool:
    """Return whether an image is a file by itself, whose stamp is the image's."""
    return _file_of(uri) == uri


def _file_of(uri: str) -> str:
    """Return the file of an image: itself, or the array that it is a row of, or the archive that it lies in."""
    inside = _INSIDE_A_FILE.search(uri)
    return uri if inside is None else uri[: inside.end() - 1]
