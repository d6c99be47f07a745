"""Images as a source of batches: the same for any number of ranks and threads, augmented by (seed, epoch, sample)."""

import io
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from preprocessing.captions.augment import drop_grids
from preprocessing.captions.token_table import TokenTable
from preprocessing.captions.vocabulary import Vocabulary
from preprocessing.loading.batch import Batch
from preprocessing.loading.image_source import PixelSource, SizeAugmentation
from preprocessing.loading.loader import TrainLoader, image_batches
from preprocessing.loading.pixels import PixelFormat, decode_pixels, full_view, random_view
from preprocessing.loading.sampler import BatchSampler
from preprocessing.randomness import sample_rng
from preprocessing.shards.index import ShardError
from preprocessing.shards.reader import ShardReader
from preprocessing.shards.writer import Sample, write_shard

FORMAT = PixelFormat(size=12, cells=9)
SEED = 5
IMAGES = 7


def jpeg(number: int) -> bytes:
    rng = np.random.default_rng(number)
    image = Image.fromarray(rng.integers(0, 256, (20 + number, 30, 3), dtype=np.uint8))
    buffer = io.BytesIO()
    image.save(buffer, "JPEG")
    return buffer.getvalue()


@pytest.fixture
def reader(tmp_path: Path) -> ShardReader:
    captions = [{"caption_id": str(c), "text": f"a picture number {c}"} for c in range(3)]
    meta = {"image_id": "x", "image": "x.jpg", "split": "train", "captions": captions}
    for shard, numbers in enumerate((range(4), range(4, IMAGES))):
        samples = [Sample(f"{number:08d}", {}, meta, {"jpg": jpeg(number)}) for number in numbers]
        write_shard(tmp_path / f"shard-{shard:05d}.tar", samples, "f")
    return ShardReader(tmp_path, "jpg")


def source(reader: ShardReader, threads: int = 3, augment: bool = True, size: SizeAugmentation = "grid") -> PixelSource:
    return PixelSource(reader, FORMAT, threads, SEED, augment, size)


def epoch_of(reader: ShardReader, rank: int, world: int, threads: int, epoch: int) -> Iterator[Batch]:
    vocabulary = Vocabulary.build(["a picture"], min_count=1)
    sampler = BatchSampler(reader.num_captions, 5, SEED)
    images = source(reader, threads)
    tokens = TokenTable.encode(reader.texts(), vocabulary)
    return TrainLoader(reader, images, tokens, vocabulary, sampler, rank, world, SEED, True).epoch(epoch)


def rows(batches: Iterator[Batch]) -> list[tuple[int, bytes, list[bool]]]:
    return [
        (int(b.caption_indices_B[i]), b.images[i].numpy().tobytes(), b.lengths_or_mask[i].tolist())
        for b in batches
        for i in range(len(b))
    ]


def test_the_reader_gives_the_bytes_that_were_written(reader: ShardReader) -> None:
    assert [bytes(reader.file(image)) for image in range(IMAGES)] == [jpeg(number) for number in range(IMAGES)]


def test_evaluation_shows_full_images_in_order(reader: ShardReader) -> None:
    batches = list(image_batches(source(reader), 3))
    assert [len(pixels) for pixels, _ in batches] == [3, 3, 1]
    assert torch.cat([kept for _, kept in batches]).all()
    pixels = torch.cat([pixels for pixels, _ in batches])
    assert pixels.dtype == torch.uint8
    for number in range(IMAGES):
        assert torch.equal(pixels[number], full_view(decode_pixels(jpeg(number)), 12))


def test_images_can_be_read_in_inference_mode(reader: ShardReader) -> None:
    with torch.inference_mode():
        pixels, _ = next(image_batches(source(reader), 7))
    assert torch.equal(pixels, source(reader).unaugmented(list(range(7)))[0])


def test_training_equals_a_sample_by_sample_loop(reader: ShardReader) -> None:
    for epoch in (0, 3):
        for caption, pixels, kept in rows(epoch_of(reader, 0, 1, 3, epoch)):
            view = random_view(decode_pixels(jpeg(caption // 3)), 12, sample_rng(SEED, epoch, caption, 2))
            assert pixels == view.numpy().tobytes()
            cells = drop_grids(9, sample_rng(SEED, epoch, caption, 0))
            assert kept == [cell in cells for cell in range(9)]


@pytest.mark.parametrize(("world", "threads"), [(1, 1), (2, 1), (4, 2)])
def test_neither_ranks_nor_threads_change_a_sample(reader: ShardReader, world: int, threads: int) -> None:
    alone = {row[0]: row for row in rows(epoch_of(reader, 0, 1, 4, 1))}
    together = [row for rank in range(world) for row in rows(epoch_of(reader, rank, world, threads, 1))]
    assert sorted(row[0] for row in together) == list(range(3 * IMAGES))
    assert all(alone[row[0]] == row for row in together)


def test_each_augmentation_can_be_left_out_alone(reader: ShardReader) -> None:
    images, samples = [2, 2, 5], [6, 7, 15]
    pixels, kept = source(reader).augmented(images, 0, samples)
    assert torch.equal(source(reader, size="none").augmented(images, 0, samples)[0], pixels)
    assert torch.equal(source(reader, augment=False).augmented(images, 0, samples)[1], kept)
    assert torch.equal(
        source(reader, augment=False).augmented(images, 0, samples)[0], source(reader).unaugmented(images)[0]
    )
    assert source(reader, size="none").augmented(images, 0, samples)[1].all()
    assert not torch.equal(pixels[0], pixels[1])  # two captions of one image


def test_an_image_damaged_in_its_shard_is_named(reader: ShardReader, tmp_path: Path) -> None:
    tar = tmp_path / "shard-00001.tar"
    table = json.loads(tar.with_suffix(".json").read_text())["members"]["jpg"]
    data = bytearray(tar.read_bytes())
    start = table["offset"][1]
    data[start : start + table["size"][1]] = bytes(table["size"][1])
    tar.write_bytes(data)
    broken = ShardReader(tmp_path, "jpg")
    whole = list(range(5))
    assert torch.equal(source(broken).unaugmented(whole)[0], source(reader).unaugmented(whole)[0])
    with pytest.raises(ShardError, match=r"shard-00001\.tar, sample 1: the image is damaged .* delete"):
        source(broken).unaugmented([0, 5])
    with pytest.raises(ShardError, match="sample 1: the image is damaged"):
        list(epoch_of(broken, 0, 1, 2, 0))
