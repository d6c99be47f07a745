"""Samples of each batch: a function of (seed, epoch, step) and the global batch size alone."""

import threading
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from preprocessing.randomness import order_draws


class BatchSampler:
    """Cuts each epoch's permutation of all samples into batches, the same on all ranks (see :func:`rank_slice`).

    There are ``ceil(num_samples / batch_size)`` batches an epoch, their sizes equal to within one and never above
    ``batch_size``, so no small last batch distorts the number of negatives. Every sample occurs exactly once an epoch.

    A split that is larger than the disk cannot be read in an order drawn over all of it. With a window the shards
    themselves are put in a new order each epoch and cut into windows, and the samples are drawn within one window
    after the other; one window of all shards is the order without windows. Only the windows in use are in memory.

    Samples that are not kept are left out before anything is drawn. Attributes are ``num_samples``, those of an epoch,
    and ``total``, all that there are.

    Args:
        num_samples: all samples (captions).
        batch_size: the global batch size, over all ranks.
        seed: the run's seed.
        shard_samples: samples of each shard, in order; read with a window alone.
        window: shards that samples are drawn from at a time; None draws from all.
        kept: numbers of the samples that are drawn, in ascending order, if not all are.
    """

    def __init__(
        self,
        num_samples: int,
        batch_size: int,
        seed: int,
        shard_samples: Sequence[int] = (),
        window: int | None = None,
        kept: npt.NDArray[np.int64] | None = None,
    ) -> None:
        if window is not None and (window < 1 or sum(shard_samples) != num_samples):
            raise ValueError(f"a window of {window} shards of {sum(shard_samples)} samples does not fit {num_samples}")
        self.total = num_samples
        self._kept = kept
        if kept is not None:
            num_samples = len(kept)
            shard_samples = np.diff(np.searchsorted(kept, np.cumsum([0, *shard_samples]))).tolist()
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}")
        if num_samples < batch_size:
            raise ValueError(f"{num_samples} samples do not fill a batch of {batch_size}: lower batch_size or add data")
        self._window = window
        self._shard_starts = np.cumsum([0, *shard_samples] if window else [0, num_samples])
        self.num_samples = num_samples
        self.batch_size = batch_size
        self.seed = seed
        self.steps_per_epoch = -(-num_samples // batch_size)
        self.smallest_batch = num_samples // self.steps_per_epoch
        # Of windows, those that a batch lies in, and those that are fetched meanwhile.
        self._order = lru_cache(maxsize=4 if window else 1)(self._drawn)
        self._windows = lru_cache(maxsize=2)(self._cut)
        # The loader's thread and the training loop ask for the same order, which is to be drawn once.
        self._lock = threading.Lock()

    @property
    def window_steps(self) -> int | None:
        """Return about how many steps a window's samples last; None without windows."""
        if self._window is None:
            return None
        return max(1, self._window * self.steps_per_epoch // (len(self._shard_starts) - 1))

    def batch(self, epoch: int, step: int) -> npt.NDArray[np.int64]:
        """Return the sample indices of one global batch, in order."""
        if not 0 <= step < self.steps_per_epoch:
            raise ValueError(f"an epoch has the steps 0 to {self.steps_per_epoch - 1}, got {step}")
        start = step * self.num_samples // self.steps_per_epoch
        stop = (step + 1) * self.num_samples // self.steps_per_epoch
        parts = []
        with self._lock:
            _, ends = self._windows(epoch)
            for window in range(np.searchsorted(ends, start, side="right"), np.searchsorted(ends, stop) + 1):
                order = self._order(epoch, window)
                begin = ends[window] - len(order)
                parts.append(order[max(start - begin, 0) : stop - begin])
        samples = np.concatenate(parts).astype(np.int64)
        return samples if self._kept is None else self._kept[samples]

    def _cut(self, epoch: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the window of each shard in an epoch, and where in the epoch's order each window ends."""
        shards = len(self._shard_starts) - 1
        places = np.empty(shards, dtype=np.int64)
        # An epoch has a draw for each sample, then one for each shard.
        draws = order_draws(self.seed, epoch, self.num_samples, shards)
        places[np.argsort(draws, kind="stable")] = np.arange(shards)
        windows = places // (self._window or 1)
        return windows, np.cumsum(np.bincount(windows, np.diff(self._shard_starts))).astype(np.int64)

    def _drawn(self, epoch: int, window: int) -> npt.NDArray[np.unsignedinteger[Any]]:
        """Return the samples of a window in the order of their draws."""
        shards = np.flatnonzero(self._windows(epoch)[0] == window)
        edges = list(zip(self._shard_starts[shards].tolist(), self._shard_starts[shards + 1].tolist(), strict=True))
        draws = np.concatenate([order_draws(self.seed, epoch, start, end - start) for start, end in edges])
        samples = np.concatenate([np.arange(*edge, dtype=np.min_scalar_type(self.num_samples)) for edge in edges])
        return samples[np.argsort(draws, kind="stable")]


def rank_slice(batch: npt.NDArray[np.int64], rank: int, world: int) -> npt.NDArray[np.int64]:
    """Return one rank's contiguous block of a global batch (B,); sizes of the blocks differ by at most one."""
    if not 0 <= rank < world:
        raise ValueError(f"rank must be from 0 to {world - 1}, got {rank}")
    if len(batch) < world:
        raise ValueError(f"{len(batch)} samples do not split over {world} workers: raise batch_size or lower workers")
    return batch[rank * len(batch) // world : (rank + 1) * len(batch) // world]
