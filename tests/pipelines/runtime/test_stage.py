"""Fingerprints, stage directories and plans."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

from pipelines.runtime.stage import (
    MANIFEST,
    StageDir,
    StageError,
    check_output,
    check_outputs,
    fingerprint,
    manifest_in,
)
from preprocessing.storage.base import LocalStorage, StorageError
from preprocessing.storage.mirror import Mirror
from vse_core.digests import DIGESTS, DigestError, check_digests, write_digests


def test_a_fingerprint_is_the_sha256_of_canonical_json() -> None:
    r"""Oracle: `printf %s '{"a":[1,2.5,null],"b":"\u00e9"}' | sha256sum`."""
    expected = "45584828a616e524473fb887d415f828918fb9676efdaa57c062231771111499"
    assert fingerprint({"b": "é", "a": (1, 2.5, None)}) == expected
    assert fingerprint({"b": "é", "a": ["1", 2.5, None]}) != expected


def test_a_directory_is_complete_with_its_manifest(tmp_path: Path) -> None:
    stage = StageDir(tmp_path, "extract/train", "ab" * 32)
    assert not stage.is_complete()
    assert stage.create() == tmp_path / "extract" / "train" / "abababababababab"
    assert not stage.is_complete()
    with pytest.raises(StageError, match="has not finished"):
        stage.read_manifest()
    stage.complete({"count": 3}, [])
    assert stage.is_complete()
    content = {"count": 3, "stage": "extract/train", "fingerprint": "ab" * 32}
    assert stage.read_manifest() == {**content, "digests": {}}
    # The directory's name holds a part of the fingerprint only.
    assert not StageDir(tmp_path, "extract/train", "ab" * 8 + "cd" * 24).is_complete()


def test_what_is_complete_on_the_storage_is_complete_on_every_machine(tmp_path: Path) -> None:
    here, there = (
        StageDir(tmp_path / name, "train", "ab" * 32, Mirror(tmp_path / name, str(tmp_path / "storage")))
        for name in ("here", "there")
    )
    (here.create() / "gallery").mkdir()
    for name in ("model", "gallery/items", "shard-0.tar", "lease.json", ".model.tmp", "left by another"):
        (here.path / name).write_text(name)
    here.complete({"count": 3}, ["model", "gallery", "shard-0.tar"])
    assert here.is_complete()
    assert there.is_complete()
    assert there.read_manifest()["count"] == 3
    assert set(there.read_manifest()["digests"]) == {"model", "gallery/items"}
    assert not (there.path / "model").exists()
    there.pull()
    assert set(there.mirror.stored(there.path)) == {"model", "gallery/items", "shard-0.tar", MANIFEST}
    assert {path.name for path in there.path.rglob("*.*")} == {"shard-0.tar", MANIFEST}
    assert (there.path / "gallery/items").read_text() == "gallery/items"
    check_outputs(there.path)


@pytest.mark.parametrize("way", ["the plan", "a worker", "the folder in it"])
def test_what_a_killed_machine_has_left_is_replaced_by_what_another_has_completed(tmp_path: Path, way: str) -> None:
    """Their hardware gives other results of the same sizes. A copy of a shard is bound by its sidecar's digest."""
    killed, other = (
        StageDir(tmp_path / name, "evaluate", "ab" * 32, Mirror(tmp_path / name, str(tmp_path / "storage")))
        for name in ("killed", "other")
    )
    shards = ("shard-00000.tar", "shard-00000.json", "shard-00001.tar", "shard-00001.json")
    for stage, own in ((killed, "1"), (other, "2")):
        (stage.create() / "best").mkdir()
        for name in ("embeddings", "best/model", *shards):
            (stage.path / name).write_text("same" if "00001" in name else own)
    kept = (killed.path / "shard-00001.tar").stat().st_ino
    (killed.path / "left by another").write_text("1")
    other.mirror.push_folder(other.path / "best")
    other.complete({}, ["embeddings", "best", *shards])
    {
        "the plan": killed.is_complete,
        "a worker": lambda: killed.mirror.pull(killed.path, lambda name: name == MANIFEST),
        "the folder in it": lambda: killed.mirror.pull_folder(killed.path / "best"),
    }[way]()
    assert (killed.path / "best/model").read_text() == "2"
    killed.mirror.pull(killed.path)
    for name in ("embeddings", "best/model", *shards):
        assert (killed.path / name).read_text() == (other.path / name).read_text()
    check_outputs(killed.path)
    assert (killed.path / "shard-00001.tar").stat().st_ino == kept  # not copied again
    assert (killed.path / "left by another").read_text() == "1"


def test_a_manifest_that_did_not_reach_the_storage_does_not_hide_that_of_another_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: LocalStorage, path: Path, name: str) -> None:
        if name.endswith(MANIFEST):
            raise StorageError("no answer")

    cut_off, other = (
        StageDir(tmp_path / name, "train", "ab" * 32, Mirror(tmp_path / name, str(tmp_path / "storage")))
        for name in ("cut off", "other")
    )
    for stage, own in ((cut_off, "1"), (other, "2")):
        (stage.create() / "model").write_text(own)
    with monkeypatch.context() as patched:
        patched.setattr(LocalStorage, "upload", refuse)
        with pytest.raises(StorageError, match="no answer"):
            cut_off.complete({}, ["model"])
    other.complete({}, ["model"])
    assert cut_off.is_complete()
    assert cut_off.read_manifest() == other.read_manifest()
    assert (cut_off.path / "model").read_text() == "2"


def test_the_lease_that_an_earlier_version_has_listed_is_not_an_output(tmp_path: Path) -> None:
    storage, folder = tmp_path / "storage", f"train/{'ab' * 8}"
    here, there = (
        StageDir(tmp_path / name, "train", "ab" * 32, Mirror(tmp_path / name, str(storage))) for name in ("1", "2")
    )
    for name in ("model", "lease.json"):
        (here.create() / name).write_text(name)
        write_digests(here.path, "model", "lease.json")
    here.complete({}, ["model", "lease.json", DIGESTS])
    (storage / folder / "lease.json").write_text("renewed")
    there.is_complete()
    there.pull()
    assert {path.name for path in there.path.iterdir()} == {"model", DIGESTS, MANIFEST}
    check_outputs(there.path)
    check_digests(there.path)


def test_what_the_storage_does_not_take_is_not_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: LocalStorage, path: Path, name: str) -> None:
        raise StorageError("refused")

    stage = StageDir(tmp_path / "work", "train", "ab" * 32, Mirror(tmp_path / "work", str(tmp_path / "storage")))
    (stage.create() / "model").write_text("weights")
    with monkeypatch.context() as patched:
        patched.setattr(LocalStorage, "upload", refuse)
        with pytest.raises(StorageError, match="refused"):
            stage.complete({"count": 3}, ["model"])
    assert not stage.is_complete()
    stage.complete({"count": 3}, ["model"])
    assert stage.is_complete()


@pytest.mark.parametrize("text", ["{", "[]", "{}", "[" * 100_000, '{"fingerprint": 1e999}'])
def test_a_damaged_manifest_is_named(tmp_path: Path, text: str) -> None:
    stage = StageDir(tmp_path, "train", "ab" * 32)
    (stage.create() / MANIFEST).write_text(text)
    with pytest.raises((StageError, DigestError), match=MANIFEST):
        stage.is_complete()


def test_what_a_manifest_lacks_is_named(tmp_path: Path) -> None:
    stage = StageDir(tmp_path, "train", "ab" * 32)
    stage.complete({"counts": {"images": 3}}, [])
    manifest = pickle.loads(pickle.dumps(stage.read_manifest()))
    assert manifest["counts"] == {"images": 3}
    with pytest.raises(StageError, match=f"{MANIFEST} has no 'best': delete it and run the stage again"):
        stage.read_manifest()["best"]
    with pytest.raises(StageError, match="has no 'captions'"):
        stage.read_manifest()["counts"]["captions"]


def test_an_edited_manifest_is_told(tmp_path: Path) -> None:
    stage = StageDir(tmp_path, "evaluate", "ab" * 32)
    stage.complete({"metrics": {"rsum": 221.5}}, [])
    path = stage.path / MANIFEST
    path.write_text(path.read_text().replace("221.5", "521.5"))
    for read in (stage.is_complete, stage.read_manifest, lambda: manifest_in(stage.path)):
        with pytest.raises(DigestError, match=r"manifest\.json was changed after it was written: .*: delete it"):
            read()


def test_keys_of_an_earlier_version_are_read(tmp_path: Path) -> None:
    stage = StageDir(tmp_path, "extract/train", "ab" * 32)
    stage.complete({"set_aside": [{"image": "x.jpg"}], "counts": {"shards_taken_over": 2}}, [])
    assert stage.read_manifest()["skipped"] == [{"image": "x.jpg"}]
    assert stage.read_manifest()["counts"] == {"reused_shards": 2}


def test_manifests_of_other_formats(tmp_path: Path) -> None:
    """Format 1 has no digest of itself and is taken up, format 0 no digests of the outputs: those are made again."""
    stage = StageDir(tmp_path, "evaluate", "ab" * 32)
    (stage.create() / "gallery").write_text("vectors")
    stage.complete({"metrics": {"rsum": 221.5}}, ["gallery"])
    path = stage.path / MANIFEST
    record = json.loads(path.read_text())
    older = {key: value for key, value in record.items() if key not in ("sha256", "format")}
    path.write_text(json.dumps(older))
    assert stage.is_complete()
    check_outputs(stage.path)
    check_output(stage.path, "not listed")
    (stage.path / "gallery").write_text("others")
    for check in (check_outputs, lambda folder: check_output(folder, "gallery")):
        with pytest.raises(DigestError, match="gallery is damaged"):
            check(stage.path)
    path.write_text(json.dumps({key: value for key, value in older.items() if key != "digests"}))
    assert not stage.is_complete()
    path.write_text(json.dumps(record | {"format": 3}))
    with pytest.raises(DigestError, match="has format 3, of a later version; this version reads formats up to 2"):
        stage.is_complete()
