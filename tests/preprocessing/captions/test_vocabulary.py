"""The vocabulary: which words, which ids, and the released file format."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from preprocessing.captions.vocabulary import Vocabulary, VocabularyError

SPECIALS = ["<pad>", "<start>", "<end>", "<unk>"]


def released(words: list[str]) -> dict[str, Any]:
    return {
        "word2idx": {word: index for index, word in enumerate(words)},
        "idx2word": {str(index): word for index, word in enumerate(words)},
        "idx": len(words),
    }


def test_frequent_words_are_kept_and_mask_comes_last() -> None:
    vocabulary = Vocabulary.build(["b a", "a b c", "A ."], min_count=2)
    assert [vocabulary.word(i) for i in range(len(vocabulary))] == [*SPECIALS, "a", "b", "<mask>"]
    assert vocabulary.mask_id == 6
    assert vocabulary.find("c") is None


def test_encode_marks_both_ends_and_unknown_words() -> None:
    vocabulary = Vocabulary.build(["a b"], min_count=1)
    assert vocabulary.encode("B zebra a") == [1, 5, 3, 4, 2]
    assert vocabulary.encode("") == [1, 2]


def test_the_end_of_a_text_of_any_length_is_cut_off() -> None:
    vocabulary = Vocabulary.build(["a dog runs"], min_count=1)
    text = "dog " * 125 + "runs a dog"
    start, *words, end = vocabulary.encode(text)
    assert (start, end, len(words)) == (Vocabulary.START, Vocabulary.END, 126)
    assert [vocabulary.word(word) for word in words[-2:]] == ["dog", "runs"]
    assert [vocabulary.truncates(each) for each in ("dog " * 126, text, "dog " * 100_000)] == [False, True, True]


def test_a_text_of_many_words_costs_next_to_nothing() -> None:
    """The rules of the tokenizer took seconds for 30,000 words with apostrophes, and a GRU all of its steps."""
    vocabulary = Vocabulary.build(["a dog runs", "can't " * 30_000], min_count=1)
    assert vocabulary.find("ca")
    start = time.perf_counter()
    for text in ("can't " * 30_000, "-" * 300_000, "dog" * 100_000):
        assert len(vocabulary.encode(text)) <= 128
        assert vocabulary.truncates(text)
    assert time.perf_counter() - start < 1


def test_no_frequent_word_is_an_error() -> None:
    with pytest.raises(VocabularyError, match="lower min_count"):
        Vocabulary.build(["a b c"], min_count=4)


def test_saved_and_loaded_alike(tmp_path: Path) -> None:
    vocabulary = Vocabulary.build(["a café", "naïve \U0001f600 a"], min_count=1)
    vocabulary.save(tmp_path / "vocabulary.json")
    first = (tmp_path / "vocabulary.json").read_bytes()
    again = Vocabulary.load(tmp_path / "vocabulary.json")
    assert again.mask_id == vocabulary.mask_id
    again.save(tmp_path / "vocabulary.json")
    assert (tmp_path / "vocabulary.json").read_bytes() == first
    assert [path.name for path in tmp_path.iterdir()] == ["vocabulary.json"]


def test_a_released_file_gets_its_mask(tmp_path: Path) -> None:
    path = tmp_path / "f30k_precomp_vocab.json"
    path.write_text(json.dumps(released([*SPECIALS, "dog", "a"])))
    vocabulary = Vocabulary.load(path)
    assert vocabulary.encode("a dog") == [1, 5, 4, 2]
    assert len(vocabulary) == 7
    assert vocabulary.mask_id == 6
    vocabulary.save(path)
    assert json.loads(path.read_bytes()) == released([*SPECIALS, "dog", "a", "<mask>"])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (released([*SPECIALS, "dog"]) | {"idx2word": {"0": "<pad>", "2": "dog"}}, "there is no '1'"),
        (released([*SPECIALS, "dog"]) | {"word2idx": {"dog": 5}}, "not the same words with the same numbers"),
        ([1, 2], "there is no 'word2idx'"),
        (released(["dog", "a"]), "must begin with"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, content: Any, message: str) -> None:
    path = tmp_path / "vocabulary.json"
    path.write_text(json.dumps(content))
    with pytest.raises(VocabularyError, match=message) as error:
        Vocabulary.load(path)
    assert str(path) in str(error.value)


def test_missing_and_pickled_files(tmp_path: Path) -> None:
    with pytest.raises(VocabularyError, match="No such file"):
        Vocabulary.load(tmp_path / "absent.json")
    (tmp_path / "old.pkl").write_bytes(b"\x80\x04\x95.")
    with pytest.raises(VocabularyError, match="pickles"):
        Vocabulary.load(tmp_path / "old.pkl")


def test_a_word_twice_is_refused() -> None:
    with pytest.raises(VocabularyError, match="'dog'"):
        Vocabulary([*SPECIALS, "dog", "a", "dog"])


def test_extra_words_are_held_however_rare() -> None:
    vocabulary = Vocabulary.build(["b a", "b"], min_count=2, extra_words=["stand_on", "b", "a"])
    assert [vocabulary.word(i) for i in range(4, len(vocabulary))] == ["a", "b", "stand_on", "<mask>"]
    assert Vocabulary.build([], extra_words=["a"]).find("a") == 4
