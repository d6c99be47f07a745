"""Words that mean the same, or one a kind of the other, by WordNet's synsets and hypernyms."""

import json
import lzma
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Literal

# The single words of WordNet 3.0 that are not names, their first senses (six of a noun or adjective, four of a verb;
# chosen on the "seen" half of the judged pairs), and all hypernyms of these.
_PATH = Path(__file__).with_name("wordnet.json.xz")

WordKind = Literal["noun", "verb", "adjective"]

# Base forms by the conventions of the parser, if WordNet has others.
_OTHER_FORMS = {"people": "person"}
# WordNet's number of the lexicographer file noun.body.
_BODY = 8


@dataclass(frozen=True)
class Taxonomy:
    """Nouns, verbs and adjectives with their most frequent senses (synsets), the most frequent first.

    `above` has for each synset, by its number, those directly above it: hypernyms; for an adjective the head of its
    cluster of similar ones. `category` is the number of its file in WordNet: animals, artefacts, persons ...; `senses`
    has the numbers of a word's synsets.
    """

    above: list[list[int]]
    category: list[int]
    senses: dict[WordKind, dict[str, list[int]]]
    _relatives: dict[tuple[str, WordKind], tuple[frozenset[int], frozenset[int]]] = field(default_factory=dict)
    _kinds: dict[str, frozenset[WordKind]] = field(default_factory=dict)

    def same_or_kind_of(self, one: str, other: str, kind: WordKind) -> bool:
        """Return whether the words are equal, share a synset, or one is a kind of the other at any distance."""
        one_own, one_all = self._synsets(one, kind)
        other_own, other_all = self._synsets(other, kind)
        return one == other or not one_own.isdisjoint(other_all) or not other_own.isdisjoint(one_all)

    def same_category(self, one: str, other: str) -> bool:
        """Return whether the most frequent senses of two nouns are of one category, or WordNet lacks one of them."""
        first = {self.category[senses[0]] for noun in (one, other) if (senses := self._find(noun, "noun"))}
        return len(first) < 2

    def kinds(self, word: str) -> frozenset[WordKind]:
        """Return the kinds of which WordNet knows a word to be."""
        if word not in self._kinds:
            self._kinds[word] = frozenset(kind for kind in self.senses if self._find(word, kind))
        return self._kinds[word]

    def is_body_part(self, noun: str) -> bool:
        """Return whether the most frequent sense of a noun is of the body: "neck", "ponytail"."""
        return [self.category[sense] for sense in self._find(noun, "noun")[:1]] == [_BODY]

    def is_plural(self, word: str) -> bool:
        """Return whether WordNet knows a noun without its last "s" alone: "clouds", not "tennis"."""
        nouns = self.senses["noun"]
        return word not in nouns and word.endswith("s") and word.removesuffix("s") in nouns

    def _find(self, word: str, kind: WordKind) -> list[int]:
        """Return the senses of a word; a plural ("jeans") that WordNet lacks has those of the singular."""
        words = self.senses[kind]
        word = _OTHER_FORMS.get(word, word)
        return words.get(word) or words.get(word.removesuffix("s"), [])

    def _synsets(self, word: str, kind: WordKind) -> tuple[frozenset[int], frozenset[int]]:
        """Return the synsets of a word, and these with all above them."""
        if (word, kind) not in self._relatives:
            own = self._find(word, kind)
            found, waiting = set(own), list(own)
            while waiting:
                higher = [synset for synset in self.above[waiting.pop()] if synset not in found]
                found.update(higher)
                waiting += higher
            self._relatives[word, kind] = (frozenset(own), frozenset(found))
        return self._relatives[word, kind]


@cache
def load_taxonomy() -> Taxonomy:
    """Return the taxonomy that ships with the package."""
    return Taxonomy(**json.loads(lzma.decompress(_PATH.read_bytes())))
