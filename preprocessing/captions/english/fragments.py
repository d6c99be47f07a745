"""Sentences of a treebank made more like captions: lower case, no final stop, noun phrases that stand alone."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from preprocessing.captions.english.treebank import Word

# Dependents that stay with a noun when its phrase is cut out of the sentence.
_KEPT = frozenset({"det", "amod", "nummod", "compound", "nmod", "nmod:poss", "acl", "acl:relcl", "conj", "flat"})
# At least one of these makes a phrase worth cutting out.
_WANTED = frozenset({"nmod", "acl", "acl:relcl"})
_LENGTHS = range(4, 26)


def lower_cased(sentence: Sequence[Word]) -> list[Word]:
    """All words in lower case."""
    return [replace(word, form=word.form.lower()) for word in sentence]


def without_stop(sentence: Sequence[Word]) -> list[Word]:
    """Without the final full stop, where there is one."""
    *words, last = sentence
    if last.form != "." or last.relation != "punct" or not words:
        return list(sentence)
    return words


def stop_apart(sentence: Sequence[Word]) -> list[Word]:
    """With a space before the final punctuation."""
    if len(sentence) < 2:
        return list(sentence)
    return [*sentence[:-2], replace(sentence[-2], space_after=True), sentence[-1]]


def noun_phrases(sentence: Sequence[Word]) -> Iterator[list[Word]]:
    """Noun phrases with a prepositional phrase, a participle or a relative clause, as sentences rooted in the noun."""
    for i, word in enumerate(sentence):
        if word.upos != "NOUN":
            continue
        children = [j for j, other in enumerate(sentence) if other.head == i and other.relation in _KEPT]
        if not _WANTED & {sentence[j].relation for j in children}:
            continue
        kept = sorted({i}.union(*(_subtree(sentence, j) for j in children)))
        if len(kept) in _LENGTHS and kept[-1] - kept[0] == len(kept) - 1:
            yield _cut(sentence, kept, root=i)


def _subtree(sentence: Sequence[Word], top: int) -> set[int]:
    found, frontier = {top}, {top}
    while frontier:
        frontier = {j for j, word in enumerate(sentence) if word.head in frontier}
        found |= frontier
    return found


def _cut(sentence: Sequence[Word], kept: Collection[int], root: int) -> list[Word]:
    position = {old: new for new, old in enumerate(kept)}
    words = [
        replace(
            sentence[i],
            head=-1 if i == root else position[sentence[i].head],
            relation="root" if i == root else sentence[i].relation,
        )
        for i in kept
    ]
    stop = Word(".", ".", "PUNCT", ".", position[root], "punct")
    return [*words[:-1], replace(words[-1], space_after=True), stop]
