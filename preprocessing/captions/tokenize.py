"""Captions to words, as the published systems cut them."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nltk.tokenize.destructive import NLTKWordTokenizer

# Plain captions: words (hyphens inside), commas that stand alone, and one full stop at the end, if any.
_PLAIN = re.compile(r"(?:(?:[a-z0-9]+(?:-[a-z0-9]+)*|,)(?: +|(?=\.)|$))*(\.?)")
# Words without an apostrophe that the Treebank rules cut in two ("can", "not").
_CONTRACTED = re.compile(r"\b(?:cannot|gimme|gonna|gotta|lemme|wanna)\b")


@cache
def _word_tokenizer() -> NLTKWordTokenizer:
    # Imported at the first caption: nltk takes seconds to import, and most commands never tokenise.
    from nltk.tokenize.destructive import NLTKWordTokenizer

    return NLTKWordTokenizer()


def tokenize(text: str) -> list[str]:
    """Cut a caption into lower-case words.

    These are the words of ``nltk.word_tokenize(text.lower())``, the tokeniser of VSE++, VSE-infinity and MV-VSE, with
    its Treebank rules ("man's" -> "man", "'s"; "can't" -> "ca", "n't"; punctuation apart).

    Differs from the papers: ``word_tokenize`` first cuts the text into sentences with a downloaded model. Here a
    caption is one sentence and no data files are needed, so a full stop inside a caption stays on its word ("ran. she"
    -> "ran.", "she"); the last one is cut off as usual.

    Args:
        text: one caption, any case.

    Returns:
        The words in order; an empty list for an empty or blank caption.
    """
    lowered = text.lower().strip(" ")
    plain = _PLAIN.fullmatch(lowered)
    if plain and not _CONTRACTED.search(lowered):
        # None of the tokeniser's sixty substitutions changes such a caption, and they take a hundred times as long.
        words = lowered[: plain.start(1)].split()
        return [*words, "."] if plain[1] else words
    return list(_word_tokenizer().tokenize(lowered))
