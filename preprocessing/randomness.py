"""Every stream of random numbers that a run's seed gives: what is drawn is a function of the numbers named here alone.

The order of samples and the generated scenes take raw output of Philox, which NumPy promises to keep, unlike the
methods of its Generator. New weights are drawn with torch's generator at the seed itself.
"""

import hashlib
from enum import IntEnum
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from numpy.random.bit_generator import ISeedSequence

_SAMPLE_BITS = 40
_STREAM_BITS = 4
_EPOCH_BITS = 64 - _SAMPLE_BITS - _STREAM_BITS


class Stream(IntEnum):
    """The draws of a sample of a training; one stream each, so that without one the others stay as they were."""

    SIZE = 0  # regions or grids that are left out
    CAPTION = 1  # tokens that are masked, replaced or deleted
    PIXEL = 2  # crop and flip of an image
    NEGATIVE = 3  # components in place of those of a caption
    ADVERSARIAL = 4  # adversarial captions of a caption
    FEATURE = 5  # dimensions of features that are left out


# The adversarial captions of an attack (UniVSE's, then VSE-C's) are drawn once, by streams of their own.
UNIVSE_ATTACKS = {"object": 0, "attribute": 1, "relation": 2}
VSE_C_ATTACKS = {"noun": 3, "numeral": 4, "relation": 5}


def sample_rng(seed: int, epoch: int, sample: int, stream: int) -> np.random.Generator:
    """Return a random generator for one use (`stream`, 0 to 15) of one sample of a split in one epoch of a run.

    Philox is keyed by the four numbers, packed without collision, so that draws depend on them alone. A number that
    does not fit into its bits (64 for the seed, 20 the epoch, 40 the sample) is a ValueError.
    """
    values = {"seed": seed, "epoch": epoch, "sample": sample, "stream": stream}
    for (name, value), bits in zip(values.items(), (64, _EPOCH_BITS, _SAMPLE_BITS, _STREAM_BITS), strict=True):
        if not 0 <= value < 1 << bits:
            raise ValueError(f"{name} must be from 0 to 2**{bits} - 1, got {value}")
    packed = (epoch << (_SAMPLE_BITS + _STREAM_BITS)) | (sample << _STREAM_BITS) | stream
    key = np.array([seed, packed], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(cast(Any, _PhiloxKey(key))))


class _PhiloxKey(ISeedSequence):
    """Hands a ready 128-bit key to Philox, at a third of the cost of ``key=``, which still gathers system entropy."""

    def __init__(self, key: npt.NDArray[np.uint64]) -> None:
        self._key = key

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> npt.NDArray[Any]:
        return self._key[:n_words].astype(dtype, copy=False)


def attack_rng(seed: int, image_id: str, caption_id: str, attack: int) -> np.random.Generator:
    """Return a generator for one caption and attack, whichever other captions there are."""
    digest = hashlib.sha256(f"{image_id}\0{caption_id}".encode()).digest()
    return sample_rng(seed, 0, int.from_bytes(digest[:5], "big"), attack)


def order_draws(seed: int, epoch: int, start: int, count: int) -> npt.NDArray[np.uint64]:
    """Return `count` draws of an epoch's order from the one with the number `start` on."""
    blocks, before = divmod(start, 4)  # Philox gives four at a time
    # In a list, keys from 2**63 on would become floating-point numbers, many of them the same.
    key = np.array([seed, epoch], dtype=np.uint64)
    return np.random.Philox(key=key, counter=blocks).random_raw(before + count)[before:]


def scene_bits(seed: int, index: int, stream: int) -> np.random.Philox:
    """Return the bits that a generated scene is drawn from: stream 0 its layout, 1 its captions."""
    key = np.array([seed, index], dtype=np.uint64)
    return np.random.Philox(key=key, counter=np.array([0, 0, 0, stream], dtype=np.uint64))


def dropout_seed(seed: int, step: int, process: int) -> int:
    """Return the seed of torch's generator in a step of a training process, for dropout."""
    return int(np.random.SeedSequence((seed, step, process)).generate_state(1, np.uint64)[0])
