"""English words of ``lexicon.yaml`` that say how many, where, or who: what no dependency label tells."""

from pathlib import Path

from preprocessing.captions.word_lists import read_word_lists

LEXICON = {name: frozenset(words) for name, words in read_word_lists(Path(__file__).with_suffix(".yaml")).items()}
ABSTRACT_PHRASES = frozenset(tuple(phrase.split()) for phrase in LEXICON["abstract_phrases"])


def is_female(lemma: str) -> bool:
    """Return whether a noun names a woman or a girl: "queen", "horsewoman"."""
    return lemma in LEXICON["female"] or lemma.endswith(("woman", "girl", "lady"))


def is_male(lemma: str) -> bool:
    """Return whether a noun names a man or a boy: "king", "fireman"."""
    return not is_female(lemma) and (lemma in LEXICON["male"] or lemma.endswith(("man", "boy")))


def is_person(lemma: str) -> bool:
    """Return whether a noun names a person."""
    return lemma in LEXICON["persons"] or is_female(lemma) or is_male(lemma)
