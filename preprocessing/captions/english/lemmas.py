"""Tables for spaCy's lemmatizer: exceptions and known lemmas from tagged sentences, rules for all other words."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from preprocessing.captions.english.treebank import Word

if TYPE_CHECKING:
    from spacy.lookups import Lookups

_DOUBLED = "bdgmnprt"
_BEFORE_E = ("v", "iz", "at", "ur", "ak", "id", "rg", "dg", "nc")
# (ending, what replaces it), the most specific first: the first that fits is taken for an unknown word.
_RULES: dict[str, list[tuple[str, str]]] = {
    "noun": [
        ("men", "man"),
        ("ies", "y"),
        *((ending + "es", ending) for ending in ("sh", "ch", "x", "ss", "o")),
        ("s", ""),
    ],
    "verb": [
        ("ies", "y"),
        *((ending + "es", ending) for ending in ("sh", "ch", "x", "ss", "zz")),
        ("s", ""),
        *((c + c + ending, c) for c in _DOUBLED for ending in ("ing", "ed")),
        *((c + ending, c + "e") for c in _BEFORE_E for ending in ("ing", "ed")),
        ("ing", ""),
        ("ing", "e"),
        ("ied", "y"),
        ("ed", ""),
        ("ed", "e"),
    ],
    "adj": [("ier", "y"), ("iest", "y"), ("er", ""), ("est", ""), ("er", "e"), ("est", "e")],
}
# Names keep their form; punctuation and the like have none.
_WITHOUT_TABLES = frozenset({"PROPN", "PUNCT", "SYM", "X", "SPACE"})


def lemma_tables(sentences: Iterable[Sequence[Word]]) -> Lookups:
    """Tables for ``lemmatizer`` in its mode "rule".

    Exceptions hold, for each word and part of speech, the lemma most often given to it, wherever the word is not its
    own lemma or a rule would change it. The index holds the lemmas seen more than once (the
    others are often misspelt), which the rules prefer.
    """
    from spacy.lookups import Lookups

    counts: dict[str, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    for sentence in sentences:
        for word in sentence:
            if word.upos not in _WITHOUT_TABLES:
                counts[word.upos.lower()][word.form.lower()][word.lemma] += 1
    exceptions: dict[str, dict[str, list[str]]] = {}
    index: dict[str, list[str]] = {}
    for upos, lemmas_of in sorted(counts.items()):
        endings = tuple(ending for ending, _ in _RULES.get(upos, ()))
        usual = {form: lemmas.most_common(1)[0][0] for form, lemmas in sorted(lemmas_of.items())}
        exceptions[upos] = {
            form: [lemma]
            for form, lemma in usual.items()
            # Without rules, spaCy gives a word that is no exception back as it is written: "A", not "a".
            if form != lemma or not endings or form.endswith(endings)
        }
        totals = sum(lemmas_of.values(), Counter[str]())
        index[upos] = sorted(lemma for lemma, n in totals.items() if n > 1) if upos in _RULES else []
    lookups = Lookups()
    lookups.add_table("lemma_rules", {upos: [list(rule) for rule in rules] for upos, rules in _RULES.items()})
    lookups.add_table("lemma_exc", exceptions)
    lookups.add_table("lemma_index", index)
    return lookups
