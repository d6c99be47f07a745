"""The token ids of a split's captions in flat arrays: made once, then mapped by every process that trains on them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from io import BufferedRandom
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from preprocessing.captions.encoder import CaptionEncoder
from preprocessing.reading import damage_as
from preprocessing.shards.index import ShardError
from preprocessing.shards.split_index import map_array
from preprocessing.storage.atomic import open_atomic

_DTYPES: dict[str, npt.DTypeLike] = {"tokens": np.int32, "words": np.int16, "token_starts": np.int64}
_CAPTIONS_AT_ONCE = 4096


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
        """Encode captions in memory."""
        parts: dict[str, list[npt.NDArray[Any]]] = {name: [np.zeros(0, dtype)] for name, dtype in _DTYPES.items()}
        _encode(texts, encoder, lambda name, part: parts[name].append(part))
        return cls(*map(np.concatenate, parts.values()))

    @classmethod
    def write(cls, texts: Iterable[str], encoder: CaptionEncoder, directory: Path) -> None:
        """Encode captions into files of a directory, some thousand of them in memory at a time."""
        with ExitStack() as stack:
            files = {name: stack.enter_context(open_atomic(directory / f"{name}.npy")) for name in _DTYPES}
            sizes = dict.fromkeys(_DTYPES, 0)

            def append(name: str, part: npt.NDArray[Any]) -> None:
                sizes[name] += len(part)
                files[name].write(part.tobytes())

            for name, file in files.items():
                _write_header(file, name, 0)
            _encode(texts, encoder, append)
            for name, file in files.items():
                file.seek(0)
                _write_header(file, name, sizes[name])

    @classmethod
    def load(cls, directory: Path) -> Self:
        """Map the files that :meth:`write` has left; ShardError where they are damaged."""
        with damage_as(ShardError, f"the tokens in {directory} cannot be read", "delete the folder and train again"):
            return cls(*(map_array(directory / f"{name}.npy") for name in _DTYPES))


def _encode(texts: Iterable[str], encoder: CaptionEncoder, append: Callable[[str, npt.NDArray[Any]], object]) -> None:
    """Encode captions, and append them to the arrays of a table part by part."""
    wanted, end = iter(texts), 0
    append("token_starts", np.zeros(1, np.int64))
    while batch := list(itertools.islice(wanted, _CAPTIONS_AT_ONCE)):
        encoded = [encoder.encode_words(text) for text in batch]
        starts = end + np.cumsum([len(ids) for ids, _ in encoded])
        end = int(starts[-1])
        append("tokens", _flat("tokens", (ids for ids, _ in encoded)))
        append("words", _flat("words", (words for _, words in encoded)))
        append("token_starts", starts)


def _flat(name: str, parts: Iterator[list[int]]) -> npt.NDArray[Any]:
    return np.fromiter(itertools.chain.from_iterable(parts), _DTYPES[name])


def _write_header(file: BufferedRandom, name: str, size: int) -> None:
    """Write the header of a .npy file, which NumPy keeps at one length for any size of the first axis."""
    header = {"descr": np.dtype(_DTYPES[name]).str, "fortran_order": False, "shape": (size,)}
    np.lib.format.write_array_header_1_0(file, header)
