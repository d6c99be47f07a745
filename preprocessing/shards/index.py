"""The sidecar of a shard: the tar's contents, the place of each member, and the checks that it is complete."""

import hashlib
import tarfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from preprocessing.reading import damage_as
from preprocessing.storage.mirror import sidecar_path

VERSION: Literal[1] = 1
FIX = "delete the shard's .tar and .json and run the stage that wrote them again: it rewrites only what is missing"
_STRICT = ConfigDict(strict=True, extra="forbid")
_Count = Annotated[int, Field(ge=0, lt=2**63)]
_Checksum = Annotated[int, Field(ge=0, lt=2**64)]


class ShardError(Exception):
    """A shard is missing, damaged or of the wrong kind; the message names it and says what to do."""


@dataclass(frozen=True, slots=True)
class MemberTable:
    """The places of one kind of member in the tar: for each sample the offset of its first byte and its size, in bytes.

    Its checksums (XXH3, 64 bits) are compared when it is read; shards that were written before have none.
    """

    __pydantic_config__ = _STRICT

    offset: list[_Count]
    size: list[_Count]
    checksum: list[_Checksum] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ShardIndex:
    """Contents of one shard, which is complete when its sidecar is there and agrees with the tar.

    Attributes:
        fingerprint: of the inputs and configuration that gave the shard.
        members: for each kind of member ("grid.npy", "json") its places.
        skipped: dicts with key, image_id, image, reason; "set_aside" in the file.
        grids: a table of earlier sidecars, which nothing reads.
    """

    __pydantic_config__ = _STRICT

    version: Literal[1]
    shard: str
    bytes: _Count
    sha256: str
    count: _Count
    fingerprint: str
    keys: list[str]
    caption_counts: list[_Count]
    members: dict[str, MemberTable]
    skipped: Annotated[list[dict[str, str]], Field(alias="set_aside")]
    grids: Any = None

    def __post_init__(self) -> None:
        lists: dict[str, list[Any]] = {"keys": self.keys, "caption_counts": self.caption_counts}
        for name, table in self.members.items():
            lists |= {f"offsets of {name}": table.offset, f"sizes of {name}": table.size}
            lists |= {f"checksums of {name}": table.checksum} if table.checksum else {}
            if any(offset + size > self.bytes for offset, size in zip(table.offset, table.size, strict=False)):
                raise ValueError(f"members[{name!r}] reaches past the end of the tar ({self.bytes} bytes)")
        for name, values in lists.items():
            if len(values) != self.count:
                raise ValueError(f"{name} has {len(values)} entries for {self.count} samples")

    def to_json(self) -> dict[str, Any]:
        """Return a dictionary for the sidecar."""
        data: dict[str, Any] = _ADAPTER.dump_python(self, by_alias=True, exclude_defaults=True)
        return data


_ADAPTER = TypeAdapter(ShardIndex)


def shard_path(directory: Path, number: int) -> Path:
    """Return the path of a shard's tar."""
    return directory / f"shard-{number:05d}.tar"


def read_index(path: Path) -> ShardIndex:
    """Read the sidecar of a shard, at the path of either; raise ShardError if it is not this shard's."""
    sidecar = sidecar_path(path)
    tar = sidecar.with_suffix(".tar")
    try:
        text = sidecar.read_bytes()
    except FileNotFoundError as error:
        raise ShardError(f"shard {tar} is incomplete: its sidecar {sidecar.name} is missing; {FIX}") from error
    except OSError as error:
        raise ShardError(f"cannot read the sidecar {sidecar}: {error.strerror}") from error
    try:
        index = _ADAPTER.validate_json(text)
    except ValidationError as error:
        faults = [f"{'.'.join(map(str, each['loc'])) or 'sidecar'}: {each['msg']}" for each in error.errors()]
        raise ShardError(f"the sidecar {sidecar} is damaged: {'; '.join(faults[:3])}; {FIX}") from error
    if index.shard != tar.name:
        raise ShardError(f"the sidecar {sidecar} describes {index.shard!r}: was it renamed or copied? {FIX}")
    return index


def verify_shard(path: Path, deep: bool) -> ShardIndex:
    """Return the index of a shard whose sidecar and size are right, if deep its contents too, or raise ShardError."""
    index = read_index(path)
    tar = sidecar_path(path).with_name(index.shard)
    check_size(tar, index.bytes)
    if deep:
        _verify_contents(tar, index)
    return index


def check_size(tar: Path, expected: int) -> None:
    """Raise ShardError unless a tar is there and has the size that its sidecar says."""
    try:
        size = tar.stat().st_size
    except FileNotFoundError as error:
        raise ShardError(f"shard {tar} is missing although its sidecar is there; {FIX}") from error
    if size != expected:
        raise ShardError(f"shard {tar} has {size} bytes, its sidecar says {expected}: cut short or overwritten; {FIX}")


def check_digest(tar: Path, expected: str) -> None:
    """Raise ShardError unless the sha256 of a tar is the one that its sidecar says."""
    with tar.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != expected:
        raise ShardError(f"shard {tar} has sha256 {digest}, its sidecar says {expected}: the tar was changed; {FIX}")


def _verify_contents(tar: Path, index: ShardIndex) -> None:
    check_digest(tar, index.sha256)
    expected = {
        f"{key}.{name}": (table.offset[row], table.size[row])
        for name, table in index.members.items()
        for row, key in enumerate(index.keys)
    }
    with damage_as(ShardError, f"shard {tar} cannot be read", FIX), tarfile.open(tar, "r:") as archive:
        found = {member.name: (member.offset_data, member.size) for member in archive}
    if found != expected:
        wrong = sorted(name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name))
        raise ShardError(f"the sidecar of shard {tar} is wrong about {len(wrong)} members, first {wrong[0]}; {FIX}")
