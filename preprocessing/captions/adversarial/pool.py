"""Adversarial captions in training: some of each caption's, drawn again in every epoch."""

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from preprocessing.captions.augment import sample_rng
from preprocessing.captions.encoder import CaptionEncoder

ADVERSARIAL_STREAM = 4
"""Differs from the streams of preprocessing.loading.image_source and of the negatives of components."""


class AdversarialPool:
    """Token ids of the adversarial captions of a split.

    `texts` are those of each caption, which may have none; a caption gives `count` at once, fewer where it has fewer.
    """

    def __init__(self, texts: Iterable[Sequence[str]], caption_encoder: CaptionEncoder, seed: int, count: int) -> None:
        encoded = [
            [np.array(caption_encoder.encode(text), dtype=np.int32) for text in of_caption] for of_caption in texts
        ]
        self._first = np.cumsum([0, *(len(of_caption) for of_caption in encoded)])
        flat = [ids_L for of_caption in encoded for ids_L in of_caption]
        self._starts = np.cumsum([0, *(len(ids_L) for ids_L in flat)])
        self._ids = np.concatenate(flat) if flat else np.empty(0, dtype=np.int32)
        self._seed = seed
        self._count = count

    def __len__(self) -> int:
        """Number of captions."""
        return len(self._first) - 1

    def draw(self, caption: int, epoch: int) -> list[npt.NDArray[np.int32]]:
        """Token ids of some of a caption's adversarial captions, each once; a function of (seed, epoch, caption)."""
        first, last = self._first[caption : caption + 2].tolist()
        rng = sample_rng(self._seed, epoch, caption, ADVERSARIAL_STREAM)
        chosen = first + rng.permutation(last - first)[: self._count]
        return [self._ids[self._starts[text] : self._starts[text + 1]] for text in chosen.tolist()]
