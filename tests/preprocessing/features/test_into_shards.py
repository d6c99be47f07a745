"""Every kind of extractor through the making of a shard, and the features read back as training reads them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from preprocessing.datasets import Caption, Record
from preprocessing.extraction.extract import ShardSpec, extract_shard
from preprocessing.features import TINY_RESNET, build_extractor, load_image
from preprocessing.shards.reader import ShardReader

TINY = {"weights": TINY_RESNET, "seed": 0}


@pytest.mark.parametrize(
    ("name", "options", "shape", "grid"),
    [
        ("grid", {**TINY, "image_size": 64}, (16, 192), (4, 4, 0)),
        ("grid", {"network": "resnet18", "image_size": "short_600", "seed": 0}, (19 * 19, 512), (19, 19, 0)),
        ("pyramid", {**TINY, "image_size": 64}, (30, 192), None),
    ],
)
def test_features_of_pictures(
    tmp_path: Path, name: str, options: dict[str, Any], shape: tuple[int, int], grid: tuple[int, int, int] | None
) -> None:
    extractor = build_extractor(name, **options)
    records = tuple(
        Record(str(index), f"scene://0/{index}", "train", (Caption(f"{index}#0", "a scene"),)) for index in range(3)
    )
    extract_shard(ShardSpec(tmp_path / "shard-00000.tar", "f", "", 0, records), extractor, batch_size=2)
    reader = ShardReader(tmp_path, extractor.name)
    assert len(reader) == 3
    items = [extractor.load(record.image_uri) for record in records]
    for index, expected in enumerate(extractor(items[:2]) + extractor(items[2:])):
        assert expected.features.shape == shape
        np.testing.assert_array_equal(reader.features(index), expected.features)
        assert reader.grid(index) == grid


def test_published_features_and_what_has_none(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for number, rows in ((1, 2), (2, 5)):
        values = np.full((rows, 8), number, np.float32)
        np.savez(source / f"{number}.npz", x=values, bbox=np.full((rows, 4), 600.25, np.float32))
    extractor = build_extractor("imported", source=str(source), form="npz")
    records = tuple(
        Record(str(number), f"/photographs/{number:012d}.jpg", "train", (Caption(f"{number}#0", "a photograph"),))
        for number in (1, 2, 3)
    )
    shards = tmp_path / "shards"
    shards.mkdir()
    index = extract_shard(ShardSpec(shards / "shard-00000.tar", "f", "", 0, records), extractor, batch_size=2)
    assert [(item["image_id"], item["reason"]) for item in index.skipped] == [
        ("3", "no features of this image in the source")
    ]
    assert set(index.members) == {"region.npy", "boxes.npy", "json"}
    reader = ShardReader(shards, "region")
    assert [reader.features(image).shape for image in range(2)] == [(2, 8), (5, 8)]
    assert (reader.features(1) == 2).all()


@pytest.mark.parametrize("linked", ["the image", "a folder above it", "a chain"])
def test_a_link_out_of_the_image_folder_is_not_opened(tmp_path: Path, linked: str) -> None:
    for folder in ("images/inside", "elsewhere", "shards"):
        (tmp_path / folder).mkdir(parents=True)
    images = tmp_path / "images"
    for path in (images / "inside" / "good.png", tmp_path / "elsewhere" / "secret.png"):
        load_image("scene://0/0").save(path)
    (images / "link.png").symlink_to("inside/good.png")
    if linked == "a folder above it":
        (images / "out").symlink_to(tmp_path / "elsewhere")
    else:
        (images / "out").mkdir()
        target = tmp_path / "elsewhere" / "secret.png"
        if linked == "a chain":
            (images / "first").symlink_to(target)
            target = images / "first"
        (images / "out" / "secret.png").symlink_to(target)
    (tmp_path / "way").symlink_to(images)  # the folder itself may be a link
    root = str(tmp_path / "way")
    records = tuple(
        Record(name, f"{root}/{name}", "train", (Caption(f"{name}#0", "a scene"),))
        for name in ("inside/good.png", "link.png", "out/secret.png")
    )
    extractor = build_extractor("grid", **TINY, image_size=64)
    spec = ShardSpec(tmp_path / "shards" / "shard-00000.tar", "f", root, 0, records)
    index = extract_shard(spec, extractor, batch_size=2)
    assert index.count == 2
    (skipped,) = index.skipped
    assert skipped["image_id"] == "out/secret.png"
    assert skipped["reason"] == f"is a link that leads out of {root}, and is not opened; copy the image there"
