"""ECCV Caption on small galleries with files of the published form, against loops in plain Python."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest
import torch

from pipelines.evaluation.protocols.eccv import eccv
from pipelines.evaluation.protocols.rankings import Embedded
from pipelines.runtime.stage import StageError
from preprocessing.datasets import DatasetError
from preprocessing.datasets.eccv_caption import read_eccv
from tests.pipelines.evaluation.protocols.galleries import coarse_gallery, records_of, scores
from vse_core.evaluation.directions import direction_precisions
from vse_core.evaluation.ranks import RelevantItems

IMAGES, CAPTIONS = 8, 3
FILES = ("eccv_image_to_caption.json", "eccv_caption_to_image.json")


def write_pairs(folder: Path, seed: int) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
    """Random relevant items of some images and captions; one image has an item twice, and one item is unknown."""
    draw = random.Random(seed)
    captions = range(IMAGES * CAPTIONS)
    of_images = {image: draw.sample(captions, draw.randint(1, 9)) for image in draw.sample(range(IMAGES), 5)}
    of_captions = {caption: draw.sample(range(IMAGES), draw.randint(1, 6)) for caption in draw.sample(captions, 11)}
    # One of an image's relevant captions is not in the gallery, and counts as not found.
    of_images[next(iter(of_images))].append(999_999)
    written = {image: list(items) for image, items in of_images.items()}
    image = next(iter(written))
    written[image].append(written[image][0])
    (folder / FILES[0]).write_text(json.dumps(written))
    (folder / FILES[1]).write_text(json.dumps(of_captions))
    return of_images, of_captions


def naive(similarity: Mapping[int, float], relevant: set[int]) -> tuple[float, float, float]:
    """R@1, R-precision and average precision at R of a query; of equals the later one comes first."""
    order = sorted(similarity, key=lambda item: (-similarity[item], -item))
    first = [item in relevant for item in order[: len(relevant)]]
    average = sum(sum(first[: place + 1]) / (place + 1) for place, hit in enumerate(first) if hit) / len(relevant)
    return float(first[0]), sum(first) / len(relevant), average


@pytest.mark.parametrize("seed", range(4))
def test_both_directions_are_those_of_loops(tmp_path: Path, seed: int) -> None:
    of_images, of_captions = write_pairs(tmp_path, seed)
    records = records_of([[f"caption {c} of {image}" for c in range(CAPTIONS)] for image in range(IMAGES)])
    galleries = [coarse_gallery(records, 1, 3, seed), coarse_gallery(records, 1 + seed % 2, 4, seed + 10)]
    found = eccv(Embedded(galleries, "test", tmp_path, eccv=tmp_path))

    captions = range(IMAGES * CAPTIONS)
    expected = {
        "i2t": [naive({c: scores(galleries, i, c) for c in captions}, set(of_images[i])) for i in sorted(of_images)],
        "t2i": [
            naive({i: scores(galleries, i, c) for i in range(IMAGES)}, set(of_captions[c])) for c in sorted(of_captions)
        ],
    }
    for direction, values in expected.items():
        for name, mean in zip(("r01", "r_precision", "map_at_r"), 100 * np.mean(values, axis=0), strict=True):
            assert found.metrics[f"eccv/{direction}_{name}"] == pytest.approx(mean)
            assert (
                found.metrics[f"eccv/{direction}_{name}_low"] <= mean <= found.metrics[f"eccv/{direction}_{name}_high"]
            )
        assert found.metrics[f"eccv/{direction}_queries"] == len(values)
    assert found.metrics["eccv/unknown_pairs"] == 1, "an item that is there twice is known"
    rows = pyarrow.parquet.read_table(tmp_path / "eccv_queries.parquet").to_pylist()
    assert [row["query_id"] for row in rows if row["direction"] == "i2t"] == [str(i) for i in sorted(of_images)]
    assert found.summary.startswith("ECCV Caption mAP@R i2t ")


def test_precisions_in_chunks_are_those_of_one_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    gallery = coarse_gallery(records_of([["a", "b"] for _ in range(9)]), 2, 3, 1)
    members = [(gallery.images_BKD, gallery.texts_CD)]
    pairs_P2 = torch.tensor([(image, (image * 5 + step) % 18) for image in range(9) for step in range(1 + image % 4)])
    relevant_items = RelevantItems.of_pairs(pairs_P2[:, 0], pairs_P2[:, 1], 9)
    arguments = (members, "i2t", relevant_items, torch.arange(9), relevant_items.counts)
    whole_Q2 = direction_precisions(*arguments)
    monkeypatch.setattr("vse_core.evaluation.ranks.CHUNK_ELEMENTS", 1)
    monkeypatch.setattr("vse_core.evaluation.ranks.FEWEST_QUERIES", 2)
    assert torch.equal(direction_precisions(*arguments), whole_Q2)


def test_similarities_that_are_no_numbers_find_nothing() -> None:
    images_BKD, texts_CD = torch.full((1, 1, 2), torch.nan), torch.ones(3, 2)
    relevant_items = RelevantItems.of_pairs(torch.tensor([0, 0]), torch.tensor([1, 2]), 1)
    arguments = ([(images_BKD, texts_CD)], "i2t", relevant_items, torch.tensor([0]))
    assert direction_precisions(*arguments, torch.tensor([2])).tolist() == [[0.5, 0.25]]
    # Of nine relevant items seven are not in the gallery of three.
    assert direction_precisions(*arguments, torch.tensor([9])).tolist() == [[2 / 9, (1 / 2 + 2 / 3) / 9]]


def test_pairs_of_another_split_and_damaged_files_are_refused(tmp_path: Path) -> None:
    gallery = coarse_gallery(records_of([["a"], ["b"]]), 1, 3, 0)
    with pytest.raises(DatasetError, match=r"ECCV Caption: there is no file .*eccv_image_to_caption\.json"):
        read_eccv(tmp_path)
    for name in FILES:
        (tmp_path / name).write_text(json.dumps({"777": [888]}))
    with pytest.raises(StageError, match=r"protocol eccv: none of the relevant pairs .* split test"):
        eccv(Embedded([gallery], "test", tmp_path, eccv=tmp_path))
    (tmp_path / FILES[1]).write_text('{"3": ["a dog"]}')
    with pytest.raises(DatasetError, match=r"eccv_caption_to_image\.json: 3 holds \['a dog'\], a list of ids"):
        read_eccv(tmp_path)
