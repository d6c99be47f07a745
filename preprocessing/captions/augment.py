"""Augmentation of captions and of region or grid sets in training, a function of (seed, epoch, sample) alone."""

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int32]
WordNumbers = npt.NDArray[np.int16]
Draws = npt.NDArray[np.float64]

# 20 % of all tokens, or words, are touched: one half of these is masked, one tenth replaced at random, the rest deleted
# (VSE-infinity's code).
_MASK_BELOW = 0.2 * 0.5
_RANDOM_BELOW = 0.2 * 0.6
_DELETE_BELOW = 0.2
# Beyond all draws.
_NEVER = 1.0
# An image whose drawn rate is at most this keeps all of its grids.
_NO_GRID_DROP_UP_TO = 0.2


def augment_tokens(ids_L: Ids, rng: np.random.Generator, mask_id: int, size: int) -> Ids:
    """Mask, replace or delete tokens of a caption for the BiGRU text encoder (VSE-infinity, released code).

    Each token is touched with probability 0.2. A touched token becomes ``mask_id`` (one half), a uniformly random entry
    of the ``size`` of the vocabulary (one tenth), or is deleted (four tenths).

    Differs from the released code: a caption whose tokens would all be deleted stays as it was.
    """
    touch_L, entry_L = rng.random((2, len(ids_L)))
    return _augmented(ids_L, touch_L, entry_L, mask_id, size)


def augment_words(ids_L: Ids, words_L: WordNumbers, rng: np.random.Generator, mask_id: int | None, size: int) -> Ids:
    """Mask, replace or delete whole words of a caption for pretrained text encoders (VSE-infinity, released code).

    Each word is touched with probability 0.2. All pieces of a touched word become ``mask_id`` (one half; None, if a
    tokenizer has no mask, deletes them), each piece becomes a uniformly random entry of the ``size`` of the vocabulary
    (one tenth), or all are deleted (four tenths). ``words_L`` has the number of each token's word, ascending; negative
    for tokens that stay as they are.

    Differs from the released code: a caption whose words would all be deleted stays as it was.
    """
    varied_L = words_L >= 0
    starts_T = np.diff(words_L[varied_L], prepend=-1) != 0
    touch_L, entry_L = np.full(len(ids_L), _NEVER), np.zeros(len(ids_L))
    touch_L[varied_L] = rng.random(np.count_nonzero(starts_T))[np.cumsum(starts_T) - 1]
    entry_L[varied_L] = rng.random(len(starts_T))
    return _augmented(ids_L, touch_L, entry_L, mask_id, size)


def _augmented(ids_L: Ids, touch_L: Draws, entry_L: Draws, mask_id: int | None, size: int) -> Ids:
    """Apply draws from U(0, 1): ``touch_L`` decides what happens to a token, ``entry_L`` which entry replaces it."""
    kept_L = touch_L >= _DELETE_BELOW
    kept_L |= touch_L < _RANDOM_BELOW
    if mask_id is None:
        kept_L &= touch_L >= _MASK_BELOW
    if not kept_L[touch_L < _NEVER].any():
        return ids_L.copy()
    random_L = (entry_L * size).astype(ids_L.dtype)
    changed_L: Ids = np.where(touch_L < _RANDOM_BELOW, random_L, ids_L)
    if mask_id is not None:
        changed_L[touch_L < _MASK_BELOW] = mask_id
    return changed_L[kept_L]


def drop_regions(n: int, rng: np.random.Generator, rate: float = 0.2) -> npt.NDArray[np.intp]:
    """Choose which of n regions are kept: each with probability ``1 - rate`` (VSE-infinity, size augmentation).

    Differs from the released code: if all would be dropped, the one that came nearest to being kept stays.
    """
    return _kept_rows(rng.random(n), rate)


def drop_grids(n: int, rng: np.random.Generator, rate: float = 0.2) -> npt.NDArray[np.intp]:
    """Choose which of n grid cells are kept, at a drop rate that the image draws (VSE-infinity, released code).

    With r ~ U(0, 1) for the image, all cells stay if r <= 0.2; otherwise each is dropped with probability ``rate * r``.
    On average 9.6 % are dropped for ``rate`` = 0.2.

    Differs from the paper, which says that 20 % are dropped; and, as for regions, one cell always stays.
    """
    draws = rng.random(n + 1)
    if draws[0] <= _NO_GRID_DROP_UP_TO:
        return np.arange(n)
    return _kept_rows(draws[1:], rate * float(draws[0]))


def drop_dimensions(width: int, rate: float, rng: np.random.Generator) -> npt.NDArray[np.float16]:
    """Return factors (F,) of an image's dimensions: 0 with probability ``rate``, else what makes up for the lost ones.

    All elements of the set lose the same ones: dropped for each by itself, they would come back in the aggregate.
    """
    return np.where(rng.random(width) < rate, 0.0, 1 / (1 - rate)).astype(np.float16)


def _kept_rows(draws_N: Draws, rate: float) -> npt.NDArray[np.intp]:
    kept = np.flatnonzero(draws_N > rate)
    return kept if len(kept) else np.array([np.argmax(draws_N)])
