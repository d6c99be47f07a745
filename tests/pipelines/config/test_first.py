"""The first configuration: what a table holds is found, said, and can be loaded."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from pipelines.config import load_config
from pipelines.config.first import main
from pipelines.schema.error import ConfigError
from preprocessing.datasets import build_dataset
from preprocessing.extraction.identity import summarize


def init(folder: Path, table: str, text: str, *arguments: str) -> Path:
    (folder / "photos").mkdir(parents=True, exist_ok=True)
    for name in ("a.jpg", "b.jpg", "c.jpg"):
        (folder / "photos" / name).touch()
    (folder / table).write_text(text, encoding="utf-8")
    output = folder / "out.yaml"
    main([str(folder / table), "--output", str(output), *arguments])
    return output


def splits(output: Path) -> dict[str, list[tuple[str, list[str]]]]:
    dataset = load_config(output).dataset
    reader = build_dataset(dataset.format, **dataset.options())
    return {
        split: [
            (Path(each.image_uri).name, [caption.text for caption in each.captions]) for each in reader.records(split)
        ]
        for split in reader.splits
    }


def test_columns_images_and_splits_are_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = ["id;filename;caption_1;caption_2;split"]
    rows += [
        f"{number};{name}.jpg;a dog;a {name} dog;{split}"
        for number, name, split in ((1, "a", "train"), (2, "b", "val"))
    ]
    output = init(tmp_path, "table.csv", "\n".join(rows))
    config = load_config(output)
    assert (config.name, config.preset, config.dataset.eval_split) == ("table", "small_data", "val")
    assert splits(output) == {"train": [("a.jpg", ["a dog", "a a dog"])], "val": [("b.jpg", ["a dog", "a b dog"])]}
    said = capsys.readouterr().out
    for words in (
        f"'filename', in {tmp_path}/photos: 2",
        "'caption_1', 'caption_2'",
        "train and val of the column 'split'",
    ):
        assert words in said
    output.rename(tmp_path / "other.yaml")
    (tmp_path / "moved").mkdir()
    for file in ("other.yaml", "table.csv", "photos"):
        (tmp_path / file).rename(tmp_path / "moved" / file)
    assert set(splits(tmp_path / "moved" / "other.yaml")) == {"train", "val"}


@pytest.mark.parametrize(("has_bf16", "precision"), [(True, "bf16"), (False, "float32")])
def test_a_processor_that_computes_in_bf16_trains_in_it(
    has_bf16: bool, precision: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": has_bf16})
    assert load_config(init(tmp_path, "table.csv", "image,caption\na.jpg,a dog")).training.precision == precision
    assert ("training in bf16" in capsys.readouterr().out) == has_bf16


def test_another_table_or_a_share_is_the_development_split(tmp_path: Path) -> None:
    (tmp_path / "valid.csv").write_text("photo,what is seen in it\nphotos/c.jpg,a cat lies on a sofa\n")
    text = "photo,what is seen in it\nphotos/a.jpg,a dog runs through snow\nphotos/b.jpg,a man walks his dog\n"
    output = init(tmp_path, "train.csv", text)
    assert splits(output)["valid"] == [("c.jpg", ["a cat lies on a sofa"])]
    output.unlink()
    dataset = load_config(init(tmp_path, "all.csv", text)).dataset.options()
    assert dataset["tables"] == {"train": f"{tmp_path}/all.csv", "dev": "10 %"}
    assert (dataset["images"], dataset["image_column"], dataset["caption_column"]) == (
        str(tmp_path),
        "photo",
        "what is seen in it",
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("id,caption\n1,a dog runs\n", "no column of image files among id, caption"),
        ("image,caption\n", "t.csv has no rows below its header"),
        ("image,label\na.jpg,dog\n", "no column of captions among label"),
        ("image,caption\nx.jpg,a dog runs\n", "x.jpg and others are not next to .*: name their folder by --images"),
    ],
)
def test_what_is_not_found_is_said_with_its_remedy(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        init(tmp_path, "t.csv", text)
    (tmp_path / "out.yaml").touch()
    with pytest.raises(ConfigError, match="is there already"):
        init(tmp_path, "t.csv", text)


def test_images_next_to_their_table_are_known_again_in_another_folder(tmp_path: Path) -> None:
    found = []
    for folder in (tmp_path / "first", tmp_path / "second"):
        dataset = load_config(init(folder, "table.csv", "image,caption\nphotos/a.jpg,a dog runs")).dataset
        found.append(summarize(build_dataset(dataset.format, **dataset.options()), "train", 10))
    assert found[0] == found[1]


def test_a_column_of_captions_may_have_one_word_each(tmp_path: Path) -> None:
    dataset = load_config(init(tmp_path, "table.csv", "image,caption\na.jpg,dog")).dataset.options()
    assert dataset["caption_column"] == "caption"


def test_a_folder_that_is_not_there_yet_is_made(tmp_path: Path) -> None:
    output = tmp_path / "new" / "out.yaml"
    init(tmp_path, "table.csv", "image,caption\na.jpg,a dog", "--output", str(output))
    assert load_config(output).name == "table"


def test_a_complete_path_out_of_the_configurations_folder_stays_for_a_job_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    output = init(tmp_path / "here", "table.csv", "image,caption\na.jpg,a dog", "--images", str(tmp_path / "far"))
    assert f"images: {tmp_path}/far" in output.read_text()
    assert "train: table.csv" in output.read_text()
