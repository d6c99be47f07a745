"""Word vectors: the words of the vocabulary out of a GloVe file, bit for bit, with what was found of them."""

from pathlib import Path

import numpy as np
import pytest

from preprocessing.captions.vocabulary import Vocabulary
from preprocessing.captions.word_vectors import WordVectorsError, read_word_vectors

VOCABULARY = Vocabulary.build(["dog beach café . runs"], min_count=1)


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8", newline="\n")
    return path


def test_words_of_the_vocabulary(tmp_path: Path) -> None:
    text = "the 9 9 9\nruns 0.5 -1 2e-3\n. . . 7 7 7\ncafé 1 2 3\nru\u0085ns 4 4 4\nruns 8 8 8\nDog 5 5 5\n. 4 5 6\n"
    found = read_word_vectors(write(tmp_path / "glove.txt", text), VOCABULARY, 3)
    expected = {"runs": [0.5, -1, 2e-3], "café": [1, 2, 3], ".": [4, 5, 6]}
    assert {VOCABULARY.word(word): row for word, row in zip(found.words_W, found.vectors_WE.tolist(), strict=True)} == {
        word: np.array(row, dtype=np.float32).tolist() for word, row in expected.items()
    }
    assert found.coverage == 3 / len(VOCABULARY)
    assert found.vectors_WE.dtype == np.float32


@pytest.mark.parametrize(
    ("text", "dim", "message"),
    [
        ("the 1 2 3\ndog 1 2\n", 3, "line 2: .*and 3 numbers|line 2: has 2 numbers, 3"),
        ("400000 3\nthe 1 2 3\n", 3, "line 1: .*1 numbers, 3"),
        ("the 1 2 3\n", 2, "is not a word|none of the"),
        ("the 1 2 3\n", 4, "line 1: .*3 numbers, 4"),
        ("dog 1 x 3\n", 3, "line 1: is not a word and 3 numbers"),
        ("dog 1 nan 3\n", 3, "line 1: .*3 numbers, 3 finite ones"),
        ("the 1 2 3\n", 3, "a vector for none of the"),
    ],
)
def test_files_that_cannot_be_used(tmp_path: Path, text: str, dim: int, message: str) -> None:
    with pytest.raises(WordVectorsError, match=message):
        read_word_vectors(write(tmp_path / "glove.txt", text), VOCABULARY, dim)
