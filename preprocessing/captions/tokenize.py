"""Captions to words, as the published systems cut them."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nltk.tokenize.destructive import NLTKWordTokenizer


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
    return list(_word_tokenizer().tokenize(text.lower()))
