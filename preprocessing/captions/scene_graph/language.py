"""A quick look at whether a caption can be English: parsers for English make something of any text."""

from __future__ import annotations

from preprocessing.captions.scene_graph.lexicon import word_set

_ENGLISH = word_set(
    """
    a an and are as at behind by down for from front has her his in into is it its near next of off on one out over
    some that the their there this through to top two up wearing while who with
    """
)
# The most frequent words of other languages in the Latin script, as far as they are no English words.
_FOREIGN = word_set(
    """
    aan als auf aus avec bei bir com con dans das dem den der des deux dla dos du ein eine einem einen einer einige el
    ella elle em en entre es est et een het il ille im incontro jest je kein la las le les lo los mann mehrere met mit
    na nad nicht och oder oraz ou para per persona por pour pred que qui rue se sie sind sobre som su sul sulla sur
    très trois tut um un una und une unter uno van ve vor voor vom von weg wird y zu zum zur zwei è é över på till på
    av är og til gli nel nella che di della sono du sous femme homme hombre mujer hund
    """
)
_LATIN_END = "\u0250"


def is_foreign(text: str) -> bool:
    """Whether a text is written in another script than the Latin one, or with the little words of another language.

    Differs from a language identifier: text without any little words ("red car") passes as English.

    Args:
        text: with blanks between its words.
    """
    if not text.isascii():
        letters = [letter for letter in text if letter.isalpha()]
        if sum(letter >= _LATIN_END for letter in letters) * 2 > len(letters):
            return True
    words = set(text.lower().split())
    foreign = len(words & _FOREIGN)
    return foreign >= 2 and foreign > len(words & _ENGLISH)
