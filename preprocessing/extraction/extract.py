"""From records to feature shards: which records a shard holds, what identifies them, and the making of one shard.

Nothing here knows about processes: the caller may make the shards one after another or on many machines.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from preprocessing.datasets.record import Caption, Dataset, Record
from preprocessing.extraction.image_loader import ImageLoader
from preprocessing.features.extractor import Extractor, RegionFeatures, Stored
from preprocessing.features.images import ImageError
from preprocessing.shards.ahead import ahead
from preprocessing.shards.index import ShardIndex
from preprocessing.shards.writer import Sample, write_shard
from preprocessing.storage import S3Storage, is_s3, relative

# Part of every fingerprint: raise it when the same records would give other bytes.
FORMAT = 1
EMPTY_CAPTION = "empty caption"
NO_CAPTION = "no caption"

_KEY_DIGITS = 8
_INSIDE_A_FILE = re.compile(r"\.npy#|\.hdf5#|\.tar#")
_S3_READERS = 16


@dataclass(frozen=True, slots=True)
class ShardSpec:
    """A shard to be made: plain data, small enough to travel to another process.

    Attributes:
        path: of the tar, in a directory that exists.
        fingerprint: of the split's records, the extractor and the settings.
        root: folder that image URIs are written relative to; "" leaves them as they are.
        first: position of the first record in its split, which gives the keys.
        records: in the order of the dataset.
    """

    path: Path
    fingerprint: str
    root: str
    first: int
    records: tuple[Record, ...]


@dataclass(frozen=True, slots=True)
class SplitSummary:
    """What a split consists of, without its images.

    Attributes:
        digest: sha256 over ids, relative URIs, captions, and size and time of the local files, or size and ETag of the
            objects on S3.
        images: number of records.
        captions: number of captions, empty ones included.
        shards: the digest of the records of each shard: records that are appended leave those before the last one as
            they were.
    """

    digest: str
    images: int
    captions: int
    shards: tuple[str, ...]


def summarize(dataset: Dataset, split: str, shard_size: int) -> SplitSummary:
    """Go through the records of a split once and identify them.

    Args:
        dataset: the data set.
        split: one of its splits.
        shard_size: records of a shard.

    Raises:
        DatasetError: there is no such split, or its files are malformed.
        StorageError: the images are on S3, which does not answer or refuses.
    """
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


def entries(dataset: Dataset, split: str) -> Iterator[tuple[str, str, list[Any] | None, list[tuple[str, str]]]]:
    """What identifies each record: its id, its image relative to the root, what tells of a change of the image, texts.

    The third is size and time of a local file, size and ETag of an object on S3, None of an image that is generated or
    not there. Texts are caption ids with captions.

    Raises:
        DatasetError: there is no such split, or its files are malformed.
        StorageError: the images are on S3, which does not answer or refuses.
    """
    stamp = _object_stamp(dataset.root) if is_s3(dataset.root) else _stamp
    for record in dataset.records(split):
        texts = [(caption.caption_id, caption.text) for caption in record.captions]
        yield record.image_id, relative_uri(record.image_uri, dataset.root), stamp(record.image_uri), texts


def shard_paths(directory: Path, images: int, shard_size: int) -> list[Path]:
    """Return the paths of the shards that a split of so many images fills."""
    return [_shard_path(directory, number) for number in range(-(-images // shard_size))]


def shard_specs(
    records: Iterable[Record], directory: Path, shard_size: int, fingerprint: str, root: str
) -> Iterator[ShardSpec]:
    """Cut the records of a split into shards, holding one shard's records at a time."""
    remaining, first = iter(records), 0
    while chunk := tuple(islice(remaining, shard_size)):
        yield ShardSpec(_shard_path(directory, first // shard_size), fingerprint, root, first, chunk)
        first += len(chunk)


def extract_shard(
    spec: ShardSpec, extractor: Extractor, batch_size: int, threads: int = 1, timeout: float | None = None
) -> ShardIndex:
    """Make one shard: decode images, run the model on those before and write those before these, all at once.

    Images that cannot be used, images without captions and empty captions are set aside with their reason. Batches are
    formed of the usable images in order, so the bytes do not depend on anything that happens at the same time, unless
    an image takes longer than it may.

    Args:
        spec: what goes into the shard.
        extractor: computes the features.
        batch_size: images in a forward pass.
        threads: threads that decode.
        timeout: seconds that are waited for an image before it is set aside; None waits for ever.

    Raises:
        ExtractorError: the extractor gave features that cannot be stored.
        OSError: the shard cannot be written.
    """
    set_aside: list[dict[str, str]] = []
    # A thread that reads from S3 mostly waits, and needs no core meanwhile.
    threads = max(threads, _S3_READERS) if is_s3(spec.root) else threads
    with ImageLoader(extractor.load, threads, 2 * batch_size, timeout) as loader:
        samples = _samples(spec, extractor, batch_size, loader, set_aside)
        # Written while the next batch is computed. The list is filled on the way, and read after the last sample.
        return write_shard(spec.path, ahead(samples, 2 * batch_size), spec.fingerprint, set_aside)


def sample_bytes(dataset: Dataset, split: str, extractor: Extractor) -> int:
    """The bytes of a tar that the first usable image of a split takes up.

    Raises:
        DatasetError: there is no such split, or its files are malformed.
        ValueError: no image is usable.
    """
    for record in dataset.records(split):
        try:
            item = extractor.load(record.image_uri)
        except ImageError:
            continue
        entry = _Entry("0" * _KEY_DIGITS, record, record.captions)
        (sample,) = _computed([(entry, item)], extractor, dataset.root)
        return sample.tar_bytes
    raise ValueError(f"no image of {split} is usable; check the data set")


def relative_uri(uri: str, root: str) -> str:
    """Return an image's URI relative to the dataset's root, as it is written into shards."""
    return relative(uri, root) if root else uri


def _shard_path(directory: Path, number: int) -> Path:
    return directory / f"shard-{number:05d}.tar"


@dataclass(frozen=True, slots=True)
class _Entry:
    """A record on its way into a shard, with the captions that are of use."""

    key: str
    record: Record
    captions: tuple[Caption, ...]


def _samples(
    spec: ShardSpec, extractor: Extractor, batch_size: int, loader: ImageLoader, set_aside: list[dict[str, str]]
) -> Iterator[Sample]:
    """Yield the samples of a shard in order; fills `set_aside` on the way, complete and in order at the end."""
    batch: list[tuple[_Entry, Any]] = []
    for entry, image in loader.load(_usable(spec, set_aside), lambda entry: entry.record.image_uri):
        if isinstance(image, ImageError):
            set_aside.append(_set_aside(entry.key, entry.record, spec.root, str(image)))
        else:
            batch.append((entry, image))
        if len(batch) == batch_size:
            yield from _computed(batch, extractor, spec.root)
            batch = []
    if batch:
        yield from _computed(batch, extractor, spec.root)
    set_aside.sort(key=lambda item: item["key"])


def _usable(spec: ShardSpec, set_aside: list[dict[str, str]]) -> Iterator[_Entry]:
    """Drop empty captions, and images without any other."""
    for position, record in enumerate(spec.records, start=spec.first):
        key = f"{position:0{_KEY_DIGITS}d}"
        captions = tuple(caption for caption in record.captions if caption.text.strip())
        for caption in record.captions:
            if caption not in captions:
                item = _set_aside(key, record, spec.root, EMPTY_CAPTION)
                set_aside.append({**item, "caption_id": caption.caption_id})
        if captions:
            yield _Entry(key, record, captions)
        else:
            set_aside.append(_set_aside(key, record, spec.root, NO_CAPTION))


def _computed(batch: list[tuple[_Entry, Any]], extractor: Extractor, root: str) -> Iterator[Sample]:
    results = extractor([item for _, item in batch])
    for (entry, _), result in zip(batch, results, strict=True):
        captions = [{"caption_id": caption.caption_id, "text": caption.text} for caption in entry.captions]
        meta = {
            "image_id": entry.record.image_id,
            "image": relative_uri(entry.record.image_uri, root),
            "split": entry.record.split,
            "captions": captions,
        }
        yield _sample(entry.key, meta, result if isinstance(result, Mapping) else {extractor.name: result})


def _sample(key: str, meta: dict[str, Any], stored: Mapping[str, Stored]) -> Sample:
    """What goes into a shard of one image, of one extractor or of several."""
    sample = Sample(key, {}, meta)
    for name, item in stored.items():
        if isinstance(item, bytes):
            sample.files[name] = item
        elif isinstance(item, RegionFeatures):
            sample.arrays[name] = item.features
            sample.companions.update(item.companions)
        else:
            sample.arrays[name] = item
    return sample


def _set_aside(key: str, record: Record, root: str, reason: str) -> dict[str, str]:
    image = relative_uri(record.image_uri, root)
    return {"key": key, "image_id": record.image_id, "image": image, "reason": reason}


def _object_stamp(folder: str) -> Callable[[str], list[Any] | None]:
    """What gives the size and ETag of an image on S3, None where it is not there.

    The folder is listed once, a request for a thousand images: asking for each would take longer than all the rest.
    """
    listed: dict[str, list[Any]] = {entry.name: [entry.bytes, entry.version] for entry in S3Storage(folder).list()}
    return lambda uri: listed.get(relative(_file_of(uri), folder))


def _file_of(uri: str) -> str:
    """What has size and time: the image, or the array that it is a row of, or the archive that it lies in."""
    inside = _INSIDE_A_FILE.search(uri)
    return uri if inside is None else uri[: inside.end() - 1]


def _stamp(uri: str) -> list[Any] | None:
    """Size in bytes and time of change in nanoseconds of a local file, or None: generated, or not there."""
    if "://" in uri:
        return None
    try:
        status = Path(_file_of(uri)).stat()
    except FileNotFoundError:
        return None
    return [status.st_size, status.st_mtime_ns]
