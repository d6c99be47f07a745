"""Boxes and names on photographs."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from preprocessing.features import ExtractorError
from preprocessing.features.draw_regions import draw_regions, main, region_names


def test_a_box_is_drawn_on_its_edges_and_nowhere_else() -> None:
    picture = Image.new("RGB", (60, 40), "white")
    drawn = np.asarray(draw_regions(picture, np.array([[10.2, 5.0, 30.0, 25.0]]), [""]))
    changed = (drawn != 255).any(2)
    expected = np.zeros((40, 60), dtype=bool)
    expected[5:26, 10:31] = True
    expected[7:24, 12:29] = False
    np.testing.assert_array_equal(changed, expected)
    assert (np.asarray(picture) == 255).all()


def test_a_name_stays_in_the_picture() -> None:
    picture = Image.new("RGB", (120, 60), "white")
    drawn = np.asarray(draw_regions(picture, np.array([[110.0, 20.0, 118.0, 40.0]]), ["a long name"]))
    changed = (drawn != 255).any(2)
    assert changed[:, :100].any()
    assert changed[:, 100:].sum() < changed.sum()


def test_names_say_what_is_known() -> None:
    labels = {"objects": np.array([1, 0]), "attributes": np.array([0, 1]), "object_scores": np.array([0.25, 0.5])}
    assert region_names(labels, ["dog", "cat"], ["red", "old"]) == ["red cat 0.25", "old dog 0.50"]
    assert region_names(labels, ["dog", "cat"], []) == ["cat 0.25", "dog 0.50"]
    assert region_names({}, ["dog"], ["red"]) == []
    with pytest.raises(ExtractorError, match="objects: class 1, and a list of 1 names"):
        region_names(labels, ["dog"], [])


def test_the_command_draws_the_genuine_boxes(
    vse_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reference = vse_data / "butd_reference"
    source = tmp_path / "two.tsv"
    lines = (reference / "train2014_obj36.tsv").read_text().splitlines()[:2]
    source.write_text("\n".join([*lines, lines[0][:500], "unknown" + lines[0][lines[0].index("\t") :]]))
    options = ["--form", "butd_tsv", "--images", str(reference / "images"), "--out", str(tmp_path / "drawn")]
    names = [f"--{kind}={reference / f'{kind}_vocab.txt'}" for kind in ("objects", "attributes")]
    assert main([str(source), *options, *names]) == 0
    streams = capsys.readouterr()
    assert "2 drawings; 2 images left out" in streams.out
    assert "unknown: no photograph" in streams.err
    assert "the line may be cut short" in streams.err
    for name in ("132417", "573195"):
        with Image.open(tmp_path / "drawn" / f"{name}.jpg") as drawn:
            photograph = Image.open(reference / "images" / f"COCO_train2014_{int(name):012d}.jpg")
            assert drawn.size == photograph.size
            assert np.abs(np.asarray(drawn, int) - np.asarray(photograph.convert("RGB"), int)).max() > 100
    assert main([str(tmp_path / "gone"), *options]) == 1
    assert "error: published features" in capsys.readouterr().err
