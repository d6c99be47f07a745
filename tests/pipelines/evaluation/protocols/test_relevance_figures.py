"""Relevance maps from shards: only of features that are recorded as cells."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from preprocessing.datasets import Record
from preprocessing.shards.reader import ShardReader
from preprocessing.shards.writer import Sample, write_shard

# The package has a function of this name.
components = importlib.import_module("pipelines.evaluation.protocols.components")


class Embedding:
    """Vectors of features are their first four values, those of any phrase the first unit vector."""

    def embed_regions(self, features_1NF: torch.Tensor, lengths_1: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.normalize(features_1NF[0].float()[: int(lengths_1[0]), :4], dim=1)

    def embed_phrases(self, phrases: list[Any]) -> torch.Tensor:
        return torch.eye(4)[[0] * len(phrases)]


def drawn(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, grid: tuple[int, int, int] | None) -> list[Any]:
    """Return maps and places that are drawn of one image of nine features, from shards."""
    features = np.random.default_rng(0).standard_normal((9, 8)).astype(np.float16)
    meta = {"image_id": "0", "image": "scene://0/0", "split": "dev", "captions": []}
    grids = {} if grid is None else {name: grid}
    write_shard(folder / "shard-00000.tar", [Sample("0", {name: features}, meta, grids=grids)], "f")
    shown: list[Any] = []
    monkeypatch.setattr(
        components, "plot_relevance", lambda _, texts, maps_QN, places, scores: shown.append((maps_QN, places))
    )
    gallery = SimpleNamespace(records=[Record("0", "scene://0/0", "dev", ())], images_BKD=torch.ones(1, 1, 4))
    texts = SimpleNamespace(components=Embedding())
    inputs: Any = SimpleNamespace(texts=texts, reader=ShardReader(folder, name), gallery=gallery)
    components.relevance_figures(inputs, [[("dog",)]], [[("black", "dog")]])
    return shown


def test_cells_behind_a_class_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ((maps_QN, places),) = drawn(tmp_path, monkeypatch, "patches", (2, 4, 1))
    assert places == (2, 4)
    assert maps_QN.shape == (2, 8)
    torch.testing.assert_close(maps_QN.sum(dim=1), torch.ones(2))


def test_nine_regions_are_not_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert drawn(tmp_path, monkeypatch, "region", None) == []
