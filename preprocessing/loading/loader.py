"""Batches for training (augmented, prefetched, resumable) and for evaluation (in order)."""

import contextlib
import itertools
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch

from preprocessing.captions.encoder import CaptionEncoder
from preprocessing.captions.token_table import TokenTable
from preprocessing.loading.batch import Batch, pad_tokens
from preprocessing.loading.image_source import ImageSource
from preprocessing.loading.sampler import BatchSampler, rank_slice
from preprocessing.prefetch import prefetch_calls
from preprocessing.randomness import Stream, sample_rng
from preprocessing.shards.reader import ShardReader

# Batches that background threads have prepared in advance.
_PREPARED = 2
# Captions are padded to a multiple of it, if batches are to have few shapes.
_BUCKET = 8

CaptionInputs = Callable[[npt.NDArray[np.int64], int, int], dict[str, torch.Tensor]]
"""Inputs of a batch besides the tokens of its captions, by name: of their numbers (B,), the epoch, and L."""


@dataclass(eq=False)
class TrainLoader:
    """One rank's local batches of training; raises ValueError if the arguments do not fit together.

    The global batch of a step comes from the sampler, the rank takes its contiguous block, and each sample is augmented
    by a generator of its own, keyed by (seed, epoch, caption). So the samples of a step, and their augmentation, do not
    depend on the number of ranks, and an epoch may begin at any step.

    Attributes:
        reader, images: the training split, and its images with their augmentation.
        tokens: of the reader's captions.
        sampler: over the reader's captions.
        seed: of the captions' augmentation.
        caption_augmentation: mask, replace and delete tokens, as the caption encoder does it; ``words`` keeps the ends.
        extra: gives what the model takes besides images and tokens.
        threads: that prepare batches, each one of its own; a GPU trains faster than one of them prepares.
        pin: let a background thread copy them to page-locked memory, from which copies to a GPU are asynchronous.
        few_shapes: pad captions to a multiple of 8, so that few CUDA graphs replay all steps.
        wait_seconds: time that consumers have waited for batches so far, over all epochs.
    """

    reader: ShardReader
    images: ImageSource
    tokens: TokenTable
    caption_encoder: CaptionEncoder
    sampler: BatchSampler
    rank: int
    world: int
    seed: int
    caption_augmentation: bool | Literal["words"]
    extra: CaptionInputs | None = None
    threads: int = 1
    pin: bool = False
    few_shapes: bool = False

    def __post_init__(self) -> None:
        counts = [self.sampler.total, self.reader.num_captions, len(self.tokens)]
        if len(set(counts)) > 1:
            raise ValueError(f"the samples of the sampler, the reader and the tokens are {counts}, not the same number")
        rank_slice(np.arange(self.sampler.smallest_batch), self.rank, self.world)  # raises if it cannot be split
        self.wait_seconds = 0.0

    @property
    def steps_per_epoch(self) -> int:
        """Return the number of batches of an epoch, the same on all ranks."""
        return self.sampler.steps_per_epoch

    def epoch(self, epoch: int, start_step: int = 0) -> Generator[Batch, None, None]:
        """Yield this rank's batches of an epoch from a step on, in order; `start_step` may be ``steps_per_epoch``.

        Background threads prepare them; they end with the iteration, also when the consumer stops early. Their errors
        are raised here.
        """
        if not 0 <= start_step <= self.steps_per_epoch:
            raise ValueError(f"start_step must be from 0 to {self.steps_per_epoch}, got {start_step}")
        calls = (partial(self._prepared, epoch, step) for step in range(start_step, self.steps_per_epoch))
        return self._timed(prefetch_calls(calls, _PREPARED, self.threads))

    def _prepared(self, epoch: int, step: int) -> Batch:
        """Return the batch of a step, pinned if it is to be, while the shards of the next window are fetched."""
        ahead = self.sampler.window_steps if self.reader.is_streamed else None
        if ahead is not None and step + ahead < self.steps_per_epoch:
            captions = rank_slice(self.sampler.batch(epoch, step + ahead), self.rank, self.world)
            self.reader.fetch(self.reader.images_of(captions))
        batch = self.batch(epoch, step)
        return batch.pin() if self.pin else batch

    def batch(self, epoch: int, step: int) -> Batch:
        """Return this rank's local batch of a step, prepared in the calling thread."""
        captions = rank_slice(self.sampler.batch(epoch, step), self.rank, self.world)
        images = self.reader.images_of(captions)
        image_tensors = self.images.augmented(images.tolist(), epoch, captions.tolist())
        tokens = [self._tokens(epoch, caption) for caption in captions.tolist()]
        tokens_BL, lengths_B = pad_tokens(tokens, self.caption_encoder.pad_id, _BUCKET if self.few_shapes else 1)
        extra = {} if self.extra is None else self.extra(captions, epoch, tokens_BL.shape[1])
        return Batch(*image_tensors, tokens_BL, lengths_B, torch.tensor(images), torch.tensor(captions), extra)

    def _tokens(self, epoch: int, caption: int) -> npt.NDArray[np.int32]:
        ids_L = self.tokens.ids(caption)
        if not self.caption_augmentation:
            return ids_L
        rng = sample_rng(self.seed, epoch, caption, Stream.CAPTION)
        keep_ends = self.caption_augmentation == "words"
        return self.caption_encoder.augment(ids_L, self.tokens.words_of(caption), rng, keep_ends)

    def _timed(self, batches: Generator[Batch, None, None]) -> Generator[Batch, None, None]:
        """Yield the batches and add up the time spent waiting for them."""
        with contextlib.closing(batches):
            while True:
                began = time.perf_counter()
                batch = next(batches, None)
                self.wait_seconds += time.perf_counter() - began
                if batch is None:
                    return
                yield batch


def image_batches(
    source: ImageSource, batch_size: int, images: Iterable[int] | None = None
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield the two tensors of up to `batch_size` images at a time, of all or of those given, unaugmented."""
    wanted = iter(range(len(source)) if images is None else images)
    while batch := list(itertools.islice(wanted, batch_size)):
        yield source.unaugmented(batch)


def caption_batches(
    tokens: TokenTable, pad_id: int, batch_size: int, captions: range | None = None
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield token ids, int64 (C, L), padded, and lengths, int64 (C,), of all captions or of a contiguous range."""
    wanted = map(tokens.ids, range(len(tokens)) if captions is None else captions)
    while batch := list(itertools.islice(wanted, batch_size)):
        yield pad_tokens(batch, pad_id)
