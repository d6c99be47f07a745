"""Near-duplicates across splits, against a comparison of all pairs and a transform written out."""

import math
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from preprocessing.datasets import Record, build_dataset
from preprocessing.features.images import load_image
from preprocessing.features.near_duplicates import duplicates_across, near_duplicates, perceptual_hash


def record(split: str, number: int) -> Record:
    return Record(f"{split}{number}", f"/{split}/{number}.jpg", split, ())


def test_the_hash_is_the_signs_of_low_frequencies() -> None:
    grey = np.random.default_rng(0).integers(0, 256, (32, 32), dtype=np.uint8)
    table = [
        sum(
            float(grey[y, x]) * math.cos(math.pi * v * (2 * y + 1) / 64) * math.cos(math.pi * u * (2 * x + 1) / 64)
            for y in range(32)
            for x in range(32)
        )
        for v in range(8)
        for u in range(8)
    ][1:]
    middle = sorted(table)[31]
    expected = sum(2 ** (position + 1) for position, value in enumerate(table) if value > middle)
    assert perceptual_hash(Image.fromarray(grey)) == expected


@pytest.mark.parametrize("distance", [0, 3, 6, 20])
def test_no_pair_is_missed_and_none_is_invented(distance: int) -> None:
    generator = np.random.default_rng(distance)
    originals = [int(value) for value in generator.integers(0, 2**63, 40)]
    splits: dict[str, list[tuple[Record, int]]] = {}
    for split in ("train", "dev", "test"):
        values = []
        for number, value in enumerate(originals):
            flipped = generator.choice(64, generator.integers(0, 2 * distance + 2), replace=False)
            values.append((record(split, number), value ^ sum(1 << int(bit) for bit in flipped)))
        splits[split] = values
    found = [(pair.first.image_id, pair.second.image_id, pair.distance) for pair in near_duplicates(splits, distance)]
    expected = [
        (first.image_id, second.image_id, bin(a ^ b).count("1"))
        for later, earlier in (("dev", ("train",)), ("test", ("train", "dev")))
        for second, b in splits[later]
        for split in earlier
        for first, a in splits[split]
        if bin(a ^ b).count("1") <= distance
    ]
    assert sorted(found) == sorted(expected)
    assert len(found) > 5


def test_a_link_out_of_the_image_folder_is_not_opened(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    load_image("scene://0/0").save(tmp_path / "secret.png")
    (tmp_path / "images" / "a.png").symlink_to(tmp_path / "secret.png")
    (tmp_path / "train.txt").write_text("a.png")
    (tmp_path / "tokens.txt").write_text("a.png#0\ta scene\n")
    lists = {"train": tmp_path / "train.txt"}
    dataset = build_dataset("flickr", images=tmp_path / "images", tokens=tmp_path / "tokens.txt", splits=lists)
    _, ((record, reason),) = duplicates_across(dataset, ["train"])
    assert (record.image_id, "a link that leads out of" in reason) == ("a.png", True)
