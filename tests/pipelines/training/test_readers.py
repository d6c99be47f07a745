"""Training on a split that is larger than the machine's cache, and what is refused before it starts."""

from __future__ import annotations

import json
import os
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
import torch

from pipelines.config import load_config
from pipelines.kinds.inputs import SplitData, SplitPaths
from pipelines.kinds.kind import TWO_TOWERS
from pipelines.runtime.stage import MANIFEST, ShardSet, StageDir, StageError
from pipelines.training.prepare import make_tables
from pipelines.training.readers import open_captions, open_splits
from preprocessing.captions.token_table import TokenTable
from preprocessing.captions.vocabulary import Vocabulary
from preprocessing.loading.image_source import FeatureSource
from preprocessing.loading.loader import TrainLoader
from preprocessing.loading.sampler import BatchSampler
from preprocessing.shards.index import ShardError
from preprocessing.shards.reader import ShardReader
from preprocessing.shards.writer import write_shard
from preprocessing.storage.atomic import write_json_atomic
from preprocessing.storage.mirror import Mirror, sidecar_path, table_path
from tests.preprocessing.conftest import make_sample
from vse_core.digests import DigestError, file_digest

SHARDS, IN_EACH, WINDOW = 12, 6, 2


@pytest.fixture
def storage(tmp_path: Path) -> Path:
    """Shards of two splits on a storage, and their tables."""
    writer = Mirror(tmp_path / "writer", str(tmp_path / "storage"))
    for split, shards in (("train", SHARDS), ("dev", 1)):
        for shard in range(shards):
            path = writer.root / split / f"shard-{shard:05d}.tar"
            path.parent.mkdir(parents=True, exist_ok=True)
            samples = [make_sample(shard * IN_EACH + number, rows=6, captions=2) for number in range(IN_EACH)]
            write_shard(path, samples, "f")
            writer.push(path, table_path(path), sidecar_path(path))
        files = [path for path in (writer.root / split).iterdir() if path.suffix != ".tar"]
        write_json_atomic(writer.root / split / MANIFEST, {"digests": {file.name: file_digest(file) for file in files}})
        writer.push(writer.root / split / MANIFEST)
        tables(writer, split)
    return tmp_path / "storage"


def tables(mirror: Mirror, split: str) -> Path:
    """The tables of a split, made if they are not there."""
    reader = ShardReader(mirror.root / split, "grid")
    words = Vocabulary.build(reader.texts(), 1)
    words.save(mirror.root / words.FILE)
    settings = load_config(None).training_settings.kind_settings
    source = ShardSet(StageDir(mirror.root, split, "f", mirror), (), 0, 0, "f")
    return make_tables(mirror.root, split, source, SplitData(reader), words, mirror.root, TWO_TOWERS, settings)


def paths(tmp_path: Path, split: str, graphs: Path | None = None) -> SplitPaths:
    machine = tmp_path / "machine"
    (of_it,) = (tmp_path / "writer" / "tables" / split).iterdir()
    return SplitPaths(machine / split, graphs, machine / of_it.relative_to(tmp_path / "writer"))


def opened(
    tmp_path: Path,
    storage: Path,
    shards_that_fit: float,
    window: int | None = None,
    way: Any = open_splits,
    **more: Any,
) -> AbstractContextManager[tuple[SplitData, SplitData]]:
    """Open both splits on a machine whose cache is that large."""
    size = (storage / "train" / "shard-00000.tar").stat().st_size
    mirror = Mirror(tmp_path / "machine", str(storage), int(shards_that_fit * size))
    splits: AbstractContextManager[tuple[SplitData, SplitData]] = way(
        mirror, "grid", window, paths(tmp_path, "train"), paths(tmp_path, "dev"), **more
    )
    return splits


def batches(
    reader: ShardReader,
    window: int | None,
    texts: list[str] | None = None,
    rank: int = 0,
    world: int = 1,
    first: int = 0,
) -> list[torch.Tensor]:
    texts = texts or list(reader.texts())
    vocabulary = Vocabulary.build(texts, 1)
    sampler = BatchSampler(reader.num_captions, 8, 0, reader.shard_captions, window)
    tokens = TokenTable.encode(texts, vocabulary)
    loader = TrainLoader(reader, FeatureSource(reader), tokens, vocabulary, sampler, rank, world, 0, True)
    return [batch.images.clone() for epoch in range(2) for batch in loader.epoch(epoch, first)]


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


def test_graphs_stay_where_they_are(tmp_path: Path, storage: Path) -> None:
    """Training processes have tables of what they read of them."""
    mirror = Mirror(tmp_path / "machine", str(storage))
    train, nowhere = mirror.root / "train", mirror.root / "graphs"
    with open_splits(mirror, "grid", None, paths(tmp_path, "dev", nowhere), paths(tmp_path, "dev", nowhere)) as splits:
        assert [split.graphs for split in splits] == [None, None]
        assert splits[1].tables == paths(tmp_path, "dev", nowhere).tables
    with open_captions(mirror, "grid", None, paths(tmp_path, "dev", train), paths(tmp_path, "dev", train)) as splits:
        assert [split.graphs for split in splits] == [train, train]
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
    for way in (open_captions, open_splits):
        with pytest.raises(StageError, match=message), opened(tmp_path, storage, fits, window, way):
            pass


def test_a_shard_that_the_storage_has_lost_is_named_before_the_start(tmp_path: Path, storage: Path) -> None:
    (storage / "train" / "shard-00003.tar").unlink()
    message = r"shard-00003.tar should have .* the storage has nothing.* --verify"
    with pytest.raises(ShardError, match=message), opened(tmp_path, storage, 7.5, WINDOW, open_captions):
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
    with pytest.raises(DigestError, match=message), opened(tmp_path, storage, shards_that_fit, WINDOW, open_captions):
        pass


def test_a_table_that_was_cut_short_is_refused(tmp_path: Path, storage: Path) -> None:
    (tokens,) = storage.glob("tables/train/*/tokens.npy")
    os.truncate(tokens, tokens.stat().st_size - 4)
    message = r"the tables in .* cannot be read .*; delete the folder and train again"
    with pytest.raises(ShardError, match=message), opened(tmp_path, storage, 7.5, WINDOW):
        pass
