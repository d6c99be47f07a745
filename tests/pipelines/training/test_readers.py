"""Training on a split that is larger than the machine's cache, and what is refused before it starts."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
import torch

from pipelines.kinds.inputs import SplitData, SplitPaths
from pipelines.runtime.stage import MANIFEST, StageError
from pipelines.training.readers import open_splits
from preprocessing.captions.vocabulary import Vocabulary
from preprocessing.loading.image_source import FeatureSource
from preprocessing.loading.loader import TrainLoader
from preprocessing.loading.sampler import BatchSampler
from preprocessing.shards import ShardError, ShardReader
from preprocessing.shards.writer import write_shard
from preprocessing.storage import Mirror
from preprocessing.storage.atomic import write_json_atomic
from tests.preprocessing.conftest import make_sample
from vse_core.digests import DigestError, file_digest

SHARDS, IN_EACH, WINDOW = 12, 6, 2


@pytest.fixture
def storage(tmp_path: Path) -> Path:
    """Shards of two splits on a storage."""
    writer = Mirror(tmp_path / "writer", str(tmp_path / "storage"))
    for split, shards in (("train", SHARDS), ("dev", 1)):
        for shard in range(shards):
            path = writer.root / split / f"shard-{shard:05d}.tar"
            path.parent.mkdir(parents=True, exist_ok=True)
            samples = [make_sample(shard * IN_EACH + number, rows=6, captions=2) for number in range(IN_EACH)]
            write_shard(path, samples, "f")
            writer.push(path, path.with_suffix(".json"))
        digests = {path.name: file_digest(path) for path in (writer.root / split).glob("shard-*.json")}
        write_json_atomic(writer.root / split / MANIFEST, {"digests": digests})
        writer.push(writer.root / split / MANIFEST)
    return tmp_path / "storage"


def opened(
    tmp_path: Path, storage: Path, shards_that_fit: float, window: int | None = None
) -> AbstractContextManager[tuple[SplitData, SplitData]]:
    """Open both splits on a machine whose cache is that large."""
    size = (storage / "train" / "shard-00000.tar").stat().st_size
    mirror = Mirror(tmp_path / "machine", str(storage), int(shards_that_fit * size))
    return open_splits(mirror, "grid", window, *(SplitPaths(mirror.root / split) for split in ("train", "dev")))


def batches(reader: ShardReader, window: int | None) -> list[torch.Tensor]:
    vocabulary = Vocabulary.build((reader.meta(image)["captions"][0]["text"] for image in range(len(reader))), 1)
    sampler = BatchSampler(reader.num_captions, 8, 0, reader.shard_captions, window)
    loader = TrainLoader(reader, FeatureSource(reader), vocabulary, sampler, 0, 1, 0, True)
    return [batch.images.clone() for epoch in range(2) for batch in loader.epoch(epoch)]


def test_streamed_batches_are_those_of_a_split_that_fits(tmp_path: Path, storage: Path) -> None:
    with opened(tmp_path, storage, 2 * WINDOW + 3.5, WINDOW) as (train, evaluation):
        assert train.reader.is_streamed
        assert len(evaluation.reader) == IN_EACH
        streamed = batches(train.reader, WINDOW)
        sizes = [path.stat().st_size for path in (tmp_path / "machine").glob("*/*.tar")]
        assert sum(sizes) <= (2 * WINDOW + 3.5) * max(sizes)
    local = batches(ShardReader(tmp_path / "writer" / "train", "grid"), WINDOW)
    assert len(streamed) == len(local) == 2 * SHARDS * IN_EACH * 2 // 8
    assert all(torch.equal(one, other) for one, other in zip(streamed, local, strict=True))


def test_what_fits_is_here_as_a_whole(tmp_path: Path, storage: Path) -> None:
    with opened(tmp_path, storage, SHARDS + 1.5) as (train, _):
        assert not train.reader.is_streamed
        assert len(list((tmp_path / "machine" / "train").glob("*.tar"))) == SHARDS


def test_graphs_of_both_splits_are_here_with_the_shards(tmp_path: Path, storage: Path) -> None:
    mirror = Mirror(tmp_path / "machine", str(storage))
    train, dev = mirror.root / "train", mirror.root / "dev"
    with open_splits(mirror, "grid", None, SplitPaths(dev, train), SplitPaths(dev, dev)) as (_, evaluation):
        assert evaluation.graphs == dev
        assert len(list(train.glob("*.tar"))) == SHARDS


@pytest.mark.parametrize(
    ("fits", "window", "message"),
    [
        (7.5, None, r"drawn from all shards.* set training.shuffle_shards to 2 or less, or raise storage.cache_gb"),
        (7.5, 3, r"from 3 shards at a time .* to 2 or less"),
        (4.5, 1, r"needs 4 of them at a time: raise it"),
    ],
)
def test_an_order_that_needs_more_shards_than_fit_is_refused(
    tmp_path: Path, storage: Path, fits: float, window: int | None, message: str
) -> None:
    with pytest.raises(StageError, match=message), opened(tmp_path, storage, fits, window):
        pass


def test_a_shard_that_the_storage_has_lost_is_named_before_the_start(tmp_path: Path, storage: Path) -> None:
    (storage / "train" / "shard-00003.tar").unlink()
    message = r"shard-00003.tar should have .* the storage has nothing.* --verify"
    with pytest.raises(ShardError, match=message), opened(tmp_path, storage, 7.5, WINDOW):
        pass


@pytest.mark.parametrize("shards_that_fit", [7.5, SHARDS + 1.5])
@pytest.mark.parametrize("split", ["train", "dev"])
def test_a_sidecar_whose_offsets_were_reversed_is_refused(
    tmp_path: Path, storage: Path, split: str, shards_that_fit: float
) -> None:
    sidecar = storage / split / "shard-00000.json"
    content = json.loads(sidecar.read_text())
    content["members"]["grid.npy"]["offset"].reverse()
    write_json_atomic(sidecar, content)
    message = r"shard-00000\.json is damaged"
    with pytest.raises(DigestError, match=message), opened(tmp_path, storage, shards_that_fit, WINDOW):
        pass
