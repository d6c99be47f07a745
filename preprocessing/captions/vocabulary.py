"""The words a text encoder knows, in the JSON format of the released VSE++/VSE-infinity vocabularies."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from preprocessing.captions.augment import Ids, WordNumbers, augment_tokens
from preprocessing.reading import damage_as, parse_json
from preprocessing.storage.atomic import write_bytes_atomic

# Plain captions: words (hyphens inside), commas that stand alone, and one full stop at the end, if any.
_PLAIN = re.compile(r"(?:(?:[a-z0-9]+(?:-[a-z0-9]+)*|,)(?: +|(?=\.)|$))*(\.?)")
# Words without an apostrophe that the Treebank rules cut in two ("can", "not").
_CONTRACTED = re.compile(r"\b(?:cannot|gimme|gonna|gotta|lemme|wanna)\b")


@cache
def _word_tokenizer() -> Any:
    # Imported at the first caption: nltk takes seconds to import, and most commands never tokenise.
    from nltk.tokenize.destructive import NLTKWordTokenizer

    return NLTKWordTokenizer()


def tokenize(text: str) -> list[str]:
    """Cut a caption into lower-case words: those of ``nltk.word_tokenize(text.lower())``, as VSE++ and its successors.

    Differs from the papers: ``word_tokenize`` first cuts the text into sentences with a downloaded model. Here a
    caption is one sentence and no data files are needed, so a full stop inside a caption stays on its word ("ran. she"
    -> "ran.", "she"); the last one is cut off as usual.
    """
    lowered = text.lower()
    stripped = lowered.strip(" ")
    plain = _PLAIN.fullmatch(stripped)
    if plain and not _CONTRACTED.search(stripped):
        # None of the tokeniser's sixty substitutions changes such a caption, and they take a hundred times as long.
        words = stripped[: plain.start(1)].split()
        return [*words, "."] if plain[1] else words
    return list(_word_tokenizer().tokenize(lowered))


# With <start> and <end>: captions have some ten tokens, texts of web pages any number. A step's time grows with the
# square of its longest caption, and one of 512 tokens among 128 captions makes the step 14 times as long.
MAX_TOKENS = 128
# Cut first, as the rules of the tokenizer take seconds for a text of 30,000 words.
_MAX_CHARACTERS = 64 * MAX_TOKENS

_SPECIALS = ("<pad>", "<start>", "<end>", "<unk>")
_MASK = "<mask>"


class VocabularyError(ValueError):
    """A vocabulary cannot be built or read; the message says why and what to do."""


class Vocabulary:
    """A fixed list of words and their ids.

    Ids 0 to 3 are ``<pad>``, ``<start>``, ``<end>`` and ``<unk>``; ``<mask>`` (needed by caption augmentation) is
    appended after the words if it is absent, as VSE-infinity does when it loads a released file. VocabularyError: the
    special entries are not where they must be, or a word occurs twice.
    """

    FILE: ClassVar[str] = "vocabulary.json"
    PAD = 0
    START = 1
    END = 2
    UNK = 3

    def __init__(self, words: Iterable[str]) -> None:
        self._words = list(words)
        if tuple(self._words[: len(_SPECIALS)]) != _SPECIALS:
            raise VocabularyError(f"a vocabulary must begin with {', '.join(_SPECIALS)}; not with {self._words[:4]}")
        if _MASK not in self._words:
            self._words.append(_MASK)
        self._ids = {word: index for index, word in enumerate(self._words)}
        if len(self._ids) != len(self._words):
            twice = sorted(word for word, count in Counter(self._words).items() if count > 1)
            raise VocabularyError(f"{len(twice)} words occur more than once, the first is {twice[0]!r}")
        self.mask_id = self._ids[_MASK]
        self.pad_id = self.PAD

    @classmethod
    def build(
        cls,
        captions: Iterable[str],
        min_count: int = 4,
        extra_words: Iterable[str] = (),
        cut: Callable[[str], list[str]] = tokenize,
    ) -> Self:
        """Collect the words that occur at least ``min_count`` times in the captions, of the training split alone.

        Words are sorted, so the ids depend on the captions and not on their order. Extra words, such as those of
        :func:`~preprocessing.captions.components.component_words`, are kept however rare; ``cut`` gives a caption's
        words. The released vocabularies have a ``min_count`` of 4. Raises VocabularyError without a word.
        """
        counts: Counter[str] = Counter()
        for caption in captions:
            counts.update(cut(caption[:_MAX_CHARACTERS]))
        words = sorted({word for word, count in counts.items() if count >= min_count}.union(extra_words))
        if not words:
            raise VocabularyError(f"none of {len(counts)} words occurs {min_count} times or more: lower min_count")
        return cls([*_SPECIALS, *words])

    @property
    def vocabulary(self) -> Self:
        """Return the words themselves, as every caption encoder that reads words has them."""
        return self

    def __len__(self) -> int:
        return len(self._words)

    def word(self, token_id: int) -> str:
        """Return the entry with this id (special entries included)."""
        return self._words[token_id]

    def find(self, word: str) -> int | None:
        """Return the id of a word, None if it is not known."""
        return self._ids.get(word)

    def ids(self, words: Iterable[str]) -> list[int]:
        """Return the ids of words, that of ``<unk>`` for those that are not known."""
        return [self._ids.get(word, self.UNK) for word in words]

    def encode(self, text: str) -> list[int]:
        """Return token ids of a caption, between ``<start>`` and ``<end>``; a word that is not known becomes ``<unk>``.

        Differs from the papers: a caption of more than `MAX_TOKENS`, or 64 times as many characters, loses its end.
        """
        return [self.START, *self.ids(_words(text)[: MAX_TOKENS - 2]), self.END]

    def truncates(self, text: str) -> bool:
        """Return whether :meth:`encode` leaves out the end of a caption."""
        return len(text) > _MAX_CHARACTERS or len(_words(text)) > MAX_TOKENS - 2

    def encode_words(self, text: str) -> tuple[list[int], list[int]]:
        """Return token ids as :meth:`encode` does, and their words' numbers; -1 for ``<start>`` and ``<end>``."""
        ids = self.encode(text)
        return ids, [-1, *range(len(ids) - 2), -1]

    def augment(self, ids_L: Ids, words_L: WordNumbers, rng: np.random.Generator, keep_ends: bool) -> Ids:  # noqa: ARG002
        """Mask, replace or delete words, ``<start>`` and ``<end>`` among them or not; see :func:`augment_tokens`.

        VSE-infinity's released code includes these two, VSE+2AD's keeps them.
        """
        if not keep_ends:
            return augment_tokens(ids_L, rng, self.mask_id, len(self))
        inner = augment_tokens(ids_L[1:-1], rng, self.mask_id, len(self))
        return np.concatenate([ids_L[:1], inner, ids_L[-1:]])

    def save(self, path: Path | str) -> None:
        """Write the vocabulary as JSON in the released format; the bytes depend on the words alone.

        It has ``word2idx``, ``idx2word`` (its keys are strings) and ``idx``, the number of entries.
        """
        word_of = dict(enumerate(self._words))
        content = {"word2idx": self._ids, "idx2word": word_of, "idx": len(self._words)}
        write_bytes_atomic(Path(path), json.dumps(content, ensure_ascii=False).encode() + b"\n")

    @classmethod
    def load(cls, path: Path | str) -> Self:
        """Read a vocabulary from :meth:`save`, or a released ``*_precomp_vocab.json`` (to which ``<mask>`` is added).

        VocabularyError: the file is missing, is not JSON, or its two tables do not describe one list of words.
        """
        remedy = "old vocabularies are pickles, which are not read: convert it first"
        with damage_as(VocabularyError, f"cannot read the vocabulary {path}", remedy):
            data = parse_json(Path(path).read_bytes())
            tables = data if isinstance(data, dict) else {}
            number_of, word_of = tables["word2idx"], tables["idx2word"]
            words = [word_of[str(number)] for number in range(len(word_of))]
            if number_of != {word: number for number, word in enumerate(words)}:
                raise ValueError('"word2idx" and "idx2word" are not the same words with the same numbers')
        try:
            return cls(words)
        except VocabularyError as error:
            raise VocabularyError(f"{path}: {error}") from error


def _words(text: str) -> list[str]:
    return tokenize(text[:_MAX_CHARACTERS])
