"""The token ids of a split's captions in flat arrays: made once, then mapped by every process that trains on them."""

from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from preprocessing.captions.encoder import CaptionEncoder


@dataclass(frozen=True, eq=False)
class TokenTable:
    """The T token ids of C captions one after another.

    Attributes:
        tokens: ids, int32 (T,).
        words: number of each token's word in its caption, -1 for tokens that belong to none, int16 (T,).
        token_starts: place of each caption's first token, then T, int64 (C + 1,).
    """

    tokens: npt.NDArray[np.int32]
    words: npt.NDArray[np.int16]
    token_starts: npt.NDArray[np.int64]

    def __len__(self) -> int:
        """Return the number of captions."""
        return len(self.token_starts) - 1

    def ids(self, caption: int) -> npt.NDArray[np.int32]:
        """Return the token ids of a caption (L,)."""
        return self.tokens[slice(*self.token_starts[caption : caption + 2])]

    def words_of(self, caption: int) -> npt.NDArray[np.int16]:
        """Return the numbers of the words that a caption's tokens belong to (L,)."""
        return self.words[slice(*self.token_starts[caption : caption + 2])]

    @classmethod
    def encode(cls, texts: Iterable[str], encoder: CaptionEncoder) -> Self:
        """Encode captions; takes six bytes of memory a token."""
        tokens, words, starts = array("i"), array("h"), array("q", [0])
        for text in texts:
            ids, numbers = encoder.encode_words(text)
            tokens.extend(ids)
            words.extend(numbers)
            starts.append(len(tokens))
        return cls(np.array(tokens, copy=False), np.array(words, copy=False), np.array(starts, copy=False))
