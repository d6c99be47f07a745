"""Writes a shard: an ordinary WebDataset tar whose bytes depend on the samples alone, and its sidecar."""

import hashlib
import io
import json
import re
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from preprocessing.shards.caption_table import check_record, write_table
from preprocessing.shards.index import VERSION, MemberTable, ShardIndex
from preprocessing.storage.atomic import open_atomic, sync_directory, write_json_atomic
from preprocessing.storage.mirror import sidecar_path

_NAME = re.compile(r"[a-z0-9_]+(\.[a-z0-9_]+)*")
# Looking for circles in a record, which has none, would take a fifth of the time.
_JSON = json.JSONEncoder(
    ensure_ascii=False, check_circular=False, allow_nan=False, sort_keys=True, separators=(",", ":")
)
# Bytes of a member that are written at once: in many small parts, threads that decode would come in between.
_AT_ONCE = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Sample:
    """One image with its features and captions.

    Attributes:
        key: digits only, zero-padded to one width, ascending within a shard ("00000042").
        arrays: name -> float16 array without an empty dimension; "grid" becomes the member "<key>.grid.npy".
        meta: JSON: image_id, image, split, captions (a list of {caption_id, text}); becomes "<key>.json".
        files: extension -> bytes stored as they are, such as "jpg".
        companions: name -> array that belongs to a feature and is not read for training, float32 or int32: boxes,
            whose coordinates float16 would round to half a pixel and more; "boxes" becomes "<key>.boxes.npy".
    """

    key: str
    arrays: dict[str, npt.NDArray[np.float16]]
    meta: dict[str, Any]
    files: dict[str, bytes] = field(default_factory=dict)
    companions: dict[str, npt.NDArray[np.float32] | npt.NDArray[np.int32]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Skipped:
    """An image, or a caption of one (`caption_id`), that is not put into a shard; the sidecar lists it."""

    key: str
    image_id: str
    image: str
    reason: str
    caption_id: str | None = None


def write_shard(path: Path, samples: Iterable[Sample | Skipped], fingerprint: str) -> ShardIndex:
    """Write a shard "shard-00000.tar", the table of its captions, and then its sidecar, each atomically.

    One sample's arrays are in memory at a time. A shard of records alone has no table.

    All samples have the same arrays and files; what was skipped comes between them in any order. A process killed at
    any moment leaves no sidecar, or a complete shard. Raise ValueError if a sample is not as :class:`Sample` says.
    """
    keys: list[str] = []
    counts: list[int] = []
    records: list[dict[str, Any]] = []
    members: dict[str, MemberTable] = {}
    skipped: list[Skipped] = []
    # The old sidecar goes before anything of the shard changes: it must never stand next to a tar it does not describe.
    sidecar_path(path).unlink(missing_ok=True)
    sync_directory(path.parent)
    with open_atomic(path) as file:
        # USTAR has one fixed header block a member and no field that depends on the machine.
        with tarfile.TarFile(fileobj=file, mode="w", format=tarfile.USTAR_FORMAT, copybufsize=_AT_ONCE) as archive:
            for sample in samples:
                if isinstance(sample, Skipped):
                    skipped.append(sample)
                    continue
                _check(sample, keys[-1] if keys else "", set(members) if keys else None)
                for name, data in _encoded(sample):
                    info = tarfile.TarInfo(f"{sample.key}.{name}")
                    info.size = len(data)
                    table = members.setdefault(name, MemberTable([], []))
                    table.offset.append(archive.offset + tarfile.BLOCKSIZE)
                    archive.addfile(info, io.BytesIO(data))
                    table.size.append(len(data))
                    table.checksum.append(xxhash.xxh3_64_intdigest(data))
                keys.append(sample.key)
                counts.append(len(sample.meta["captions"]))
                if set(members) != {"json"}:
                    records.append(sample.meta)
        size = file.tell()
        file.seek(0)
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if set(members) != {"json"}:
        write_table(path, records)
    in_order = map(asdict, sorted(skipped, key=lambda entry: entry.key))
    entries = [{name: value for name, value in entry.items() if value is not None} for entry in in_order]
    index = ShardIndex(VERSION, path.name, size, digest, len(keys), fingerprint, keys, counts, members, entries)
    write_json_atomic(sidecar_path(path), index.to_json())
    return index


def _check(sample: Sample, previous_key: str, kinds: set[str] | None) -> None:
    """Refuse a sample that webdataset or the reader would misread."""
    if not sample.key.isdecimal() or (len(sample.key), sample.key) <= (len(previous_key), previous_key):
        raise ValueError(f"keys are numbers that ascend within a shard; {sample.key!r} follows {previous_key!r}")
    for name in (*sample.arrays, *sample.companions, *sample.files):
        if not _NAME.fullmatch(name):
            raise ValueError(f"sample {sample.key}: a member's name has lower-case letters, digits and _, got {name!r}")
    for name, array in sample.arrays.items():
        if array.dtype != np.float16 or array.size == 0:
            raise ValueError(f"sample {sample.key}: {name!r} must be non-empty float16, is {array.dtype} {array.shape}")
    for name, companion in sample.companions.items():
        if companion.dtype not in (np.float32, np.int32) or companion.size == 0 or name in sample.arrays:
            raise ValueError(
                f"sample {sample.key}: the companion {name!r} must be non-empty float32 or int32 and have a name of "
                f"its own, got {companion.dtype} of shape {companion.shape}"
            )
    try:
        check_record(sample.meta)
    except ValueError as error:
        raise ValueError(f"sample {sample.key}: meta {error}") from error
    found = {*(f"{name}.npy" for name in (*sample.arrays, *sample.companions)), *sample.files, "json"}
    if kinds is not None and found != kinds:
        raise ValueError(f"sample {sample.key} has the members {sorted(found)}, those before it {sorted(kinds)}")


def _encoded(sample: Sample) -> Iterator[tuple[str, bytes]]:
    """Yield the members of a sample by name, in the order in which they are stored."""
    arrays: dict[str, npt.NDArray[Any]] = {**sample.arrays, **sample.companions}
    for name in sorted(arrays):
        buffer = io.BytesIO()
        little_endian = np.ascontiguousarray(arrays[name], dtype=arrays[name].dtype.newbyteorder("<"))
        np.lib.format.write_array(buffer, little_endian, version=(1, 0), allow_pickle=False)
        yield f"{name}.npy", buffer.getvalue()
    yield from sorted(sample.files.items())
    yield "json", _JSON.encode(sample.meta).encode()
