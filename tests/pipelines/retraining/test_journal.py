"""The journal of retrainings, on this machine or on a storage that the next machine reads."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import numpy as np
import pytest

from pipelines.retraining.journal import LAST, LOG, RECORD, START, STATUS, Journal
from preprocessing.extraction.split_hashes import DataManifest
from preprocessing.storage.mirror import Mirror
from vse_core.digests import DigestError

IDENTITY = "ab" * 32


@pytest.fixture(params=["the same machine", "another machine"])
def journals(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Journal, Journal]:
    """The journal of one start, and that of the next one."""
    if request.param == "the same machine":
        journal = Journal(tmp_path / "retrain", Mirror(tmp_path))
        return journal, journal
    mirrors = [Mirror(tmp_path / name, str(tmp_path / "storage")) for name in ("one", "other")]
    first, second = (Journal(mirror.root / "retrain", mirror) for mirror in mirrors)
    return first, second


def test_the_record_of_the_last_one(journals: tuple[Journal, Journal]) -> None:
    first, second = journals
    assert second.last() is None
    first.finish(IDENTITY, {"outcome": "refused"})
    first.finish("cd" * 32, {"outcome": "promoted"})
    assert second.last() == {"outcome": "promoted"}
    assert json.loads((first.of(IDENTITY) / RECORD).read_text())["outcome"] == "refused"
    assert json.loads((first.folder / LAST).read_text())["outcome"] == "promoted"


def test_a_changed_record_is_told_and_one_of_the_format_before_is_read(tmp_path: Path) -> None:
    journal = Journal(tmp_path, Mirror(tmp_path))
    journal.finish(IDENTITY, {"outcome": "refused"})
    path = tmp_path / LAST
    path.write_text(path.read_text().replace("refused", "promoted"))
    with pytest.raises(DigestError, match=r"last\.json was changed after it was written"):
        journal.last()
    path.write_text(json.dumps({"outcome": "promoted"}))
    assert journal.last() == {"outcome": "promoted"}


def test_what_it_began_with_is_chosen_once(journals: tuple[Journal, Journal]) -> None:
    """The champion may have changed since, by this very retraining."""
    first, second = journals
    assert first.once(IDENTITY, START, lambda: {"version": 3}) == {"version": 3}
    assert second.once(IDENTITY, START, lambda: {"version": 4}) == {"version": 3}
    assert second.once("cd" * 32, START, lambda: {"version": 4}) == {"version": 4}


def test_what_the_data_consisted_of(journals: tuple[Journal, Journal]) -> None:
    first, second = journals
    assert second.data(IDENTITY, "train") is None
    manifest = DataManifest(np.array([1, 2], np.uint64), np.array([3], np.uint64))
    first.keep_data(IDENTITY, "train", manifest)
    found = second.data(IDENTITY, "train")
    assert found is not None
    assert (found.images.tolist(), found.captions.tolist()) == ([1, 2], [3])


def test_a_storage_that_is_named_later_gets_what_is_here(tmp_path: Path) -> None:
    here, storage = tmp_path / "here", str(tmp_path / "storage")
    before = Journal(here / "retrain", Mirror(here))
    before.finish(IDENTITY, {"outcome": "promoted"})
    before.log("promoted", "version 1")
    before.keep_data(IDENTITY, "train", DataManifest(np.array([1], np.uint64), np.array([3], np.uint64)))
    shared = Journal(here / "retrain", Mirror(here, storage))
    shared.share()
    shared.log("nothing new", "as before")
    shared.status("nothing new")
    other = Journal(tmp_path / "other" / "retrain", Mirror(tmp_path / "other", storage))
    other.share()
    assert other.last() == {"outcome": "promoted"}
    assert other.data(IDENTITY, "train") is not None
    other.log("nothing new", "as before")
    assert len((other.folder / LOG).read_text().splitlines()) == 3
    (before.folder / "later").write_text("left by a start without the storage")
    shared.share()
    assert not (tmp_path / "storage" / "retrain" / "later").exists()


def test_a_line_for_each_start(journals: tuple[Journal, Journal]) -> None:
    first, second = journals
    first.log("promoted", "version 1")
    second.log("failed", "two\nlines")
    lines = (second.folder / LOG).read_text().splitlines()
    assert [re.sub(r"^\S+Z", "T", line) for line in lines] == ["T  promoted     version 1", "T  failed       two lines"]


def test_the_status_is_that_of_the_last_start(journals: tuple[Journal, Journal]) -> None:
    first, second = journals
    first.status("running", identity=IDENTITY)
    second.status("nothing new", last="yesterday")
    status = json.loads((second.folder / STATUS).read_text())
    assert (status["outcome"], status["last"], status["pid"]) == ("nothing new", "yesterday", os.getpid())
    assert "identity" not in status
