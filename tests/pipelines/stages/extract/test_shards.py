"""A split that has grown reuses complete shards of the same records from its last version, and nothing else."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipelines.config import PipelineConfig, load_config
from pipelines.runtime.stage import StageError
from pipelines.stages.extract import plan as extract
from pipelines.stages.extract.plan import Split
from pipelines.stages.extract.shards import reuse_shards
from preprocessing.captions.graph_shards import GraphCounts, counts_path
from preprocessing.extraction.extract import extract_shard
from preprocessing.shards.index import read_index, verify_shard
from preprocessing.shards.reader import ShardReader
from preprocessing.storage.atomic import write_json_atomic
from preprocessing.storage.base import LocalStorage, StorageError
from preprocessing.storage.elsewhere import ELSEWHERE
from preprocessing.storage.mirror import sidecar_path, table_path
from tests.pipelines.stages.extract.test_checks import Numbers
from vse_core.digests import sealed, unsealed


@pytest.fixture(params=["disk", "storage"])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> list[str]:
    """Shards of three images on this machine alone, or kept on a storage as well."""
    address = [] if request.param == "disk" else [f"storage.address={tmp_path / 'storage'}"]
    return ["features.shard_size=3", "training.batch_size=4", f"work_dir={tmp_path / 'work'}", *address]


def loaded(settings: list[str], images: int, *overrides: str) -> PipelineConfig:
    return load_config(None, [*settings, f"dataset.images={{train: {images}, dev: 4}}", *overrides])


def train_split(config: PipelineConfig) -> Split:
    return next(split for split in extract.splits_of(config) if split.name == "train")


def make(split: Split, shards: int | None = None) -> list[str]:
    """Make the missing shards, `shards` of them or all, as the stage does; returns their names."""
    made = []
    for spec in list(split.specs(split.missing()))[:shards]:
        extract_shard(spec, Numbers(), batch_size=2)
        split.directory.mirror.push(spec.path, table_path(spec.path), sidecar_path(spec.path))
        made.append(spec.path.name)
    return made


def grown(settings: list[str], images: int, shards: int | None = None, **overrides: Any) -> tuple[int, list[str]]:
    """Grow the split to a number of images; returns how many shards were reused, and which were made."""
    split = train_split(loaded(settings, images, *(f"{key}={value}" for key, value in overrides.items())))
    return reuse_shards(split.shard_set, split.version), make(split, shards)


def test_what_is_new_alone_is_made(settings: list[str], tmp_path: Path) -> None:
    """Oracle: the grown split made from nothing."""
    assert grown(settings, 7) == (0, ["shard-00000.tar", "shard-00001.tar", "shard-00002.tar"])
    assert grown(settings, 10) == (2, ["shard-00002.tar", "shard-00003.tar"])
    split = train_split(loaded(settings, 10))
    assert not split.missing()
    scratch = train_split(
        load_config(
            None,
            [
                "features.shard_size=3",
                "training.batch_size=4",
                f"work_dir={tmp_path}/scratch",
                "dataset.images={train: 10, dev: 4}",
            ],
        )
    )
    make(scratch)
    split.directory.pull()
    for path, expected in zip(split.shards, scratch.shards, strict=True):
        # On a storage a sidecar is that of the version which made the shard.
        assert replace(verify_shard(path, deep=True), fingerprint="") == replace(read_index(expected), fingerprint="")
        assert path.read_bytes() == expected.read_bytes()
        assert table_path(path).read_bytes() == table_path(expected).read_bytes()


def test_what_was_made_before_a_kill_counts_when_the_split_has_grown_again(settings: list[str]) -> None:
    grown(settings, 7)
    assert grown(settings, 10, shards=1) == (2, ["shard-00002.tar"])
    assert grown(settings, 13) == (3, ["shard-00003.tar", "shard-00004.tar"])


def test_other_settings_share_nothing(settings: list[str]) -> None:
    grown(settings, 7)
    assert grown(settings, 10, **{"features.random_seed": 1})[0] == 0
    assert grown(settings, 10, **{"dataset.seed": 1})[0] == 0


def test_two_data_sets_take_turns_in_a_work_folder(settings: list[str]) -> None:
    grown(settings, 7)
    assert grown(settings, 7, **{"dataset.seed": 1})[0] == 0
    assert grown(settings, 10) == (2, ["shard-00002.tar", "shard-00003.tar"])
    assert grown(settings, 10, **{"dataset.seed": 1}) == (2, ["shard-00002.tar", "shard-00003.tar"])
    assert grown(settings, 13) == (3, ["shard-00003.tar", "shard-00004.tar"])
    directory = train_split(loaded(settings, 13)).directory
    (record,) = directory.path.parent.glob("newest-*.json")
    content = unsealed(json.loads(record.read_text()), record)
    assert content["fingerprint"] == directory.fingerprint
    assert len(content["others"]) == 1  # a version takes the place of the one that it has shards of


def test_a_version_that_was_pruned_while_another_data_set_was_newest_is_made_again(settings: list[str]) -> None:
    for images in (7, 10):
        grown(settings, images)
    grown(settings, 7, **{"dataset.seed": 1})
    directory = train_split(loaded(settings, 10)).directory
    directory.mirror.remove(directory.path)
    made = [f"shard-{number:05d}.tar" for number in range(4)]
    assert grown(settings, 10) == (0, made)
    assert not train_split(loaded(settings, 10)).missing()


def test_a_shard_that_is_not_whole_is_made(settings: list[str]) -> None:
    grown(settings, 7)
    split = train_split(loaded(settings, 7))
    split.directory.mirror.drop(sidecar_path(split.shards[0]))
    assert grown(settings, 10) == (1, ["shard-00000.tar", "shard-00002.tar", "shard-00003.tar"])


def test_a_damaged_record_of_the_last_version_is_told(settings: list[str], caplog: pytest.LogCaptureFixture) -> None:
    grown(settings, 7)
    directory = train_split(loaded(settings, 7)).directory
    (record,) = directory.path.parent.glob("newest-*.json")
    record.write_text('{"fingerprint": ')
    directory.mirror.push(record)
    assert grown(settings, 10)[0] == 0
    assert f"{record} is damaged" in caplog.text


def test_what_belongs_to_a_shard_comes_along(settings: list[str]) -> None:
    """As in parsing, whose shards have counts next to them; a shard without is made again."""
    grown(settings, 7)
    split, later = (train_split(loaded(settings, images)) for images in (7, 10))
    counts = counts_path(split.shards[1])
    write_json_atomic(counts, GraphCounts().model_dump())
    split.directory.mirror.push(counts)
    assert reuse_shards(later.shard_set, later.version, counts_path) == 1
    later.directory.pull()
    assert counts_path(later.shards[1]).read_bytes() == counts.read_bytes()
    assert not later.shards[0].exists()


def test_another_machine_takes_over_on_the_storage(tmp_path: Path) -> None:
    """No bytes of the shards come to the machine that only finds them to be there."""
    shared = ["features.shard_size=3", "training.batch_size=4", f"storage.address={tmp_path / 'storage'}"]
    grown([*shared, f"work_dir={tmp_path / 'one'}"], 7)
    other = [*shared, f"work_dir={tmp_path / 'other'}"]
    assert grown(other, 10) == (2, ["shard-00002.tar", "shard-00003.tar"])
    split = train_split(loaded(other, 10))
    assert not split.missing()
    assert [path.exists() for path in split.shards] == [False, False, True, True]
    split.directory.pull()
    for path in split.shards:
        verify_shard(path, deep=True)


def stored_shards(storage: Path) -> set[str]:
    return {path.relative_to(storage).as_posix() for path in storage.rglob("shard-*.tar")}


def test_versions_name_shards_where_they_are(tmp_path: Path) -> None:
    """On a storage, where each stays until the last version that names it is removed."""
    storage = tmp_path / "storage"
    shared = ["features.shard_size=3", "training.batch_size=4", f"storage.address={storage}"]
    settings = [*shared, f"work_dir={tmp_path / 'work'}"]
    assert [grown(settings, images)[0] for images in (7, 10, 13)] == [0, 2, 3]
    first, second, third = (train_split(loaded(settings, images)) for images in (7, 10, 13))
    names = [split.directory.path.name for split in (first, second, third)]
    made = {names[0]: (0, 1, 2), names[1]: (2, 3), names[2]: (3, 4)}
    every = {f"extract/train/{name}/shard-{number:05d}.tar" for name in made for number in made[name]}
    assert stored_shards(storage) == every
    assert first.shards[0].samefile(third.shards[0])

    mirror = first.directory.mirror
    mirror.remove(first.directory.path)
    mirror.remove(second.directory.path)
    gone = {f"extract/train/{names[0]}/shard-00002.tar", f"extract/train/{names[1]}/shard-00003.tar"}
    assert stored_shards(storage) == every - gone
    other = train_split(loaded([*shared, f"work_dir={tmp_path / 'other'}"], 13))
    other.directory.pull()
    assert [verify_shard(path, deep=True).count for path in other.shards] == [3, 3, 3, 3, 1]
    assert len(ShardReader(other.directory.path, "grid")) == 13
    without = train_split(
        load_config(None, [*settings[:2], f"work_dir={tmp_path / 'other'}", "dataset.images={train: 13, dev: 4}"])
    )
    assert not without.missing()

    mirror.drop(sidecar_path(third.shards[1]), table_path(third.shards[1]), third.shards[1])
    assert third.missing() == {third.shards[1]}
    assert make(third) == ["shard-00001.tar"]
    assert grown(settings, 7) == (2, ["shard-00002.tar"])  # the data are again what they were
    mirror.remove(third.directory.path)
    assert stored_shards(storage) == {f"extract/train/{names[0]}/shard-0000{number}.tar" for number in range(3)}
    mirror.remove(first.directory.path)
    assert [path.name for path in storage.rglob("*") if path.is_file()] == [next(storage.rglob("newest-*.json")).name]


def test_a_named_shard_that_is_gone_is_made_again(tmp_path: Path) -> None:
    storage = tmp_path / "storage"
    settings = ["features.shard_size=3", "training.batch_size=4", f"storage.address={storage}"]
    grown([*settings, f"work_dir={tmp_path / 'one'}"], 7)
    grown([*settings, f"work_dir={tmp_path / 'one'}"], 10)
    first, second = (train_split(loaded([*settings, f"work_dir={tmp_path / 'two'}"], images)) for images in (7, 10))
    (storage / "extract" / "train" / first.directory.path.name / "shard-00000.tar").unlink()
    assert second.missing() == {second.shards[0]}
    assert make(second) == ["shard-00000.tar"]
    third = train_split(loaded([*settings, f"work_dir={tmp_path / 'three'}"], 10))
    with third.directory.mirror.pinned_shard(third.shards[0]):
        verify_shard(third.shards[0], deep=True)

    listed = second.directory.path / ELSEWHERE
    for damage in ("{", "[]", '{"shard-00001.tar": ["a"]}'):
        listed.write_text(damage)
        with pytest.raises(StorageError, match=r"elsewhere\.json \(.*\); remove it, on the storage too, and run"):
            second.directory.mirror.elsewhere(second.directory.path)


def test_requests_of_a_version_do_not_grow_with_what_it_reuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    for name in ("list", "find", "read", "download", "upload", "delete"):
        ask = getattr(LocalStorage, name)
        monkeypatch.setattr(LocalStorage, name, lambda *given, ask=ask, name=name: asked.append(name) or ask(*given))
    requests = []
    for images in (30, 300):
        settings = ["features.shard_size=3", f"work_dir={tmp_path}/{images}", f"storage.address={tmp_path}/s{images}"]
        grown(settings, images)
        asked.clear()
        assert grown(settings, images + 3) == (images // 3, [f"shard-{images // 3:05d}.tar"])
        split = train_split(loaded(settings, images + 3))
        split.directory.pull()
        requests.append(Counter(asked))
        with split.directory.mirror.pinned_shard(split.shards[0]):
            assert Counter(asked) == requests[-1]
    assert requests[0] == requests[1]


def test_a_record_of_shards_elsewhere_is_refused(settings: list[str], tmp_path: Path) -> None:
    assert grown(settings, 7)[0] == 0
    for record in tmp_path.rglob("newest-*.json"):
        changed = unsealed(json.loads(record.read_text()), record) | {"fingerprint": "../../elsewhere"}
        record.write_text(json.dumps(sealed(changed)))
    with pytest.raises(StageError, match=r"newest-.*\.json: the name '\.\./\.\./elsewhere' is not a path inside"):
        grown(settings, 10)
