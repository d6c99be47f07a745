"""Files of adversarial captions: a round trip, the counts, and damaged files."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preprocessing.captions.adversarial.files import (
    Adversarial,
    AdversarialError,
    AttackReport,
    read_adversarials,
    write_adversarials,
)

ENTRIES = [
    Adversarial("one", "one#0", "object", "a dog", ("a cat", "an owl")),
    Adversarial("one", "one#1", "object", "a puppy", ("a cat",), "too few"),
    Adversarial("two", "two#0", "object", "", (), "an empty caption"),
    Adversarial("two", "two#1", "object", "", (), "an empty caption"),
]
entries = st.builds(Adversarial, st.text(), st.text(), st.text(), st.text(), st.lists(st.text()).map(tuple), st.text())


@given(st.lists(entries))
def test_round_trip(tmp_path_factory: pytest.TempPathFactory, written: list[Adversarial]) -> None:
    path = tmp_path_factory.mktemp("adversarial") / "object.jsonl"
    write_adversarials(path, written)
    assert read_adversarials(path) == written


def test_every_caption_is_counted(tmp_path: Path) -> None:
    report = write_adversarials(tmp_path / "object.jsonl", ENTRIES)
    assert report == AttackReport(captions=4, complete=1, impossible=2, adversarials=3)


def test_one_line_for_each_caption(tmp_path: Path) -> None:
    path = tmp_path / "object.jsonl"
    write_adversarials(path, ENTRIES)
    first = path.read_bytes()
    assert first.count(b"\n") == 4
    assert first.splitlines()[0] == (
        b'{"image_id": "one", "caption_id": "one#0", "attack": "object", "caption": "a dog", '
        b'"texts": ["a cat", "an owl"], "reason": ""}'
    )
    write_adversarials(path, iter(ENTRIES))
    assert path.read_bytes() == first


@pytest.mark.parametrize(
    "line",
    [
        "",
        "[]",
        "{}",
        '{"image_id": "one"}',
        '{"image_id": 1, "caption_id": "", "attack": "", "caption": "", "texts": []}',
    ],
)
def test_a_damaged_line_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "object.jsonl"
    write_adversarials(path, ENTRIES[:1])
    path.write_bytes(path.read_bytes() + line.encode() + b"\n")
    with pytest.raises(AdversarialError, match=r"object\.jsonl, line 2"):
        read_adversarials(path)
