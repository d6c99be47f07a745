"""Captions cut at their spaces, as role graphs count words: HGR's tokens."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from preprocessing.captions.vocabulary import Vocabulary

LONGEST = 30
"""Words of a caption that are read, in the released code."""


def spaced_words(text: str) -> list[str]:
    """The words of a caption, in lower case, as its role graph counts them."""
    return text.lower().split()


class SpacedWords:
    """Captions as words between spaces, the first thirty of them, without <start> and <end> (HGR's released code).

    Args:
        vocabulary: the words and their ids; the special ones are unused but for <pad> and <unk>.
    """

    FILE: ClassVar[str] = "spaced_words.json"

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.pad_id = vocabulary.pad_id

    @classmethod
    def build(cls, captions: Iterable[str], min_count: int) -> SpacedWords:
        """Collect the words of the training captions; see :meth:`Vocabulary.build`.

        Raises:
            VocabularyError: there is no word.
        """
        return cls(Vocabulary.build(captions, min_count, cut=spaced_words))

    def __len__(self) -> int:
        return len(self.vocabulary)

    def encode(self, text: str) -> list[int]:
        """Word ids of a caption, <unk> for a word that is not known; a caption without words is one <unk>."""
        ids = [self.vocabulary.find(word) for word in spaced_words(text)[:LONGEST]]
        return [self.vocabulary.UNK if word_id is None else word_id for word_id in ids] or [self.vocabulary.UNK]

    def augment(
        self,
        ids_L: npt.NDArray[np.int32],
        rng: np.random.Generator,
        keep_ends: bool,  # noqa: ARG002
    ) -> npt.NDArray[np.int32]:
        """Raise an error: role graphs name words by their places.

        Raises:
            ValueError: always.
        """
        raise ValueError(f"captions with role graphs cannot be varied by {rng}: {len(ids_L)} words are named by place")

    def save(self, path: Path) -> None:
        """Write the words as JSON in the format of the released vocabularies."""
        self.vocabulary.save(path)

    @classmethod
    def load(cls, path: Path) -> SpacedWords:
        """Read what :meth:`save` has written.

        Raises:
            VocabularyError: the file cannot be read.
        """
        return cls(Vocabulary.load(path))
