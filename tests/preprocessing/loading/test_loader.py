"""The training loader: one global batch for any number of ranks, exact resumption, augmentation; evaluation order."""

import gc
import itertools
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch

from preprocessing.captions.augment import drop_grids, drop_regions
from preprocessing.captions.token_table import TokenTable
from preprocessing.captions.vocabulary import Vocabulary
from preprocessing.loading.batch import Batch
from preprocessing.loading.image_source import FeatureSource, SizeAugmentation
from preprocessing.loading.loader import TrainLoader, caption_batches, image_batches
from preprocessing.loading.sampler import BatchSampler
from preprocessing.randomness import sample_rng
from preprocessing.shards.index import ShardError
from preprocessing.shards.reader import ShardReader
from preprocessing.shards.writer import Sample, write_shard

BATCH = 6
SEED = 17
SIZES: list[SizeAugmentation] = ["none", "region", "grid"]


@pytest.fixture
def reader(shards: Path) -> ShardReader:
    return ShardReader(shards, "grid")


@pytest.fixture
def vocabulary(reader: ShardReader) -> Vocabulary:
    return Vocabulary.build([c["text"] for i in range(len(reader)) for c in reader.meta(i)["captions"]], min_count=2)


def make_loader(
    reader: ShardReader,
    vocabulary: Vocabulary,
    rank: int = 0,
    world: int = 1,
    size: SizeAugmentation = "region",
    captions: bool | Literal["words"] = True,
    batch: int = BATCH,
    dropout: float = 0.0,
    threads: int = 1,
    few_shapes: bool = False,
) -> TrainLoader:
    sampler = BatchSampler(reader.num_captions, batch, SEED)
    images = FeatureSource(reader, SEED, size, dropout, few_shapes)
    tokens = TokenTable.encode(reader.texts(), vocabulary)
    return TrainLoader(
        reader,
        images,
        tokens,
        vocabulary,
        sampler,
        rank,
        world,
        SEED,
        captions,
        threads=threads,
        few_shapes=few_shapes,
    )


def rows(batch: Batch) -> list[tuple[int, int, bytes, list[int]]]:
    """Each sample of a batch without its padding, which depends on the others in it."""
    return [
        (
            int(batch.caption_indices_B[b]),
            int(batch.image_indices_B[b]),
            batch.images[b, : batch.lengths_or_mask[b]].numpy().tobytes(),
            batch.tokens_BL[b, : batch.token_lengths_B[b]].tolist(),
        )
        for b in range(len(batch))
    ]


def texts(reader: ShardReader) -> list[str]:
    return [caption["text"] for image in range(len(reader)) for caption in reader.meta(image)["captions"]]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("captions", [False, True, "words"])
def test_batches_equal_a_sample_by_sample_loop(
    reader: ShardReader, vocabulary: Vocabulary, size: SizeAugmentation, captions: bool | Literal["words"]
) -> None:
    sampler = BatchSampler(reader.num_captions, BATCH, SEED)
    flat = texts(reader)
    for epoch in range(2):
        batches = list(make_loader(reader, vocabulary, size=size, captions=captions).epoch(epoch))
        assert len(batches) == sampler.steps_per_epoch
        for step, batch in enumerate(batches):
            expected = []
            for caption in sampler.batch(epoch, step).tolist():
                image = int(reader.images_of(np.array([caption]))[0])
                features = reader.features(image)
                if size != "none":
                    drop = {"region": drop_regions, "grid": drop_grids}[size]
                    features = features[drop(len(features), sample_rng(SEED, epoch, caption, 0))]
                ids, words = np.array(vocabulary.encode_words(flat[caption]), dtype=np.int32)
                if captions:
                    ids = vocabulary.augment(ids, words, sample_rng(SEED, epoch, caption, 1), captions == "words")
                expected.append((caption, image, features.tobytes(), ids.tolist()))
            assert rows(batch) == expected
            assert batch.images.shape[1] == batch.lengths_or_mask.max()
            assert batch.tokens_BL.shape[1] == batch.token_lengths_B.max()


@pytest.mark.parametrize("world", [2, 3, 4])
@pytest.mark.parametrize("size", SIZES)
def test_ranks_join_to_the_batches_of_one_process(
    reader: ShardReader, vocabulary: Vocabulary, world: int, size: SizeAugmentation
) -> None:
    for epoch in (0, 3):
        alone = [rows(batch) for batch in make_loader(reader, vocabulary, size=size).epoch(epoch)]
        ranks = [
            [rows(batch) for batch in make_loader(reader, vocabulary, rank, world, size).epoch(epoch)]
            for rank in range(world)
        ]
        assert [list(itertools.chain(*parts)) for parts in zip(*ranks, strict=True)] == alone


def test_dimensions_that_an_image_is_trained_without(reader: ShardReader, vocabulary: Vocabulary) -> None:
    batches = list(make_loader(reader, vocabulary, size="none", dropout=0.25).epoch(1))
    for batch in batches:
        for b, caption in enumerate(batch.caption_indices_B.tolist()):
            features = reader.features(int(batch.image_indices_B[b]))
            gone = sample_rng(SEED, 1, caption, 5).random(features.shape[1]) < 0.25
            expected = np.where(gone, 0, features.astype(np.float32) / 0.75)
            np.testing.assert_allclose(batch.images[b, : len(features)], expected, rtol=2e-3)
    halves = [list(make_loader(reader, vocabulary, rank, 2, "none", dropout=0.25).epoch(1)) for rank in range(2)]
    joined = [list(itertools.chain(*map(rows, parts))) for parts in zip(*halves, strict=True)]
    assert joined == [rows(batch) for batch in batches]


@pytest.mark.parametrize("start", range(7))
def test_resuming_in_mid_epoch_gives_the_rest(reader: ShardReader, vocabulary: Vocabulary, start: int) -> None:
    whole = [rows(batch) for batch in make_loader(reader, vocabulary).epoch(1)]
    assert [rows(batch) for batch in make_loader(reader, vocabulary).epoch(1, start)] == whole[start:]


@pytest.mark.parametrize("threads", [1, 3])
def test_neither_threads_nor_few_shapes_change_a_sample(
    reader: ShardReader, vocabulary: Vocabulary, threads: int
) -> None:
    expected = list(make_loader(reader, vocabulary).epoch(2, 1))
    found = list(make_loader(reader, vocabulary, threads=threads, few_shapes=True).epoch(2, 1))
    assert [rows(batch) for batch in found] == [rows(batch) for batch in expected]
    assert {batch.tokens_BL.shape[1] % 8 for batch in found} == {0}
    # Sets of different sizes: a multiple of 16 holds the largest.
    assert {batch.images.shape[1] % 16 for batch in found} <= {
        0,
        max(len(reader.features(i)) for i in range(len(reader))) % 16,
    }
    for batch in found:
        beyond = torch.arange(batch.images.shape[1]) >= batch.lengths_or_mask.unsqueeze(1)
        assert not batch.images[beyond].any()


def test_the_cut_into_shards_does_not_matter(tmp_path: Path, sample: Callable[..., Sample]) -> None:
    batches = []
    for name, cuts in (("a", [12]), ("b", [1, 4, 7])):
        (tmp_path / name).mkdir()
        numbers = iter(range(12))
        for shard, count in enumerate(cuts):
            samples = [sample(next(numbers)) for _ in range(count)]
            write_shard(tmp_path / name / f"shard-{shard:05d}.tar", samples, "abc")
        reader = ShardReader(tmp_path / name, "grid")
        vocabulary = Vocabulary.build(texts(reader), min_count=1)
        batches.append([rows(batch) for batch in make_loader(reader, vocabulary).epoch(0)])
    assert batches[0] == batches[1]


def prefetch_threads() -> int:
    return sum(thread.name == "prefetch" for thread in threading.enumerate())


def test_no_thread_stays_behind(reader: ShardReader, vocabulary: Vocabulary) -> None:
    loader = make_loader(reader, vocabulary)
    for _ in loader.epoch(0):
        break
    gc.collect()
    assert prefetch_threads() == 0


def test_damage_found_in_the_background_is_raised_here(shards: Path, vocabulary: Vocabulary) -> None:
    # With one map at a time the damaged shard is opened again within the epoch.
    loader = make_loader(ShardReader(shards, "grid", max_open_shards=1), vocabulary)
    tar = shards / "shard-00002.tar"
    tar.write_bytes(tar.read_bytes()[:-512])
    with pytest.raises(ShardError, match=r"shard-00002\.tar"):
        list(loader.epoch(0))
    assert prefetch_threads() == 0


def test_arguments_that_do_not_fit(reader: ShardReader, vocabulary: Vocabulary) -> None:
    with pytest.raises(ValueError, match="do not split over 6 workers"):
        make_loader(reader, vocabulary, world=6)
    with pytest.raises(ValueError, match="rank"):
        make_loader(reader, vocabulary, rank=2, world=2)
    tokens = TokenTable.encode(texts(reader), vocabulary)
    with pytest.raises(ValueError, match="are \\[31, 32, 32\\]"):
        TrainLoader(reader, FeatureSource(reader), tokens, vocabulary, BatchSampler(31, 6, 0), 0, 1, 0, True)
    loader = make_loader(reader, vocabulary)
    for start in (-1, loader.steps_per_epoch + 1):
        with pytest.raises(ValueError, match="start_step"):
            loader.epoch(0, start)


@pytest.mark.parametrize("size", [1, 4, 13, 32, 100])
def test_evaluation_reads_everything_once_in_order(reader: ShardReader, vocabulary: Vocabulary, size: int) -> None:
    table = TokenTable.encode(texts(reader), vocabulary)
    images = [
        features[b, : lengths[b]].numpy().tobytes()
        for features, lengths in image_batches(FeatureSource(reader), size)
        for b in range(len(lengths))
    ]
    assert images == [reader.features(image).tobytes() for image in range(len(reader))]
    captions = [
        tokens[c, : lengths[c]].tolist()
        for tokens, lengths in caption_batches(table, vocabulary.pad_id, size)
        for c in range(len(lengths))
    ]
    assert captions == [vocabulary.encode(text) for text in texts(reader)]
    assert all(len(lengths) <= size for _, lengths in image_batches(FeatureSource(reader), size))
    assert all(len(lengths) <= size for _, lengths in caption_batches(table, vocabulary.pad_id, size))


def test_processes_may_share_an_evaluation(reader: ShardReader, vocabulary: Vocabulary) -> None:
    table = TokenTable.encode(texts(reader), vocabulary)
    everything = [range(5), range(5, 5), range(5, 13)], [range(7), range(7, 7), range(7, 32)]
    ways = (
        lambda images: image_batches(FeatureSource(reader), 3, images),
        lambda captions: caption_batches(table, vocabulary.pad_id, 3, captions),
    )
    for batches, parts in zip(ways, everything, strict=True):
        whole = [row[:n].tolist() for rows_, lengths in batches(None) for row, n in zip(rows_, lengths, strict=True)]
        shared = [
            row[:n].tolist()
            for images in parts
            for rows_, lengths in batches(images)
            for row, n in zip(rows_, lengths, strict=True)
        ]
        assert shared == whole
