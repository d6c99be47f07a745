"""Small shards for the tests below."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from preprocessing.shards.writer import Sample, Skipped, write_shard

WIDTH = 8


def make_sample(number: int, rows: int | None = None, captions: int | None = None) -> Sample:
    """A sample whose features and captions tell which it is: row r of image i is (i, r, random...)."""
    rows = 5 + number % 3 if rows is None else rows
    captions = (5, 1, 0, 3)[number % 4] if captions is None else captions
    features = np.random.default_rng(number).standard_normal((rows, WIDTH)).astype(np.float16)
    features[:, 0] = number
    features[:, 1] = np.arange(rows)
    meta = {
        "image_id": f"id{number}",
        "image": f"{number}.jpg",
        "split": "train",
        "captions": [
            {"caption_id": f"{number}#{i}", "text": f"image {number} caption {i} café"} for i in range(captions)
        ],
    }
    return Sample(f"{number:08d}", {"grid": features}, meta)


@pytest.fixture
def sample() -> Callable[..., Sample]:
    return make_sample


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    """Three shards of 7, 0 and 6 images with 5, 1, 0 or 3 captions each."""
    directory = tmp_path / "train"
    directory.mkdir()
    numbers: Iterator[int] = iter(range(13))
    for shard, count in enumerate((7, 0, 6)):
        samples = [make_sample(next(numbers)) for _ in range(count)]
        skipped = Skipped(f"9000000{shard}", f"bad{shard}", "bad.jpg", "truncated")
        write_shard(directory / f"shard-{shard:05d}.tar", [*samples, skipped], "abc")
    return directory
