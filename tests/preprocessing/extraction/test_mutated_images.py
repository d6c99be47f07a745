"""Hundreds of damaged files through the making of a shard: each is used or skipped, and no neighbour is touched."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np

from preprocessing.datasets import Caption, Record
from preprocessing.extraction.extract import ShardSpec, extract_shard
from preprocessing.features import build_extractor
from preprocessing.shards.reader import ShardReader
from tests.preprocessing.extraction.mutations import MUTATIONS, mutated
from tests.preprocessing.features.arrays import arrays

WEIGHTS = Path(__file__).resolve().parents[3] / "preprocessing" / "features" / "tiny_resnet"


def test_damaged_files_are_used_or_skipped_and_cost_no_other(tmp_path: Path) -> None:
    files = mutated(per_kind=24)
    assert len(files) == 240
    records, good = [], []
    for number, (kind, data) in enumerate(files):
        (tmp_path / f"{number}.img").write_bytes(data)
        records.append(_record(str(tmp_path / f"{number}.img"), kind))
        if number % 5 == 0:
            good.append(len(records))
            records.append(_record(f"scene://3/{number}", "good"))
    extractor = build_extractor("grid", weights=str(WEIGHTS), seed=0)
    (tmp_path / "shards").mkdir()
    spec = ShardSpec(tmp_path / "shards" / "shard-00000.tar", "ab" * 32, "", 0, tuple(records))
    index = extract_shard(spec, extractor, batch_size=16, threads=2, timeout=60)
    assert index.count + len(index.skipped) == len(records)
    assert all(0 < len(item["reason"]) <= 300 for item in index.skipped)
    skipped = Counter(records[int(item["key"])].captions[0].text for item in index.skipped)
    assert skipped["good"] == 0
    for kind in ("another file", "header alone", "bytes before it", "bomb"):
        assert skipped[kind] == 24, kind
    # A flipped bit among the pixels is no damage that anybody can see; most of the others are.
    assert skipped["one bit flipped"] < skipped["a thousand bits flipped"]
    assert set(skipped) <= set(MUTATIONS)
    reader = ShardReader(tmp_path / "shards", "grid")
    place = {key: row for row, key in enumerate(index.keys)}
    for number in good:
        (alone,) = arrays(extractor, [extractor.load(records[number].image_uri)])
        np.testing.assert_allclose(reader.features(place[f"{number:08d}"]), alone, atol=2e-2)
    assert all(np.isfinite(reader.features(row)).all() for row in range(index.count))


def _record(uri: str, kind: str) -> Record:
    return Record(uri, uri, "train", (Caption(f"{uri}#0", kind),))
