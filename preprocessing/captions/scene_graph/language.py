"""A quick check that a caption can be English: parsers for English make something of any text."""

from preprocessing.captions.scene_graph.lexicon import ENGLISH, FOREIGN

_LATIN_END = "\u0250"


def is_foreign(text: str) -> bool:
    """Return whether a text is in another script than the Latin one, or has the little words of another language.

    Differs from a language identifier: text without any little words ("red car") passes as English.

    Args:
        text: with blanks between its words.
    """
    if not text.isascii():
        letters = [letter for letter in text if letter.isalpha()]
        if sum(letter >= _LATIN_END for letter in letters) * 2 > len(letters):
            return True
    words = set(text.lower().split())
    foreign = len(words & FOREIGN)
    return foreign >= 2 and foreign > len(words & ENGLISH)
