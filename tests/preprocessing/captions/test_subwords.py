"""Tokenizers against their definition and the library's own; augmentation of words against the released rule."""

import json
import unicodedata
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, pre_tokenizers
from transformers import AutoTokenizer, BertConfig, BertTokenizer, SiglipTextConfig

from preprocessing.captions.subwords import SubwordTokenizer, TokenizerError
from preprocessing.randomness import sample_rng
from tests.custom_code import with_code_of_its_own
from tests.tokenizers import bpe, clip_bpe, train_on, unigram, wordpiece, write_tokenizer

PIECES = [
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
    *("a", "un", "##able", "##a", "##b", "able", "dog", "##gy", "cafe", "skate", "##board", "##er", "##s", "'", "-"),
    *(".", ",", "東", "京", "I", "##I", "é", "##é", "#", "##1", "1"),
]
IDS = {piece: index for index, piece in enumerate(PIECES)}
PAD, UNK, CLS, SEP, MASK = range(5)


def make(lowercase: bool = True, max_tokens: int = 512) -> SubwordTokenizer:
    tokenizer = wordpiece(IDS, lowercase)
    tokenizer.enable_truncation(max_tokens)
    tokenizer.enable_padding(pad_id=PAD)
    return SubwordTokenizer(tokenizer)


def varied(tokenizer: SubwordTokenizer, text: str, rng: np.random.Generator, keep_ends: bool = False) -> list[int]:
    ids, words = np.array(tokenizer.encode_words(text), dtype=np.int32)
    before = ids.copy()
    found = tokenizer.augment(ids, words, rng, keep_ends)
    assert found.dtype == np.int32
    assert (ids == before).all()
    return found.tolist()


def naive_words(text: str, lowercase: bool) -> list[str]:
    """Basic tokenization, sign by sign."""
    if lowercase:
        text = "".join(c for c in unicodedata.normalize("NFD", text) if unicodedata.category(c) != "Mn").lower()
    words, current = [], ""
    for sign in text:
        apart = unicodedata.category(sign).startswith("P") or sign in "$+<=>^`|~" or "\u4e00" <= sign <= "\u9fff"
        if (apart or sign.isspace()) and current:
            words.append(current)
            current = ""
        if apart:
            words.append(sign)
        elif not sign.isspace():
            current += sign
    return [*words, current] if current else words


def naive_pieces(word: str) -> list[int]:
    """The longest known beginning, again and again; the whole word is unknown where a rest is."""
    pieces, begin = [], 0
    while begin < len(word):
        prefix = "##" if begin else ""
        ends = [end for end in range(len(word), begin, -1) if prefix + word[begin:end] in IDS]
        if not ends:
            return [UNK]
        pieces.append(IDS[prefix + word[begin : ends[0]]])
        begin = ends[0]
    return pieces


@given(st.text(alphabet="abelundogyskI éÉü'-.,#$1東京 \t", max_size=30), st.booleans())
def test_both_steps_follow_their_definitions(text: str, lowercase: bool) -> None:
    tokenizer = make(lowercase)
    words = naive_words(text, lowercase)
    pieces = [(piece, number) for number, word in enumerate(words) for piece in naive_pieces(word)]
    assert tokenizer.encode(text) == [CLS, *(piece for piece, _ in pieces), SEP]
    assert tokenizer.encode_words(text) == (tokenizer.encode(text), [-1, *(number for _, number in pieces), -1])


def test_the_end_of_a_caption_that_is_too_long_is_cut_off(tmp_path: Path) -> None:
    """At the positions of the text encoder, also after saving."""
    make(max_tokens=8).save(tmp_path / SubwordTokenizer.FILE)
    for tokenizer in (make(max_tokens=8), SubwordTokenizer.load(tmp_path / SubwordTokenizer.FILE)):
        assert tokenizer.encode("doggy " * 600) == [CLS, *[IDS["dog"], IDS["##gy"]] * 3, SEP]
        assert [tokenizer.truncates("doggy " * count) for count in (0, 3, 4, 600)] == [False, False, True, True]


def test_a_special_entry_in_a_caption_is_text() -> None:
    assert not {MASK, SEP, PAD} & set(make().encode("a [MASK] [SEP] [PAD]")[1:-1])


def naive_augmented(
    words: list[list[int]], touch: list[float], entries: list[float], mask: int | None, size: int
) -> list[int]:
    """The released rule word by word; `entries` are for the pieces, in order; without a mask its words are deleted."""
    out: list[int] = []
    draws = iter(entries)
    for pieces, draw in zip(words, touch, strict=True):
        chosen = [int(next(draws) * size) for _ in pieces]
        if draw >= 0.2:
            out += pieces
        elif draw / 0.2 < 0.5:
            out += [] if mask is None else [mask] * len(pieces)
        elif draw / 0.2 < 0.6:
            out += chosen
    return out or [piece for pieces in words for piece in pieces]


captions = st.lists(st.sampled_from(["a", "doggy", "skateboarders", "cafe", "xyz", ",", "#"]), max_size=8).map(" ".join)


@given(captions, st.integers(0, 3), st.integers(0, 500))
def test_augmentation_between_the_steps(text: str, epoch: int, sample: int) -> None:
    tokenizer = make()
    words = [naive_pieces(word) for word in naive_words(text, True)]
    rng = sample_rng(7, epoch, sample, 1)
    touch, entries = rng.random(len(words)).tolist(), rng.random(sum(map(len, words))).tolist()
    found = varied(tokenizer, text, sample_rng(7, epoch, sample, 1))
    assert found == [CLS, *naive_augmented(words, touch, entries, MASK, len(PIECES)), SEP]


def test_the_file_rebuilds_it_byte_for_byte(tmp_path: Path) -> None:
    tokenizer = make(lowercase=False)
    tokenizer.save(tmp_path / "a.json")
    loaded = SubwordTokenizer.load(tmp_path / "a.json")
    loaded.save(tmp_path / "b.json")
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()
    for text in ("A CAFÉ, doggy I", "unable skateboarders [MASK]"):
        assert loaded.encode_words(text) == tokenizer.encode_words(text)
    for sample in range(20):
        draws = [sample_rng(0, 0, sample, 1) for _ in range(2)]
        text = "a doggy , skateboarders"
        assert varied(loaded, text, draws[0], True) == varied(tokenizer, text, draws[1], False)


def test_files_that_are_none_of_ours(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match="cannot read"):
        SubwordTokenizer.load(tmp_path / "nowhere.json")
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(TokenizerError, match="cannot read the tokenizer"):
        SubwordTokenizer.load(tmp_path / "broken.json")
    wordpiece(IDS).save(str(tmp_path / "earlier.json"))
    with pytest.raises(TokenizerError, match=r"earlier\.json .*no truncation or no padding"):
        SubwordTokenizer.load(tmp_path / "earlier.json")


TEXTS = [
    "A dog, running fast!",
    "two skateboarders aren't jumping",
    "dogs",
    "a red-brown fox ran",
    "<mask> [MASK] </s>",
]


@pytest.mark.parametrize("build", [bpe, unigram, clip_bpe], ids=lambda build: build.__name__)
def test_any_fast_tokenizer_is_the_librarys(build: Callable[[], Tokenizer], tmp_path: Path) -> None:
    """RoBERTa's byte-level BPE, XLM-R's SentencePiece, CLIP's BPE: ids of the library, words of the pre-tokenizer."""
    write_tokenizer(train_on(build(), TEXTS), tmp_path, build.__name__)
    library = AutoTokenizer.from_pretrained(str(tmp_path))
    tokenizer = SubwordTokenizer.from_pretrained(str(tmp_path))
    tokenizer.save(tmp_path / "saved.json")
    assert tokenizer.pad_id == library.pad_token_id
    assert len(tokenizer) == len(library)
    for text in TEXTS[:-1]:
        encoding = library(text, truncation=True, max_length=40)
        expected = [-1 if word is None else word for word in encoding.word_ids()]
        assert tokenizer.encode_words(text) == (encoding["input_ids"], expected)
        assert SubwordTokenizer.load(tmp_path / "saved.json").encode(text) == encoding["input_ids"]
        assert max(expected) >= len(text.split()) - 1
    assert len(tokenizer.encode("dog " * 100)) == 40
    assert tokenizer.truncates("dog " * 100)
    inner = tokenizer.encode(TEXTS[-1])[1:-1]
    # Written out, they are text; SentencePiece has some of them among its pieces.
    assert build is unigram or not set(inner) & set(library.all_special_ids) - {library.unk_token_id}


def test_a_tokenizer_that_tells_no_words_varies_tokens(tmp_path: Path) -> None:
    tokenizer = clip_bpe()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    write_tokenizer(train_on(tokenizer, TEXTS), tmp_path, "clip_bpe")
    found = SubwordTokenizer.from_pretrained(str(tmp_path)).encode_words("a dog ran")
    assert found[1] == [-1, *range(1, len(found[0]) - 1), -1]


def test_captions_padded_to_a_length_keep_it(tmp_path: Path) -> None:
    write_tokenizer(train_on(unigram(), TEXTS), tmp_path, "unigram")
    SiglipTextConfig(max_position_embeddings=16).save_pretrained(tmp_path)
    tokenizer = SubwordTokenizer.from_pretrained(str(tmp_path), for_tower=True)
    plain = SubwordTokenizer.from_pretrained(str(tmp_path)).encode("two dogs")
    assert tokenizer.encode("two dogs") == plain + [tokenizer.pad_id] * (16 - len(plain))
    assert {len(varied(tokenizer, "two dogs ran", sample_rng(0, 0, sample, 1))) for sample in range(50)} == {16}


def test_siglips_tokenizer_needs_no_sentencepiece(tmp_path: Path) -> None:
    """Its published folders name a class of SentencePiece, and hold tokenizer.json as well."""
    write_tokenizer(train_on(unigram(), TEXTS), tmp_path, "siglip")
    expected = SubwordTokenizer.from_pretrained(str(tmp_path), for_tower=True)
    settings = json.loads((tmp_path / "tokenizer_config.json").read_text())
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings | {"tokenizer_class": "SiglipTokenizer"}))
    found = SubwordTokenizer.from_pretrained(str(tmp_path), for_tower=True)
    assert [found.encode(text) for text in TEXTS] == [expected.encode(text) for text in TEXTS]
    assert len(found.encode("two dogs")) == 64
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(TokenizerError, match=r"for SigLIP tokenizer\.json"):
        SubwordTokenizer.from_pretrained(str(tmp_path), for_tower=True)


@pytest.mark.parametrize("lowercase", [True, False])
@pytest.mark.parametrize("files", ["vocab.txt", "tokenizer.json"])
def test_a_published_folder_is_read(tmp_path: Path, lowercase: bool, files: str) -> None:
    """As published before transformers 5, which is where most of the hub's are from, and as transformers writes it."""
    BertConfig().save_pretrained(tmp_path)
    BertTokenizer(vocab=IDS, do_lower_case=lowercase).save_pretrained(tmp_path)
    if files == "vocab.txt":
        (tmp_path / "tokenizer.json").unlink()
        (tmp_path / "vocab.txt").write_text("\n".join(PIECES) + "\n", encoding="utf-8")
    tokenizer = SubwordTokenizer.from_pretrained(str(tmp_path))
    for text in ("A CAFÉ, doggy I", "unable skateboarders"):
        assert tokenizer.encode(text) == make(lowercase).encode(text)


def test_real_captions_as_the_library_cuts_them(vse_data: Path, minilm: Path) -> None:
    library = AutoTokenizer.from_pretrained(str(minilm))
    tokenizer = SubwordTokenizer.from_pretrained(str(minilm))
    lines = (vse_data / "flickr8k" / "Flickr8k.token.txt").read_text(encoding="utf-8").splitlines()[::5]
    texts = [line.split("\t")[1] for line in lines]
    assert len(texts) > 6000
    assert [tokenizer.encode(text) for text in texts] == library(texts)["input_ids"]


@pytest.mark.parametrize("model_type", ["bert", "custom"])
def test_code_in_a_folder_of_weights_is_refused_without_a_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model_type: str
) -> None:
    monkeypatch.setattr("builtins.input", lambda _: pytest.fail("asked whether to run the code"))
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "vocab.txt").write_text("\n".join(PIECES) + "\n", encoding="utf-8")
    with_code_of_its_own(tmp_path, model_type)
    with pytest.raises(TokenizerError, match=r"no tokenizer that can be loaded .*(code of its own|custom code)"):
        SubwordTokenizer.from_pretrained(str(tmp_path))
    assert not (tmp_path / "ran").exists()
