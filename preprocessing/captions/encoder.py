"""Encoders of captions into token ids: words of a vocabulary, pieces of words, or what a kind of model needs."""

from pathlib import Path
from typing import ClassVar, Protocol, Self

import numpy as np

from preprocessing.captions.augment import Ids, WordNumbers
from preprocessing.captions.open_clip import OpenClipTokenizer
from preprocessing.captions.role_graphs import SpacedWords
from preprocessing.captions.subwords import SubwordTokenizer
from preprocessing.captions.vocabulary import Vocabulary


class CaptionEncoder(Protocol):
    """Turns captions into token ids, and varies them in training."""

    FILE: ClassVar[str]
    """Name of its file in a model's directory."""

    @property
    def pad_id(self) -> int:
        """Id that pads the shorter captions of a batch."""

    @property
    def vocabulary(self) -> Vocabulary | None:
        """Return the words it knows; None if its tokens are pieces of words."""

    def __len__(self) -> int:
        """Return the number of token ids: all are below it."""

    def encode(self, text: str) -> list[int]:
        """Return token ids of a caption, at least one; the end of a caption that is too long is cut off."""

    def truncates(self, text: str) -> bool:
        """Return whether a caption is too long for the text encoder."""

    def encode_words(self, text: str) -> tuple[list[int], list[int]]:
        """Return token ids of a caption, and the number of each one's word; -1 for tokens that belong to none."""

    def augment(self, ids_L: Ids, words_L: WordNumbers, rng: np.random.Generator, keep_ends: bool) -> Ids:
        """Vary a caption from :meth:`encode_words` as its text encoder is trained with; at least one id stays.

        With ``keep_ends`` the tokens that belong to no word always stay.
        """

    def save(self, path: Path) -> None:
        """Write a file that rebuilds it without network access."""

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read what :meth:`save` has written; raise ValueError if the file cannot be read."""


def load_caption_encoder(directory: Path) -> CaptionEncoder:
    """Read the caption encoder of a model's directory; FileNotFoundError without one, ValueError if it is damaged."""
    kinds: tuple[type[CaptionEncoder], ...] = (Vocabulary, SubwordTokenizer, OpenClipTokenizer, SpacedWords)
    for kind in kinds:
        path = directory / kind.FILE
        if path.is_file():
            return kind.load(path)
    names = " or ".join(kind.FILE for kind in kinds)
    raise FileNotFoundError(f"{directory} holds nothing that turns captions into tokens: there is no {names}")
