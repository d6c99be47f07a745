"""From records to feature shards, in whatever processes: which records a shard holds, and the making of one shard."""

import contextlib
import itertools
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from preprocessing.datasets.record import Archive, Record
from preprocessing.extraction.identity import relative_uri
from preprocessing.extraction.image_loader import load_images
from preprocessing.features.extractor import Extractor, ExtractorError, RegionFeatures, Stored
from preprocessing.features.images import ImageError, inside
from preprocessing.plain_text import is_text
from preprocessing.prefetch import prefetch
from preprocessing.reading import memory_ran_out
from preprocessing.shards.index import ShardIndex, shard_path
from preprocessing.shards.writer import Sample, Skipped, write_shard
from preprocessing.storage.address import is_s3
from preprocessing.storage.mirror import NO_MIRROR, Mirror

# Part of every fingerprint: raise it when the same records would give other bytes.
FORMAT = 1
EMPTY_CAPTION = "empty caption"
NO_CAPTION = "no caption"
KILLED = "the process that loaded it was killed, as when memory runs out"
NOT_UTF8 = "its name or text is not UTF-8"

_KEY_DIGITS = 8
_S3_READERS = 16
# Keys of an archive's images.
_KEYS_OF_ARCHIVE = 10**_KEY_DIGITS
# Two shards of a process, the end of one and the start of the next, never have two batches in the model's memory.
_MODEL = threading.Lock()


@dataclass(frozen=True, slots=True)
class ShardSpec:
    """A shard to be made, as plain data: records from position `first` of their split, which gives the keys.

    The records of an archive are read from it when the shard is made.

    Image URIs are written relative to `root`; "" leaves them as they are. After the shard has crashed a worker its
    images are loaded `one_by_one`, each named in the marker file, and those that `crashed` a worker are skipped.
    """

    path: Path
    fingerprint: str
    root: str
    first: int
    records: Iterable[Record]
    one_by_one: bool = False
    crashed: tuple[str, ...] = ()

    @property
    def marker(self) -> Path:
        """The file with the URI of the image that is being loaded; it is there after the process has been killed."""
        return self.path.with_suffix(".loading")

    @property
    def is_on_s3(self) -> bool:
        """Whether images are read from S3: all below the root, or some by their addresses."""
        addresses = (record.image_uri for record in self.records) if isinstance(self.records, Sequence) else ()
        return any(map(is_s3, (self.root, *addresses)))


def shard_specs(
    records: Iterable[Record], directory: Path, shard_size: int, fingerprint: str, root: str
) -> Iterator[ShardSpec]:
    """Yield the shards of a split's records, with one shard's records in memory at a time."""
    remaining, first = iter(records), 0
    while chunk := tuple(itertools.islice(remaining, shard_size)):
        yield ShardSpec(shard_path(directory, first // shard_size), fingerprint, root, first, chunk)
        first += len(chunk)


def archive_specs(archives: Iterable[Archive], directory: Path, fingerprint: str, root: str) -> Iterator[ShardSpec]:
    """Yield a shard for each archive."""
    for number, archive in enumerate(archives):
        yield ShardSpec(shard_path(directory, number), fingerprint, root, number * _KEYS_OF_ARCHIVE, archive)


def extract_shard(
    spec: ShardSpec,
    extractor: Extractor,
    batch_size: int,
    threads: int = 1,
    timeout: float | None = None,
    drawn: Callable[[], object] = object,
    mirror: Mirror = NO_MIRROR,
) -> ShardIndex:
    """Make one shard; decoding, the model and writing overlap.

    Images that cannot be used, images without captions and empty captions are skipped with their reason. Batches are
    formed of the usable images in order, so the bytes do not depend on anything that happens at the same time, unless
    an image takes longer than `timeout` seconds and is skipped (None waits for ever). `threads` decode. `drawn` is
    called when the last images are being loaded: another shard may then begin in another thread, and shares the model.
    The marker is also on the storage of the `mirror`. Raises StorageError if S3 does not answer.
    """
    if spec.is_on_s3:
        from preprocessing.storage.s3 import patience  # boto3, which planning does without

        # A thread that reads from S3 mostly waits, and needs no core meanwhile.
        threads = max(threads, _S3_READERS)
        # A server that does not answer is an error of its own, and not one of each image.
        timeout = None if timeout is None else timeout + patience()

    def load(uri: str) -> Any:
        if spec.one_by_one:
            spec.marker.write_bytes(os.fsencode(uri))
            mirror.push(spec.marker)
        try:
            return extractor.load(inside(spec.root, uri))
        finally:
            if spec.one_by_one:
                mirror.drop(spec.marker)

    entries, skipped = _usable(spec)

    def until_drawn() -> Iterator[_Entry]:
        yield from entries
        drawn()

    threads, depth = (1, 0) if spec.one_by_one else (threads, 2 * batch_size)
    images = load_images(load, until_drawn(), lambda entry: entry[1].image_uri, threads, depth, timeout)
    samples = itertools.chain(skipped, _samples(images, extractor, batch_size, spec.root))
    with (
        contextlib.closing(images),
        # Written while the next batch is computed.
        contextlib.closing(prefetch(samples, 2 * batch_size)) as written,
    ):
        return write_shard(spec.path, written, spec.fingerprint)


# A record on its way into a shard with its usable captions alone, and its key.
_Entry = tuple[str, Record]


def _samples(
    images: Iterable[tuple[_Entry, Any]], extractor: Extractor, batch_size: int, root: str
) -> Iterator[Sample | Skipped]:
    """Yield the samples of a shard in order, and the images that cannot be used."""
    batch: list[tuple[_Entry, Any]] = []
    for entry, image in images:
        if isinstance(image, ImageError):
            yield _skipped(*entry, root, str(image))
        else:
            batch.append((entry, image))
        if len(batch) == batch_size:
            yield from _computed(batch, extractor, root)
            batch = []
    if batch:
        yield from _computed(batch, extractor, root)


def _usable(spec: ShardSpec) -> tuple[list[_Entry], list[Skipped]]:
    """Separate records with captions from empty captions and images without any other."""
    entries: list[_Entry] = []
    skipped: list[Skipped] = []
    for position, record in enumerate(spec.records, start=spec.first):
        key = f"{position:0{_KEY_DIGITS}d}"
        captions = []
        for caption in record.captions:
            if not is_text(caption.text + caption.caption_id):
                skipped.append(_skipped(key, record, spec.root, NOT_UTF8, caption.caption_id))
            elif not caption.text.strip():
                skipped.append(_skipped(key, record, spec.root, EMPTY_CAPTION, caption.caption_id))
            else:
                captions.append(caption)
        if not is_text(record.image_id + record.image_uri):
            skipped.append(_skipped(key, record, spec.root, NOT_UTF8))
        elif record.image_uri in spec.crashed:
            skipped.append(_skipped(key, record, spec.root, KILLED))
        elif captions:
            entries.append((key, replace(record, captions=tuple(captions))))
        else:
            skipped.append(_skipped(key, record, spec.root, NO_CAPTION))
    return entries, skipped


def _skipped(key: str, record: Record, root: str, reason: str, caption_id: str | None = None) -> Skipped:
    names = (record.image_id, relative_uri(record.image_uri, root), caption_id)
    image_id, image, caption = (name and name.encode(errors="backslashreplace").decode() for name in names)
    return Skipped(key, image_id or "", image or "", reason, caption)


def _computed(batch: list[tuple[_Entry, Any]], extractor: Extractor, root: str) -> Iterator[Sample]:
    try:
        with _MODEL:
            results = extractor([item for _, item in batch])
    except (MemoryError, RuntimeError) as error:
        if not memory_ran_out(error):
            raise
        first = batch[0][0][1].image_uri
        raise ExtractorError(
            f"memory ran out for {len(batch)} images from {first} on: lower features.batch_size"
        ) from error
    for ((key, record), _), result in zip(batch, results, strict=True):
        image = relative_uri(record.image_uri, root)
        captions = list(map(asdict, record.captions))
        meta = {"image_id": record.image_id, "image": image, "split": record.split, "captions": captions}
        yield _sample(key, meta, extractor.name, result)


def _sample(key: str, meta: dict[str, Any], name: str, item: Stored) -> Sample:
    if isinstance(item, bytes):
        return Sample(key, {}, meta, files={name: item})
    if isinstance(item, RegionFeatures):
        return Sample(key, {name: item.features}, meta, companions=dict(item.companions))
    return Sample(key, {name: item}, meta)
