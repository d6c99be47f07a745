"""Pretrained word vectors (GloVe and files of its kind) for the words of a vocabulary."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load_file, save

from preprocessing.captions.vocabulary import Vocabulary
from preprocessing.reading import damage_as
from preprocessing.storage.atomic import write_bytes_atomic


class WordVectorsError(ValueError):
    """A file of word vectors cannot be used; the message says why and what to do."""


@dataclass(frozen=True)
class WordVectors:
    """Vectors (W, E) of some words of a vocabulary by ascending ids; `coverage` is their share of all entries."""

    words_W: npt.NDArray[np.int64]
    vectors_WE: npt.NDArray[np.float32]
    coverage: float

    FILE: ClassVar[str] = "word_vectors.safetensors"

    def save(self, path: Path) -> None:
        """Write them as safetensors."""
        tensors: dict[str, npt.NDArray[Any]] = {"words_W": self.words_W, "vectors_WE": self.vectors_WE}
        write_bytes_atomic(path, save({**tensors, "coverage": np.array(self.coverage)}))

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read what :meth:`save` has written; raise WordVectorsError if it is damaged."""
        with damage_as(WordVectorsError, f"cannot read the word vectors {path}", "delete its folder and train again"):
            tensors = load_file(path)
            words_W, vectors_WE, coverage = (tensors[name] for name in ("words_W", "vectors_WE", "coverage"))
            if words_W.ndim != 1 or vectors_WE.ndim != 2 or len(words_W) != len(vectors_WE):
                raise ValueError(f"{words_W.shape} words do not fit vectors of shape {vectors_WE.shape}")
            return cls(words_W, vectors_WE, float(coverage))


def read_word_vectors(path: Path, vocabulary: Vocabulary, dim: int) -> WordVectors:
    """Read the vectors of the vocabulary's words from a text file: a word and its ``dim`` numbers a line.

    Lines of other words are passed over; of several lines for a word the first counts. WordVectorsError: the file
    cannot be read, a line has not ``dim`` finite numbers, or no word is found.
    """
    found: dict[int, npt.NDArray[np.float32]] = {}
    remedy = "set the width of the word vectors to that of the file, and remove a heading line"
    with (
        damage_as(WordVectorsError, f"cannot read the word vectors {path}", "give a text file in UTF-8"),
        # Other signs than \n that Python takes for the end of a line occur inside words.
        path.open(encoding="utf-8", newline="\n") as lines,
    ):
        for number, line in enumerate(lines, start=1):
            # Cutting all of a line takes a hundred times as long; the first is cut to check the width.
            if number > 1 and vocabulary.find(line.partition(" ")[0]) is None:
                continue
            word, *values = line.rstrip(" \r\n").rsplit(" ", dim)
            word_id = vocabulary.find(word)
            if word_id in found:
                continue
            with damage_as(WordVectorsError, f"{path}, line {number}: is not a word and {dim} numbers", remedy):
                vector_E = np.array(values, dtype=np.float32)
                if len(vector_E) != dim or not np.isfinite(vector_E).all():
                    raise ValueError(f"{len(vector_E)} numbers, {dim} finite ones are needed")
            if word_id is not None:
                found[word_id] = vector_E
    if not found:
        raise WordVectorsError(
            f"{path} has a vector for none of the {len(vocabulary)} words: name a file in the captions' language"
        )
    words = sorted(found)
    return WordVectors(np.array(words), np.stack([found[word] for word in words]), len(words) / len(vocabulary))
