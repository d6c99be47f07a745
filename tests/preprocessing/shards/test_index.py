"""Sidecars: every kind of damage ends in one error that names the shard and says what to do."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from preprocessing.shards.index import ShardError, read_index, verify_shard

Change = Callable[[dict[str, Any]], Any]


def change_sidecar(directory: Path, change: Change) -> Path:
    path = directory / "shard-00000.json"
    data = json.loads(path.read_text())
    changed = change(data)
    path.write_text(json.dumps(data if changed is None else changed))
    return directory / "shard-00000.tar"


def put(key: str, value: Any) -> Change:
    return lambda data: data.update({key: value})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: [1], "sidecar: Input should be an object"),
        (put("version", 2), "version: Input should be 1"),
        (lambda data: data.pop("sha256") and None, "sha256: Field required"),
        (put("more", 1), "more: Unexpected keyword"),
        (put("count", 6), "7 entries for 6"),
        (put("count", "7"), "count"),
        (put("bytes", -1), "bytes"),
        (put("sha256", None), "sha256"),
        (put("keys", "0123456"), "keys"),
        (put("caption_counts", [1, 2]), "caption_counts"),
        (put("caption_counts", [-1] * 7), "caption_counts.0: Input should be greater than or equal to 0"),
        (put("set_aside", ["x"]), "set_aside"),
        (put("members", []), "members"),
        (put("members", {"grid.npy": {"offset": [0] * 7}}), "members.grid.npy.size: Field required"),
        (put("members", {"grid.npy": {"offset": [0] * 7, "size": [10**9] * 7}}), "past the end"),
        (put("members", {"grid.npy": {"offset": [0] * 7, "size": [1] * 6}}), "6 entries for 7"),
        (put("shard", "shard-00009.tar"), "shard-00009.tar"),
    ],
)
def test_a_damaged_sidecar_is_refused(shards: Path, change: Change, message: str) -> None:
    tar = change_sidecar(shards, change)
    with pytest.raises(ShardError, match=message) as error:
        read_index(tar)
    assert str(shards / "shard-00000.json") in str(error.value)
    assert "run the stage" in str(error.value)


def test_a_sidecar_that_is_no_json(shards: Path) -> None:
    for data in (b"", b"{", b"\xff\xfe", (shards / "shard-00000.json").read_bytes()[:-40]):
        (shards / "shard-00000.json").write_bytes(data)
        with pytest.raises(ShardError, match="damaged"):
            read_index(shards / "shard-00000.json")


def test_missing_files(shards: Path) -> None:
    (shards / "shard-00000.json").unlink()
    with pytest.raises(ShardError, match="incomplete"):
        verify_shard(shards / "shard-00000.tar", deep=False)
    (shards / "shard-00002.tar").unlink()
    with pytest.raises(ShardError, match=r"shard-00002.tar is missing"):
        verify_shard(shards / "shard-00002.tar", deep=False)


def test_a_truncated_tar_is_seen_without_reading_it(shards: Path) -> None:
    tar = shards / "shard-00000.tar"
    tar.write_bytes(tar.read_bytes()[:-512])
    with pytest.raises(ShardError, match="cut short"):
        verify_shard(tar, deep=False)


def test_a_changed_byte_is_seen_by_the_deep_check_only(shards: Path) -> None:
    tar = shards / "shard-00000.tar"
    data = bytearray(tar.read_bytes())
    data[700] ^= 1
    tar.write_bytes(data)
    verify_shard(tar, deep=False)
    with pytest.raises(ShardError, match="sha256"):
        verify_shard(tar, deep=True)


def test_wrong_offsets_are_seen_by_the_deep_check(shards: Path) -> None:
    def shift(data: dict[str, Any]) -> None:
        data["members"]["json"]["offset"][3] -= 512

    tar = change_sidecar(shards, shift)
    with pytest.raises(ShardError, match=r"wrong about 1 members, first 00000003\.json"):
        verify_shard(tar, deep=True)
