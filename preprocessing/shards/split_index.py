"""The places of a split's samples in its shards: read from the sidecars, or memory-mapped from arrays made of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from preprocessing.reading import damage_as, parse_json
from preprocessing.shards.index import (
    FIX,
    MemberTable,
    ShardError,
    ShardIndex,
    check_size,
    read_index,
    shard_path,
    verify_shard,
)
from preprocessing.shards.open_shards import TarFile
from preprocessing.storage.atomic import open_atomic, write_json_atomic
from preprocessing.storage.elsewhere import named_elsewhere

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_SHARD = re.compile(r"shard-(\d{5,})\.(tar|json)")
# Members that are files; any other feature is an array, "<name>.npy".
FILES = ("jpg",)

_SHARDS = "shards.json"


def shard_paths(directory: Path) -> list[Path]:
    """Return the paths of the tars by number, after checking that none is missing."""
    try:
        found = {int(match[1]) for entry in directory.iterdir() if (match := _SHARD.fullmatch(entry.name))}
    except OSError as error:
        raise ShardError(f"cannot read {directory}: {error.strerror}; run the extraction first") from error
    if not found:
        raise ShardError(f"there are no shards (shard-00000.tar, ...) in {directory}: run the extraction first")
    missing = sorted(set(range(max(found) + 1)) - found)
    if missing:
        raise ShardError(f"shard {shard_path(directory, missing[0])} is missing ({len(missing)} in all); {FIX}")
    return [shard_path(directory, number) for number in sorted(found)]


@dataclass(frozen=True, eq=False)
class SplitIndex:
    """The places of one kind of member of I images in S shards, as arrays, whose files all processes map.

    Attributes:
        tars: of all shards, by number.
        first_images: number of each shard's first image, then that of all images, int64 (S + 1,).
        caption_starts: flat number of each image's first caption, then that of all captions, int64 (I + 1,).
        places: offsets and sizes of the members, int64 (2, I).
        checksums: of the members (XXH3), uint64 (I,); empty if a shard was written before there were such.
    """

    tars: Sequence[TarFile]
    first_images: npt.NDArray[np.int64]
    caption_starts: npt.NDArray[np.int64]
    places: npt.NDArray[np.int64]
    checksums: npt.NDArray[np.uint64]

    @classmethod
    def read(cls, directory: Path, feature: str, are_here: bool) -> Self:
        """Read the sidecars of a directory, and compare the tars with their sizes if they are here.

        ShardError if a shard is missing, incomplete, of another fingerprint or without the feature.
        """
        member = feature if feature in FILES else f"{feature}.npy"
        tars, counts, places, checksums = [], [], [], []
        own: ShardIndex | None = None
        named = named_elsewhere(directory)
        for path in shard_paths(directory):
            index = verify_shard(path, deep=False) if are_here else read_index(path)
            tars.append(TarFile(path, index.bytes, index.sha256))
            if path.name not in named:  # else it is an earlier version's
                own = own or index
                if own.fingerprint != index.fingerprint:
                    raise ShardError(f"{path} comes from another run than {own.shard}; delete the older, extract again")
            counts.append(np.array(index.caption_counts, dtype=np.int64))
            places.append(member_places(path, index, member))
            checksums.append(np.array(member_table(path, index, member).checksum, dtype=np.uint64))
        return cls(
            tars,
            _starts([len(each) for each in counts]),
            _starts(np.concatenate(counts)),
            np.concatenate(places, axis=1),
            np.concatenate(checksums) if list(map(len, checksums)) == list(map(len, counts)) else checksums[0][:0],
        )

    def save(self, directory: Path) -> None:
        """Write the arrays and the shards' sizes and hashes into a directory."""
        save_fields(self, directory)
        tars = [[tar.bytes, tar.sha256] for tar in self.tars]
        write_json_atomic(directory / _SHARDS, {"tars": tars})

    @classmethod
    def load(cls, directory: Path, shards: Path, are_here: bool) -> Self:
        """Map the arrays that :meth:`save` has written, and compare the shards with their sizes if they are here.

        Raises ShardError if a shard is missing or of another size, or the arrays are damaged.
        """
        with damage_as(ShardError, f"the index in {directory} cannot be read", "delete it and train again"):
            content = parse_json((directory / _SHARDS).read_bytes())
            tars = [TarFile(shard_path(shards, number), *tar) for number, tar in enumerate(content["tars"])]
            for tar in tars if are_here else []:
                check_size(tar.path, tar.bytes)
            return cls(tars, **map_fields(cls, directory, "tars"))


def save_fields(table: DataclassInstance, directory: Path) -> None:
    """Write the arrays among the fields of a table as NAME.npy, atomically: who has mapped the one before keeps it."""
    for field in fields(table):
        if isinstance(array := getattr(table, field.name), np.ndarray):
            with open_atomic(directory / f"{field.name}.npy") as file:
                np.save(file, array)


def map_fields(kind: type[Any], directory: Path, *others: str) -> dict[str, npt.NDArray[Any]]:
    """Map the arrays of a kind of table but for other fields, by name; ShardError if one is missing or damaged.

    Processes share a mapped array's pages, and only those in use take memory.
    """
    with damage_as(ShardError, f"the tables in {directory} cannot be read", "delete the folder and train again"):
        names = [field.name for field in fields(kind) if field.name not in others]
        mapped = {name: np.load(directory / f"{name}.npy", mmap_mode="r", allow_pickle=False) for name in names}
        # Without the subclass, whose every element and slice would be an object with a file.
        return {name: np.asarray(array) for name, array in mapped.items()}


def _starts(counts: Sequence[int] | npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


def member_places(path: Path, index: ShardIndex, member: str) -> npt.NDArray[np.int64]:
    """Return offsets and sizes of one kind of member in a shard, shape (2, samples)."""
    table = member_table(path, index, member)
    return np.array([table.offset, table.size], dtype=np.int64)


def member_table(path: Path, index: ShardIndex, member: str) -> MemberTable:
    """Return the table of one kind of member in a shard; ShardError if it has others."""
    if index.count and member not in index.members:
        raise ShardError(f"shard {path} holds {sorted(index.members)}, not {member!r}: name one of those as feature")
    return index.members.get(member, MemberTable([], []))
