"""Images added to a split, and images removed from it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from preprocessing.datasets import Caption, Record, build_dataset
from preprocessing.extraction.split_hashes import DataManifest, DatasetDiff


class ListDataset:
    """A data set that is given: image -> its captions."""

    splits = ("train",)

    def __init__(self, root: Path, images: dict[str, Sequence[str]]) -> None:
        self.root, self._images = str(root), images

    def records(self, split: str) -> Iterator[Record]:
        for name, texts in self._images.items():
            captions = tuple(Caption(f"{name}#{number}", text) for number, text in enumerate(texts))
            yield Record(name, f"{self.root}/{name}", split, captions)


BEFORE = {"a.jpg": ["a dog", "a black dog"], "b.jpg": ["a cat"]}


@pytest.mark.parametrize(
    ("after", "growth", "text"),
    [
        (BEFORE, DatasetDiff(), "as before"),
        (dict(reversed(BEFORE.items())), DatasetDiff(), "as before"),
        ({**BEFORE, "c.jpg": ["x", "y"]}, DatasetDiff(1, 0, 2, 0), "+1 images, +2 captions"),
        ({**BEFORE, "b.jpg": ["a cat", "two cats"]}, DatasetDiff(0, 0, 1, 0), "+1 captions"),
        ({**BEFORE, "b.jpg": ["a dog"]}, DatasetDiff(0, 0, 1, 1), "+1 captions, -1 captions"),
        ({"b.jpg": ["a cat"]}, DatasetDiff(0, 1, 0, 2), "-1 images, -2 captions"),
        ({"a.jpg": ["a cat"], "b.jpg": ["a dog", "a black dog"]}, DatasetDiff(0, 0, 3, 3), "+3 captions, -3 captions"),
    ],
)
def test_changes_are_counted(tmp_path: Path, after: dict[str, Sequence[str]], growth: DatasetDiff, text: str) -> None:
    before = DataManifest.of(ListDataset(tmp_path, BEFORE), "train")
    found = DataManifest.of(ListDataset(tmp_path, after), "train").since(before)
    assert found == growth
    assert str(found) == text


def test_a_file_that_has_changed_is_another_image(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(b"1")
    before = DataManifest.of(ListDataset(tmp_path, BEFORE), "train")
    (tmp_path / "a.jpg").write_bytes(b"22")
    assert DataManifest.of(ListDataset(tmp_path, BEFORE), "train").since(before) == DatasetDiff(1, 1, 0, 0)


def test_all_is_new_at_first() -> None:
    manifest = DataManifest.of(ListDataset(Path("/nowhere"), BEFORE), "train")
    assert manifest.since(None) == DatasetDiff(2, 0, 3, 0)


def test_archives_are_compared_without_being_opened(tmp_path: Path) -> None:
    (tmp_path / "0.tar").write_bytes(b"no archive at all")
    dataset = build_dataset("webdataset", folders={"train": tmp_path})
    before = DataManifest.of(dataset, "train")
    assert str(before.since(None)) == "+1 archives"
    (tmp_path / "1.tar").write_bytes(b"another")
    assert str(DataManifest.of(dataset, "train").since(before)) == "+1 archives"
    (tmp_path / "0.tar").write_bytes(b"of another size")
    assert str(DataManifest.of(dataset, "train").since(before)) == "+2 archives, -1 archives"
    before.save(tmp_path / "data.npz")
    assert DataManifest.load((tmp_path / "data.npz").read_bytes()).since(before) == DatasetDiff()


def test_it_is_read_as_it_was_written(tmp_path: Path) -> None:
    manifest = DataManifest.of(ListDataset(tmp_path, BEFORE), "train")
    manifest.save(tmp_path / "data.npz")
    assert DataManifest.load((tmp_path / "data.npz").read_bytes()).since(manifest) == DatasetDiff()
    assert (tmp_path / "data.npz").stat().st_size < 1000


def test_new_images_are_those_that_an_earlier_state_lacked_or_had_with_another_file(tmp_path: Path) -> None:
    before = DataManifest.of(ListDataset(tmp_path, BEFORE), "train")
    assert before.new_images == set(), "without an earlier state"
    (tmp_path / "a.jpg").write_bytes(b"another image")
    now = DataManifest.of(ListDataset(tmp_path, {**BEFORE, "c.jpg": ["three"]}), "train", before=before)
    assert now.new_images == {"a.jpg", "c.jpg"}
    assert now.since(before) == DatasetDiff(new_images=2, gone_images=1, new_captions=1)


def test_a_row_that_is_added_to_an_array_does_not_make_the_others_new(tmp_path: Path) -> None:
    rows = {f"train_ims.npy#{row}": [f"caption {row}"] for row in range(3)}
    (tmp_path / "train_ims.npy").write_bytes(b"three rows")
    before = DataManifest.of(ListDataset(tmp_path, rows), "train")
    (tmp_path / "train_ims.npy").write_bytes(b"four rows")
    now = DataManifest.of(ListDataset(tmp_path, {**rows, "train_ims.npy#3": ["new"]}), "train", before=before)
    assert now.new_images == set()
    assert now.since(before).new_captions == 1


def test_a_caption_is_known_by_its_ids_and_its_text(tmp_path: Path) -> None:
    manifest = DataManifest.of(ListDataset(tmp_path, {"a": ["one", "two"]}), "train")
    assert manifest.has_caption("a", "a#0", "one")
    assert not manifest.has_caption("a", "a#0", "another")
    assert not DataManifest().has_caption("a", "a#0", "one")
