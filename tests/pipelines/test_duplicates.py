"""The report of near-duplicates across the splits of a configuration."""

import json
from pathlib import Path

import pytest
from PIL import Image

from pipelines.runtime import verbs
from preprocessing.features.images import load_image


def run(monkeypatch: pytest.MonkeyPatch, arguments: list[str]) -> int:
    monkeypatch.setattr("sys.argv", ["vse", "duplicates", *arguments])
    with pytest.raises(SystemExit) as ending:
        verbs.main()
    return int(ending.value.code or 0)


def test_a_copy_in_another_split_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    images = tmp_path / "images"
    images.mkdir()
    for index in range(4):
        load_image(f"scene://0/{index}").save(images / f"{index}.png")
    load_image("scene://0/2").resize((200, 200), Image.Resampling.BICUBIC).save(images / "copy.png")
    (images / "broken.png").touch()
    splits = {"train": ["0.png", "1.png", "2.png"], "dev": ["3.png", "copy.png", "broken.png"]}
    (tmp_path / "tokens.txt").write_text("".join(f"{n}#0\ta scene\n" for names in splits.values() for n in names))
    for split, names in splits.items():
        (tmp_path / f"{split}.txt").write_text("\n".join(names))
    lists = ", ".join(f"{split}: {tmp_path}/{split}.txt" for split in splits)
    dataset = f"dataset={{format: flickr, images: {images}, tokens: {tmp_path}/tokens.txt, splits: {{{lists}}}}}"
    assert run(monkeypatch, ["--set", dataset, "--distance", "4", "--output", str(tmp_path / "found.json")]) == 0
    out = capsys.readouterr().out
    assert "2.png copy.png (train dev)" in out
    assert "1 near-duplicates across train, dev" in out
    assert "not read: broken.png: the file is empty" in out
    found = json.loads((tmp_path / "found.json").read_text())
    assert [pair["images"] for pair in found["pairs"]] == [["2.png", "copy.png"]]
    assert [item["image"] for item in found["not_read"]] == ["broken.png"]


def test_what_cannot_be_read_is_one_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(monkeypatch, ["--set", f"dataset={{format: precomputed, root: {tmp_path}/none}}"]) == 1
    assert capsys.readouterr().err.startswith("error: ")
    assert run(monkeypatch, ["--distance", "64"]) == 1
    assert "must be a whole number, 0 to 63" in capsys.readouterr().err
