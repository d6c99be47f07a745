"""Adversarial captions in training: some of each caption's, drawn again in every epoch."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt

from preprocessing.captions.encoder import CaptionEncoder
from preprocessing.captions.token_table import TokenTable
from preprocessing.randomness import Stream, sample_rng
from preprocessing.shards.split_index import map_fields, save_fields


@dataclass(frozen=True, eq=False)
class AdversarialPool:
    """Token ids of the adversarial captions of C captions, which may have none.

    Attributes:
        tokens: of the adversarial captions, one caption's after the other's.
        first_texts: number of each caption's first adversarial one, then that of all, int64 (C + 1,).
    """

    tokens: TokenTable
    first_texts: npt.NDArray[np.int64]

    @classmethod
    def encode(cls, texts: Iterable[Sequence[str]], caption_encoder: CaptionEncoder) -> Self:
        """Encode the adversarial captions of each caption."""
        of_captions = list(texts)
        tokens = TokenTable.encode(chain.from_iterable(of_captions), caption_encoder)
        return cls(tokens, np.cumsum([0, *map(len, of_captions)]))

    def save(self, directory: Path) -> None:
        """Write the arrays into a directory, which has no other tokens."""
        save_fields(self.tokens, directory)
        save_fields(self, directory)

    @classmethod
    def load(cls, directory: Path) -> Self:
        """Map the arrays that :meth:`save` has written."""
        return cls(TokenTable(**map_fields(TokenTable, directory)), **map_fields(cls, directory, "tokens"))

    def draw(self, caption: int, epoch: int, seed: int, count: int) -> list[npt.NDArray[np.int32]]:
        """Return up to `count` of a caption's adversarial captions, each once; a function of (seed, epoch, caption)."""
        first, last = self.first_texts[caption : caption + 2].tolist()
        rng = sample_rng(seed, epoch, caption, Stream.ADVERSARIAL)
        chosen = first + rng.permutation(last - first)[:count]
        return [self.tokens.ids(text) for text in chosen.tolist()]
