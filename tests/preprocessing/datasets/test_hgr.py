"""Videos in HGR's layout: the records, the features that they point at, and files that are wrong."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from preprocessing.datasets import Caption, DatasetError, build_dataset
from preprocessing.extraction.identity import summarize
from preprocessing.features import build_extractor

h5py = pytest.importorskip("h5py", reason="pip install h5py")
from tests.preprocessing.datasets.hgr_files import NETWORK, write_hgr  # noqa: E402 (needs h5py)

CAPTIONS = {
    "trn": {"video9": ["a man runs", "a man runs", "he is running"], "clips/video2": ["a cat"]},
    "val": {"video1": ["a dog", "the café"]},
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_hgr(tmp_path / "MSRVTT", CAPTIONS)


def test_a_record_is_a_video_with_all_its_captions(root: Path) -> None:
    dataset = build_dataset("hgr", root=root, network=NETWORK)
    assert dataset.splits == ("trn", "val")
    assert dataset.root == str(root)
    first, second = dataset.records("trn")
    assert (first.image_id, first.split) == ("video9", "trn")
    assert first.captions == (
        Caption("video9#0", "a man runs"),
        Caption("video9#1", "a man runs"),
        Caption("video9#2", "he is running"),
    )
    assert first.image_uri == f"{root}/ordered_feature/SA/{NETWORK}/trn_ft.hdf5#video9"
    assert second.image_uri.endswith("trn_ft.hdf5#clips_video2")
    (only,) = dataset.records("val")
    assert [caption.text for caption in only.captions] == ["a dog", "the café"]


def test_the_extractor_finds_the_frames(root: Path) -> None:
    extractor = build_extractor("precomputed")
    for record in build_dataset("hgr", root=root, network=NETWORK).records("trn"):
        with h5py.File(root / "ordered_feature" / "SA" / NETWORK / "trn_ft.hdf5") as file:
            frames_NF = file[record.image_id.replace("/", "_")][()]
        found = extractor.load(record.image_uri)
        np.testing.assert_allclose(found, frames_NF, atol=2e-3)
        assert found.dtype == np.float16


def test_another_file_of_features_is_another_data_set(root: Path) -> None:
    dataset = build_dataset("hgr", root=root, network=NETWORK)
    before = summarize(dataset, "val", 10).digest
    assert summarize(dataset, "val", 10).digest == before
    with h5py.File(root / "ordered_feature" / "SA" / NETWORK / "val_ft.hdf5", "a") as file:
        file["more"] = np.ones((40, 50))
    assert summarize(dataset, "val", 10).digest != before


def names(root: Path, content: object) -> None:
    np.save(root / "public_split" / "val_names.npy", np.asarray(content))


def captions(root: Path, content: object) -> None:
    (root / "annotation" / "RET" / "ref_captions.json").write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda root: names(root, np.array(["video1", 3], dtype=object)), "store it without objects"),
        (lambda root: names(root, [1, 2]), "names of videos, an array of text, are needed"),
        (lambda root: names(root, [["video1"]]), "names of videos, an array of text, are needed"),
        (
            lambda root: names(root, ["video1", "video1"]),
            "row 1: video video1 is there already, in .*, row 0; remove one",
        ),
        (lambda root: names(root, np.array([], dtype=str)), "it names no video"),
        (lambda root: captions(root, {}), "video 'video1': None where a list of captions is needed"),
        (lambda root: captions(root, {"video1": []}), r"video 'video1': \[\] where a list"),
        (lambda root: captions(root, {"video1": ["a", 4]}), "where a list of captions is needed"),
        (lambda root: captions(root, []), "the top level is a list"),
    ],
)
def test_files_that_are_wrong_are_named(root: Path, spoil: Callable[[Path], None], message: str) -> None:
    spoil(root)
    with pytest.raises(DatasetError, match=message) as caught:
        list(build_dataset("hgr", root=root, network=NETWORK).records("val"))
    assert str(root) in str(caught.value)


def test_folders_and_files_that_are_not_there(root: Path, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"hgr dataset, 'network': there is no folder .*SA/i3d"):
        build_dataset("hgr", root=root, network="i3d")
    with pytest.raises(DatasetError, match=r"ref_captions\.json"):
        build_dataset("hgr", root=tmp_path, network=NETWORK)
    (root / "ordered_feature" / "SA" / NETWORK / "val_ft.hdf5").unlink()
    with pytest.raises(DatasetError, match="features of split 'val': there is no file"):
        list(build_dataset("hgr", root=root, network=NETWORK).records("val"))
    for file in (root / "public_split").iterdir():
        file.unlink()
    with pytest.raises(DatasetError, match=r"no SPLIT_names\.npy"):
        build_dataset("hgr", root=root, network=NETWORK)
