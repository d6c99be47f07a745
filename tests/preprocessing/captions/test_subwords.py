"""WordPiece against its definition and the library's own tokenizer; augmentation of words against the released rule."""

import json
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers

from preprocessing.captions import WordPiece, WordPieceError, sample_rng
from preprocessing.captions.augment import augment_words
from tests.custom_code import with_code_of_its_own

PIECES = [
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
    *("a", "un", "##able", "##a", "##b", "able", "dog", "##gy", "cafe", "skate", "##board", "##er", "##s", "'", "-"),
    *(".", ",", "東", "京", "I", "##I", "é", "##é", "#", "##1", "1"),
]
IDS = {piece: index for index, piece in enumerate(PIECES)}
PAD, UNK, CLS, SEP, MASK = range(5)


def make(lowercase: bool = True) -> WordPiece:
    return WordPiece(models.WordPiece(vocab=IDS, unk_token="[UNK]"), normalizers.BertNormalizer(lowercase=lowercase))


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
    assert tokenizer.basic(text) == words
    assert [tokenizer.wordpiece(word) for word in words] == [naive_pieces(word) for word in words]
    assert tokenizer.encode(text) == [CLS, *(piece for word in words for piece in naive_pieces(word)), SEP]


def test_examples() -> None:
    tokenizer = make()
    assert tokenizer.basic("A Café-DOGGY, 東京!") == ["a", "cafe", "-", "doggy", ",", "東", "京", "!"]
    assert tokenizer.wordpiece("doggy") == [IDS["dog"], IDS["##gy"]]
    assert tokenizer.wordpiece("dogx") == [UNK]
    assert tokenizer.encode("") == [CLS, SEP]
    assert len(tokenizer) == len(PIECES)
    assert tokenizer.pad_id == PAD


def test_the_end_of_a_caption_that_is_too_long_is_cut_off(tmp_path: Path) -> None:
    """At the positions of the text encoder, also after saving; at those of BERT where a file names no limit."""
    model, normalizer = models.WordPiece(vocab=IDS, unk_token="[UNK]"), normalizers.BertNormalizer()
    WordPiece(model, normalizer, max_tokens=8).save(tmp_path / WordPiece.FILE)
    for tokenizer in (WordPiece(model, normalizer, max_tokens=8), WordPiece.load(tmp_path / WordPiece.FILE)):
        assert tokenizer.encode("doggy " * 600) == [CLS, *[IDS["dog"], IDS["##gy"]] * 3, SEP]
        assert [tokenizer.truncates("doggy " * count) for count in (0, 3, 4, 600)] == [False, False, True, True]
    content = json.loads((tmp_path / WordPiece.FILE).read_text()) | {"truncation": None}
    (tmp_path / WordPiece.FILE).write_text(json.dumps(content))
    assert len(WordPiece.load(tmp_path / WordPiece.FILE).encode("doggy " * 600)) == 512


def test_a_special_entry_in_a_caption_is_text() -> None:
    assert not {MASK, SEP, PAD} & set(make().encode("a [MASK] [SEP] [PAD]")[1:-1])


def naive_augmented(tokenizer: WordPiece, text: str, touch: list[float], entries: list[float]) -> list[int]:
    """The released rule between the two steps, word by word; `entries` are for the pieces, in order."""
    out: list[int] = []
    words = [tokenizer.wordpiece(word) for word in tokenizer.basic(text)]
    draws = iter(entries)
    for pieces, draw in zip(words, touch, strict=True):
        chosen = [int(next(draws) * len(tokenizer)) for _ in pieces]
        if draw >= 0.2:
            out += pieces
        elif draw / 0.2 < 0.5:
            out += [MASK] * len(pieces)
        elif draw / 0.2 < 0.6:
            out += chosen
    return [CLS, *(out or [piece for pieces in words for piece in pieces]), SEP]


captions = st.lists(st.sampled_from(["a", "doggy", "skateboarders", "cafe", "xyz", ",", "#"]), max_size=8).map(" ".join)


@given(captions, st.integers(0, 3), st.integers(0, 500))
def test_augmentation_between_the_steps(text: str, epoch: int, sample: int) -> None:
    tokenizer = make()
    ids = np.array(tokenizer.encode(text), dtype=np.int32)
    before = ids.copy()
    found = tokenizer.augment(ids, sample_rng(7, epoch, sample, 1), keep_ends=False)
    rng = sample_rng(7, epoch, sample, 1)
    touch, entries = rng.random(len(tokenizer.basic(text))).tolist(), rng.random(len(ids) - 2).tolist()
    assert found.tolist() == naive_augmented(tokenizer, text, touch, entries)
    assert found.dtype == np.int32
    assert (ids == before).all()


def test_rates_are_those_of_words() -> None:
    tokenizer = make()
    ids = np.array(tokenizer.encode("skateboarders " * 10), dtype=np.int32)
    words = np.array([IDS[piece] for piece in ("skate", "##board", "##er", "##s")])
    masked = deleted = replaced = 0
    for sample in range(3000):
        out = tokenizer.augment(ids, sample_rng(0, 0, sample, 1), True)[1:-1]
        assert len(out) % 4 == 0
        rows = out.reshape(-1, 4)
        deleted += 10 - len(rows)
        masked += int((rows == MASK).all(axis=1).sum())
        replaced += int(((rows != words).any(axis=1) & (rows != MASK).any(axis=1)).sum())
    assert masked / 30_000 == pytest.approx(0.10, abs=0.007)
    assert replaced / 30_000 == pytest.approx(0.02, abs=0.004)
    assert deleted / 30_000 == pytest.approx(0.08, abs=0.006)


def test_random_entries_span_the_vocabulary() -> None:
    class AllReplaced:
        draws = iter([np.full(4000, 0.11), np.linspace(0, 1, 4000, endpoint=False)])

        def random(self, count: int) -> np.ndarray:
            return next(self.draws)

    ids, starts = np.zeros(4000, dtype=np.int32), np.ones(4000, dtype=bool)
    out = augment_words(ids, starts, AllReplaced(), MASK, len(PIECES))  # type: ignore[arg-type]
    assert sorted(set(out.tolist())) == list(range(len(PIECES)))


def test_the_file_rebuilds_it_byte_for_byte(tmp_path: Path) -> None:
    tokenizer = make(lowercase=False)
    tokenizer.save(tmp_path / "a.json")
    loaded = WordPiece.load(tmp_path / "a.json")
    loaded.save(tmp_path / "b.json")
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()
    for text in ("A CAFÉ, doggy I", "unable skateboarders"):
        assert loaded.encode(text) == tokenizer.encode(text)
    ids = np.array(tokenizer.encode("a doggy , skateboarders"), dtype=np.int32)
    for sample in range(20):
        draws = [sample_rng(0, 0, sample, 1) for _ in range(2)]
        assert loaded.augment(ids, draws[0], True).tolist() == tokenizer.augment(ids, draws[1], False).tolist()


def test_files_that_are_none_of_ours(tmp_path: Path) -> None:
    with pytest.raises(WordPieceError, match="cannot read"):
        WordPiece.load(tmp_path / "nowhere.json")
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(WordPieceError, match="cannot read the tokenizer"):
        WordPiece.load(tmp_path / "broken.json")
    Tokenizer(models.BPE()).save(str(tmp_path / "bpe.json"))
    with pytest.raises(WordPieceError, match="not BERT's WordPiece but BPE"):
        WordPiece.load(tmp_path / "bpe.json")
    with pytest.raises(WordPieceError, match=r"no entry \[MASK\]"):
        WordPiece(models.WordPiece(vocab={p: IDS[p] for p in PIECES[:4]}), normalizers.BertNormalizer())


@pytest.mark.parametrize("lowercase", [True, False])
def test_a_published_folder_is_read(tmp_path: Path, lowercase: bool) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    (tmp_path / "vocab.txt").write_text("\n".join(PIECES) + "\n", encoding="utf-8")
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "BertTokenizer", "do_lower_case": lowercase})
    )
    tokenizer = WordPiece.from_pretrained(str(tmp_path))
    for text in ("A CAFÉ, doggy I", "unable skateboarders"):
        assert tokenizer.encode(text) == make(lowercase).encode(text)


def test_a_folder_without_a_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(WordPieceError, match="no tokenizer that can be loaded"):
        WordPiece.from_pretrained(str(tmp_path))


def test_real_captions_as_the_library_cuts_them(vse_data: Path, minilm: Path) -> None:
    from transformers import AutoTokenizer

    library = AutoTokenizer.from_pretrained(str(minilm))
    tokenizer = WordPiece.from_pretrained(str(minilm))
    lines = (vse_data / "flickr8k" / "Flickr8k.token.txt").read_text(encoding="utf-8").splitlines()[::5]
    texts = [line.split("\t")[1] for line in lines]
    assert len(texts) > 6000
    assert [tokenizer.encode(text) for text in texts] == library(texts)["input_ids"]
    for text in texts[::50]:
        pieces = [piece for word in tokenizer.basic(text) for piece in tokenizer.wordpiece(word)]
        assert tokenizer.encode(text)[1:-1] == pieces


@pytest.mark.parametrize("model_type", ["bert", "custom"])
def test_code_in_a_folder_of_weights_is_refused_without_a_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model_type: str
) -> None:
    monkeypatch.setattr("builtins.input", lambda _: pytest.fail("asked whether to run the code"))
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "vocab.txt").write_text("\n".join(PIECES) + "\n", encoding="utf-8")
    with_code_of_its_own(tmp_path, model_type)
    with pytest.raises(WordPieceError, match=r"no tokenizer that can be loaded .*(code of its own|custom code)"):
        WordPiece.from_pretrained(str(tmp_path))
    assert not (tmp_path / "ran").exists()
