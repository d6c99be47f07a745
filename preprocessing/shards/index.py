"""The sidecar of a shard: what the tar holds, where each member lies, and how to tell that it is whole."""

from __future__ import annotations

import hashlib
import json
import tarfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from preprocessing.storage.mirror import sidecar_path

VERSION = 1
MEND = "delete the shard's .tar and .json and run the stage that wrote them again: it rewrites only what is missing"


class ShardError(Exception):
    """A shard is missing, damaged or of the wrong kind; the message names it and says what to do."""


@dataclass(frozen=True, slots=True)
class MemberTable:
    """Where one kind of member lies in the tar: for each sample the offset of its first byte and its size, in bytes."""

    offset: list[int]
    size: list[int]


@dataclass(frozen=True, slots=True)
class ShardIndex:
    """Contents of one shard. A shard is complete when its sidecar is there and agrees with the tar.

    Attributes:
        version: of this format.
        shard: file name of the tar, "shard-00000.tar".
        bytes: size of the tar.
        sha256: of the tar, hexadecimal.
        count: number of samples.
        fingerprint: of the inputs and configuration that gave the shard.
        keys: of the samples, in order.
        caption_counts: captions of each sample.
        members: for each kind of member ("grid.npy", "json") its places.
        skipped: what was not put into the shard and why: dicts with key, image_id, image, reason; "set_aside" in the
            file.
    """

    version: int
    shard: str
    bytes: int
    sha256: str
    count: int
    fingerprint: str
    keys: list[str]
    caption_counts: list[int]
    members: dict[str, MemberTable]
    skipped: list[dict[str, str]]

    def to_json(self) -> dict[str, Any]:
        """Return a dictionary for the sidecar."""
        data = asdict(self)
        data["set_aside"] = data.pop("skipped")
        return data

    @classmethod
    def from_json(cls, data: Any) -> ShardIndex:
        """Check a sidecar's contents and build the index.

        Raises:
            ValueError: a field is missing, has the wrong type, or the fields contradict one another.
        """
        if not isinstance(data, dict):
            raise ValueError(f"the sidecar must be a JSON object, got {type(data).__name__}")
        if data.get("version") != VERSION:
            raise ValueError(f"the sidecar is of version {data.get('version')!r}; this code reads version {VERSION}")
        names = {field.name for field in fields(cls)} - {"skipped"} | {"set_aside"}
        if set(data) != names:
            raise ValueError(f"missing fields {sorted(names - set(data))}, unknown fields {sorted(set(data) - names)}")
        count, size = _whole_number(data, "count"), _whole_number(data, "bytes")
        if not isinstance(data["members"], dict):
            raise ValueError("members must be an object")
        return cls(
            version=VERSION,
            shard=_text(data, "shard"),
            bytes=size,
            sha256=_text(data, "sha256"),
            count=count,
            fingerprint=_text(data, "fingerprint"),
            keys=_list_of(data, "keys", str, count),
            caption_counts=_list_of(data, "caption_counts", int, count),
            members={name: _member_table(name, table, count, size) for name, table in data["members"].items()},
            skipped=_list_of(data, "set_aside", dict, None),
        )


def _whole_number(data: Mapping[str, Any], name: str) -> int:
    value = data[name]
    if type(value) is not int or value < 0:
        raise ValueError(f"{name} must be a whole number from 0, got {value!r}")
    return value


def _text(data: Mapping[str, Any], name: str) -> str:
    if not isinstance(data[name], str):
        raise ValueError(f"{name} must be a text, got {data[name]!r}")
    return str(data[name])


def _list_of(data: Mapping[str, Any], name: str, kind: type, count: int | None) -> list[Any]:
    values = data[name]
    if not isinstance(values, list) or not all(type(value) is kind for value in values):
        raise ValueError(f"{name} must be a list of {kind.__name__}")
    if count is not None and len(values) != count:
        raise ValueError(f"{name} has {len(values)} entries for {count} samples")
    if kind is int and any(value < 0 for value in values):
        raise ValueError(f"{name} has a negative entry")
    return values


def _member_table(name: str, table: Any, count: int, size: int) -> MemberTable:
    if not isinstance(table, dict) or set(table) != {"offset", "size"}:
        raise ValueError(f"members[{name!r}] must hold offset and size")
    offsets, sizes = _list_of(table, "offset", int, count), _list_of(table, "size", int, count)
    if any(offset + length > size for offset, length in zip(offsets, sizes, strict=True)):
        raise ValueError(f"members[{name!r}] reaches past the end of the tar ({size} bytes)")
    return MemberTable(offsets, sizes)


def shard_path(directory: Path, number: int) -> Path:
    """Return the path of a shard's tar."""
    return directory / f"shard-{number:05d}.tar"


def read_index(path: Path) -> ShardIndex:
    """Read and check the sidecar of a shard.

    Args:
        path: of the tar or of the sidecar.

    Raises:
        ShardError: the sidecar is missing, unreadable, contradicts itself or belongs to another shard.
    """
    sidecar = sidecar_path(path)
    try:
        text = sidecar.read_bytes()
    except FileNotFoundError as error:
        raise ShardError(
            f"shard {sidecar.with_suffix('.tar')} is incomplete: its sidecar {sidecar.name} is missing; {MEND}"
        ) from error
    except OSError as error:
        raise ShardError(f"cannot read the sidecar {sidecar}: {error.strerror}") from error
    try:
        index = ShardIndex.from_json(json.loads(text))
    except ValueError as error:
        raise ShardError(f"the sidecar {sidecar} is damaged: {error}; {MEND}") from error
    if index.shard != f"{sidecar.stem}.tar":
        raise ShardError(
            f"the sidecar {sidecar} describes {index.shard!r}, not {sidecar.stem}.tar: was it renamed or copied? {MEND}"
        )
    return index


def verify_shard(path: Path, deep: bool) -> ShardIndex:
    """Check that a shard is whole.

    Args:
        path: of the tar.
        deep: also read the tar: its sha256, and the name, place and size of each member. Otherwise only its sidecar and
            its size.

    Returns:
        The shard's index.

    Raises:
        ShardError: anything is not as the sidecar says.
    """
    index = read_index(path)
    tar = sidecar_path(path).with_name(index.shard)
    try:
        size = tar.stat().st_size
    except FileNotFoundError as error:
        raise ShardError(f"shard {tar} is missing although its sidecar is there; {MEND}") from error
    if size != index.bytes:
        raise ShardError(
            f"shard {tar} has {size} bytes, its sidecar says {index.bytes}: it was cut short or overwritten; {MEND}"
        )
    if deep:
        _verify_contents(tar, index)
    return index


def check_digest(tar: Path, expected: str, digest: str) -> None:
    """Compare the sha256 of a tar with the one that its sidecar says it has.

    Raises:
        ShardError: it is another.
    """
    if digest != expected:
        raise ShardError(f"shard {tar} has sha256 {digest}, its sidecar says {expected}: the tar was changed; {MEND}")


def _verify_contents(tar: Path, index: ShardIndex) -> None:
    with tar.open("rb") as file:
        check_digest(tar, index.sha256, hashlib.file_digest(file, "sha256").hexdigest())
    expected = {
        f"{key}.{name}": (table.offset[row], table.size[row])
        for name, table in index.members.items()
        for row, key in enumerate(index.keys)
    }
    with tarfile.open(tar, "r:") as archive:
        found = {member.name: (member.offset_data, member.size) for member in archive}
    if found != expected:
        wrong = sorted(name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name))
        raise ShardError(
            f"the sidecar of shard {tar} names the wrong places for {len(wrong)} members, first {wrong[0]}; {MEND}"
        )
