"""Several extractors in one pass give what each gives alone, of one decoded image."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import webdataset

from preprocessing.datasets import Caption, Record
from preprocessing.extraction.extract import ShardSpec, extract_shard
from preprocessing.features import TINY_RESNET, build_extractor
from preprocessing.features import extractor as extractor_module
from preprocessing.features.extractor import ExtractorError
from preprocessing.shards.reader import ShardReader

NETWORK = {"weights": TINY_RESNET, "seed": 0}
DETECTOR = {"seed": 0, "min_regions": 3, "max_regions": 3}
SIZE = {"width": 2, "blocks": [1, 1, 1], "objects": 4, "attributes": 3}
PARTS = [
    {"name": "grid", **NETWORK},
    {"name": "pyramid", **NETWORK},
    {"name": "butd", **DETECTOR, "size": SIZE},
]
SCENES = ["scene://5/0", "scene://5/1", "scene://5/2"]


def test_each_gives_what_it_gives_alone() -> None:
    extractor = build_extractor("several", of=PARTS)
    together = extractor([extractor.load(uri) for uri in SCENES])
    for part, name in zip(PARTS, ("grid", "pyramid", "region"), strict=True):
        alone = build_extractor(**part)
        for row, expected in zip(together, alone([alone.load(uri) for uri in SCENES]), strict=True):
            assert isinstance(row, dict)
            found = row[name]
            np.testing.assert_array_equal(found.features, expected.features)
            assert found.grid == expected.grid
            assert {key: value.tolist() for key, value in found.companions.items()} == {
                key: value.tolist() for key, value in expected.companions.items()
            }


def test_an_image_is_decoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded = []

    def bounded_image(data: bytes, limit: int) -> object:
        decoded.append(data)
        return plain(data, limit)

    plain = extractor_module.bounded_image
    monkeypatch.setattr(extractor_module, "bounded_image", bounded_image)
    extractor = build_extractor("several", of=PARTS[:2])
    extractor.load(SCENES[0])
    assert len(decoded) == 1


def test_all_stand_under_one_key_with_their_companions(tmp_path: Path) -> None:
    records = tuple(Record(uri, uri, "train", (Caption(f"{uri}#0", "a"),)) for uri in (*SCENES, "/no/such.jpg"))
    spec = ShardSpec(tmp_path / "shard-00000.tar", "ab" * 32, "", 0, records)
    extractor = build_extractor("several", of=PARTS)
    index = extract_shard(spec, extractor, batch_size=2)
    assert (index.count, [item["reason"] for item in index.skipped]) == (3, ["no such file"])
    assert set(index.members) >= {"grid.npy", "pyramid.npy", "region.npy", "boxes.npy", "json"}
    shapes = [ShardReader(tmp_path, name).features(1).shape for name in ("grid", "pyramid", "region")]
    assert shapes == [(36, 192), (30, 192), (3, 64)]
    read = webdataset.WebDataset(str(spec.path), shardshuffle=False).decode()
    assert [item["boxes.npy"].shape for item in read] == [(3, 4)] * 3


def test_what_cannot_stand_together_is_refused() -> None:
    with pytest.raises(ExtractorError, match="features of one image need different names, got grid, grid"):
        build_extractor("several", of=[PARTS[0], PARTS[0]])
