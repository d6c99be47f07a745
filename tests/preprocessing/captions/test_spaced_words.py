"""Words between spaces, as role graphs count them."""

from pathlib import Path

import numpy as np
import pytest

from preprocessing.captions.encoder import load_caption_encoder
from preprocessing.captions.role_graphs import LONGEST, SpacedWords


def test_words_are_what_stands_between_spaces(tmp_path: Path) -> None:
    words = SpacedWords.build(["A man's dog runs .", "a man"], min_count=1)
    find = words.vocabulary.find
    assert words.encode("a  Man's cat runs") == [find("a"), find("man's"), words.vocabulary.UNK, find("runs")]
    assert words.encode(" ") == [words.vocabulary.UNK]
    assert len(words.encode("a " * 50)) == LONGEST
    words.save(tmp_path / words.FILE)
    loaded = load_caption_encoder(tmp_path)
    assert isinstance(loaded, SpacedWords)
    assert loaded.encode("a man runs") == words.encode("a man runs")
    assert (len(loaded), loaded.pad_id) == (len(words), 0)


def test_rare_words_are_unknown_and_places_stay() -> None:
    words = SpacedWords.build(["a dog", "a cat"], min_count=2)
    assert words.encode("a dog") == [words.vocabulary.find("a"), words.vocabulary.UNK]
    with pytest.raises(ValueError, match="named by position"):
        words.augment(*np.array([[4, 5], [0, 1]], dtype=np.int32), np.random.default_rng(0), False)
