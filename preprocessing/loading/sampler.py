"""Samples of each batch: a function of (seed, epoch, step) and the global batch size alone."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt


class BatchSampler:
    """Cuts each epoch's permutation of all samples into batches, the same on all ranks (see :func:`rank_slice`).

    There are ``ceil(num_samples / batch_size)`` batches an epoch, their sizes equal to within one and never above
    ``batch_size``, so no small last batch distorts the number of negatives. Every sample occurs exactly once an epoch.

    A split that is larger than the disk cannot be read in an order drawn over all of it. With a window the shards
    themselves are put in a new order each epoch and cut into windows, and the samples are drawn within one window
    after the other; one window of all shards is the order without windows.

    Args:
        num_samples: samples of an epoch (captions).
        batch_size: the global batch size, over all ranks.
        seed: the run's seed.
        shard_samples: samples of each shard, in order; read with a window alone.
        window: shards that samples are drawn from at a time; None draws from all.
    """

    def __init__(
        self,
        num_samples: int,
        batch_size: int,
        seed: int,
        shard_samples: Sequence[int] = (),
        window: int | None = None,
    ) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}")
        if num_samples < batch_size:
            raise ValueError(
                f"{num_samples} samples do not fill one batch of {batch_size}: lower batch_size or add data"
            )
        if not 0 <= seed < 1 << 64:
            raise ValueError(f"seed must be from 0 to 2**64 - 1, got {seed}")
        if window is not None and (window < 1 or sum(shard_samples) != num_samples):
            raise ValueError(
                f"a window of {window} shards of {sum(shard_samples)} samples does not go with {num_samples} samples"
            )
        self._shard_samples = np.asarray(shard_samples, dtype=np.int64)
        self._window = window
        self.num_samples = num_samples
        self.batch_size = batch_size
        self.seed = seed
        self.steps_per_epoch = -(-num_samples // batch_size)
        self._cached: tuple[int, npt.NDArray[np.int64]] | None = None

    @property
    def smallest_batch(self) -> int:
        """Return the number of samples in the smallest batch."""
        return self.num_samples // self.steps_per_epoch

    @property
    def window_steps(self) -> int | None:
        """Return about how many steps a window's samples last; None without windows."""
        if self._window is None:
            return None
        return max(1, self._window * self.steps_per_epoch // len(self._shard_samples))

    def batch(self, epoch: int, step: int) -> npt.NDArray[np.int64]:
        """Return the sample indices of one global batch, in order."""
        if not 0 <= step < self.steps_per_epoch:
            raise ValueError(f"an epoch has the steps 0 to {self.steps_per_epoch - 1}, got {step}")
        order = self._permutation(epoch)
        start = step * self.num_samples // self.steps_per_epoch
        stop = (step + 1) * self.num_samples // self.steps_per_epoch
        return order[start:stop].copy()

    def _permutation(self, epoch: int) -> npt.NDArray[np.int64]:
        """Return the epoch's order; the last one is cached."""
        if not 0 <= epoch < 1 << 64:
            raise ValueError(f"epoch must be from 0 to 2**64 - 1, got {epoch}")
        cached = self._cached
        if cached is None or cached[0] != epoch:
            # Sorting raw Philox output: numpy promises to keep that stream, but not Generator.permutation.
            shards = 0 if self._window is None else len(self._shard_samples)
            draws = np.random.Philox(key=[self.seed, epoch]).random_raw(self.num_samples + shards)
            cached = (epoch, self._ordered(draws[: self.num_samples], draws[self.num_samples :]))
            self._cached = cached
        return cached[1]

    def _ordered(
        self, sample_draws: npt.NDArray[np.uint64], shard_draws: npt.NDArray[np.uint64]
    ) -> npt.NDArray[np.int64]:
        if self._window is None:
            return np.argsort(sample_draws, kind="stable")
        places = np.empty(len(shard_draws), dtype=np.int64)
        places[np.argsort(shard_draws, kind="stable")] = np.arange(len(shard_draws))
        return np.lexsort((sample_draws, np.repeat(places // self._window, self._shard_samples)))


def rank_slice(batch: npt.NDArray[np.int64], rank: int, world: int) -> npt.NDArray[np.int64]:
    """Return one rank's contiguous block of a global batch (B,); sizes of the blocks differ by at most one."""
    if not 0 <= rank < world:
        raise ValueError(f"rank must be from 0 to {world - 1}, got {rank}")
    if len(batch) < world:
        raise ValueError(
            f"a batch of {len(batch)} samples cannot be split over {world} workers: raise batch_size or lower workers"
        )
    return batch[rank * len(batch) // world : (rank + 1) * len(batch) // world]
