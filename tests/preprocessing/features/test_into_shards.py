"""Every kind of extractor through the making of a shard, and the features read back as training reads them."""

from pathlib import Path

import pytest

from preprocessing.datasets import Caption, Record
from preprocessing.extraction.extract import ShardSpec, extract_shard
from preprocessing.features import TINY_RESNET, build_extractor
from preprocessing.features.images import load_image

TINY = {"weights": TINY_RESNET, "seed": 0}


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
