"""Crisscrossed Captions on a small gallery with files of the official form, against loops in plain Python."""

from __future__ import annotations

import csv
import random
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest

from pipelines.evaluation.protocols.crisscrossed import crisscrossed
from pipelines.evaluation.protocols.rankings import Embedded
from pipelines.runtime.stage import StageError
from tests.pipelines.evaluation.protocols.galleries import best_rank, coarse_gallery, records_of, scores

IMAGES, CAPTIONS = 7, 3


def image_name(image: int) -> str:
    return f"COCO_val2014_{image:012d}.jpg"


def caption_name(caption: int) -> str:
    return f"COCO_val2014:sentid:{caption}"


def write_ratings(folder: Path, seed: int) -> dict[str, list[tuple[int, int, float]]]:
    """Random ratings in the three files, image 6 without a similar one; with some of images that are not there."""
    draw = random.Random(seed)
    captions = IMAGES * CAPTIONS
    kinds = {
        "sis": (("image1", "image2"), [(i, j) for i in range(IMAGES - 1) for j in range(i + 1, IMAGES - 1)]),
        "sts": (("caption1", "caption2"), [(i, j) for i in range(captions) for j in range(i + 1, captions)]),
        "sits": (("caption", "image"), [(c, i) for c in range(captions) for i in range(IMAGES)]),
    }
    ratings = {}
    for kind, (columns, pairs) in kinds.items():
        drawn = [(*pair, draw.choice([0.0, 2.4, 2.5, 2.99, 3.0, 5.0])) for pair in draw.sample(pairs, len(pairs) // 4)]
        ratings[kind] = drawn
        with (folder / f"{kind}_test.csv").open("w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow([*columns, "agg_score", "sampling_method"])
            for first, second, score in [*drawn, (999_998, 999_999, 5.0)]:
                names = [
                    image_name(place) if column.startswith("image") else caption_name(place)
                    for column, place in zip(columns, (first, second), strict=True)
                ]
                rows.writerow([*names, score, "drawn"])
    return ratings


@pytest.mark.parametrize("seed", range(4))
def test_every_direction_is_that_of_loops(tmp_path: Path, seed: int) -> None:
    ratings = write_ratings(tmp_path, seed)
    records = records_of([[f"caption {c} of {image}" for c in range(CAPTIONS)] for image in range(IMAGES)])
    galleries = [coarse_gallery(records, 1, 3, seed), coarse_gallery(records, 1 + seed % 2, 4, seed + 10)]
    found = crisscrossed(Embedded(galleries, "test", tmp_path, crisscrossed=tmp_path))

    images, captions = range(IMAGES), range(IMAGES * CAPTIONS)
    related = {(c, c // CAPTIONS) for c in captions} | {(c, i) for c, i, score in ratings["sits"] if score >= 3}
    alike = {(a, b) for a in captions for b in captions if a != b and a // CAPTIONS == b // CAPTIONS}
    alike |= {pair for a, b, score in ratings["sts"] if score >= 3 for pair in ((a, b), (b, a))}
    similar = {pair for a, b, score in ratings["sis"] if score >= 2.5 for pair in ((a, b), (b, a))}

    def between_images(a: int, b: int) -> float:
        each = [
            max(float(v @ w) for v in gallery.images_BKD[a] for w in gallery.images_BKD[b]) for gallery in galleries
        ]
        return sum(each) / len(each)

    def between_captions(a: int, b: int) -> float:
        return sum(float(gallery.texts_CD[a] @ gallery.texts_CD[b]) for gallery in galleries) / len(galleries)

    expected: dict[str, list[int]] = {"i2t": [], "t2i": [], "t2t": [], "i2i": []}
    for image in images:
        true = {c for c, i in related if i == image}
        expected["i2t"].append(best_rank({c: scores(galleries, image, c) for c in captions}, true))
        if others := {b for a, b in similar if a == image}:
            expected["i2i"].append(best_rank({b: between_images(image, b) for b in images if b != image}, others))
    for caption in captions:
        true = {i for c, i in related if c == caption}
        expected["t2i"].append(best_rank({i: scores(galleries, i, caption) for i in images}, true))
        true = {b for a, b in alike if a == caption}
        expected["t2t"].append(best_rank({b: between_captions(caption, b) for b in captions if b != caption}, true))

    rows = pyarrow.parquet.read_table(tmp_path / "cxc_queries.parquet").to_pylist()
    for direction, ranks in expected.items():
        assert [row["rank"] - 1 for row in rows if row["direction"] == direction] == ranks
        for k in (1, 5, 10):
            recall = 100 * np.mean([rank < k for rank in ranks])
            assert found.metrics[f"cxc/{direction}_r{k:02}"] == pytest.approx(recall)
        assert found.metrics[f"cxc/{direction}_queries"] == len(ranks)
        assert found.metrics[f"cxc/{direction}_r01_low"] <= found.metrics[f"cxc/{direction}_r01_high"]
    assert found.metrics["cxc/unknown_pairs"] == 3
    assert len(expected["i2i"]) < IMAGES
    assert [file.name for file in found.files] == ["cxc_queries.parquet"]


def test_ratings_of_another_split_are_refused(tmp_path: Path) -> None:
    write_ratings(tmp_path, 0)
    gallery = coarse_gallery(records_of([["a"], ["b"]]), 1, 3, 0)
    strangers = tuple(
        type(record)(f"flickr-{record.image_id}", record.image_uri, "test", record.captions)
        for record in gallery.records
    )
    stranger = type(gallery)(gallery.images_BKD, gallery.texts_CD, strangers)
    with pytest.raises(StageError, match=r"protocol cxc: hardly any of the ratings .* \(dataset\.format karpathy\)"):
        crisscrossed(Embedded([stranger], "test", tmp_path, crisscrossed=tmp_path))
