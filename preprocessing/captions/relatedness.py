"""Words that may name the same thing, and so do not make a caption wrong in each other's place."""

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Self

from preprocessing.captions.graph import SceneGraph
from preprocessing.captions.wordnet.taxonomy import WordKind, load_taxonomy

# Images in which one caption has the one word and another caption the other: the fewest, ...
_MIN_IMAGES = 5
# ... the logarithm of their number over that of independent words, ...
_MIN_ASSOCIATION = 1.0
# ... and their number for each image in which one caption has both.
_APART_FOR_TOGETHER = 4
# Cosine of the two words' contexts.
_MIN_SIMILARITY = 0.1

_Pair = tuple[str, str]


class Relatedness:
    """Decides whether two words are related, so that neither makes a caption wrong in the place of the other.

    Either of two sources suffices:

    * WordNet, by a synset of both words, or one above the other at any distance (VSE-C: directly above);
    * the training captions, which name the same things by different words: two nouns (or two attributes) are related if
      (1) different captions of an image use them in at least 5 images, and e times as often as by chance; (2) one
      caption has both 4 times less often; (3) the cosine of their positive pointwise mutual information with attributes
      and relations is at least 0.1; (4) WordNet puts two nouns into one category (persons, animals, artefacts ...). The
      first two alone would relate a surfer to the surfboard.

    On 77 held-out pairs of nouns judged by hand (tests/preprocessing/captions/assets), precision and recall are 0.91
    and 0.59 by WordNet, 0.58 and 0.41 by captions, 0.70 and 0.82 by either.

    ``learned`` are related pairs from captions, each in alphabetical order.
    """

    def __init__(self, learned: Iterable[_Pair] = ()) -> None:
        self.learned = frozenset(learned)
        self._taxonomy = load_taxonomy()

    @classmethod
    def build(cls, captions_by_image: Iterable[Sequence[SceneGraph]]) -> Self:
        """Learn from the captions of a training split, image by image in any order."""
        nouns, attributes = _Usage(), _Usage()
        for graphs in captions_by_image:
            nouns.add_image([{o.lemma for o in graph.objects} for graph in graphs])
            attributes.add_image([{a.lemma for o in graph.objects for a in o.attributes} for graph in graphs])
            for graph in graphs:
                for relation in graph.relations:
                    nouns.add_context(graph.objects[relation.subject].lemma, f"subject {relation.lemma}")
                    nouns.add_context(graph.objects[relation.object].lemma, f"object {relation.lemma}")
                for thing in graph.objects:
                    for attribute in thing.attributes:
                        nouns.add_context(thing.lemma, f"is {attribute.lemma}")
                        attributes.add_context(attribute.lemma, thing.lemma)
        same_category = load_taxonomy().same_category
        return cls([*(pair for pair in nouns.related() if same_category(*pair)), *attributes.related()])

    def related(self, one: str, other: str, kind: WordKind) -> bool:
        """Return whether two base forms may name the same thing, property or action; a word is related to itself."""
        pair = (one, other) if one < other else (other, one)
        return pair in self.learned or self._taxonomy.same_or_kind_of(one, other, kind)


class _Usage:
    """Counts of how captions use the words of one kind."""

    def __init__(self) -> None:
        self._num_images = 0
        self._images: Counter[str] = Counter()
        self._apart: Counter[_Pair] = Counter()
        self._together: Counter[_Pair] = Counter()
        self._contexts: dict[str, Counter[str]] = defaultdict(Counter)

    def add_image(self, captions: Sequence[set[str]]) -> None:
        """Count the words of one image's captions, and which of them occur in one caption, and in different ones."""
        self._num_images += 1
        words = sorted(set().union(*captions))
        self._images.update(words)
        together = {pair for caption in captions for pair in itertools.combinations(sorted(caption), 2)}
        self._together.update(together)
        self._apart.update(pair for pair in itertools.combinations(words, 2) if pair not in together)

    def add_context(self, word: str, context: str) -> None:
        self._contexts[word][context] += 1

    def related(self) -> list[_Pair]:
        """Return the pairs that fulfil the first three conditions of :class:`Relatedness`."""
        candidates = [pair for pair, images in self._apart.items() if self._name_the_same(pair, images)]
        profiles = _profiles(self._contexts, {word for pair in candidates for word in pair})
        return [pair for pair in candidates if _cosine(profiles[pair[0]], profiles[pair[1]]) >= _MIN_SIMILARITY]

    def _name_the_same(self, pair: _Pair, images: int) -> bool:
        by_chance = self._images[pair[0]] * self._images[pair[1]] / self._num_images
        return (
            images >= _MIN_IMAGES
            and images >= _APART_FOR_TOGETHER * self._together[pair]
            and math.log(images / by_chance) >= _MIN_ASSOCIATION
        )


def _profiles(contexts: Mapping[str, Counter[str]], words: Iterable[str]) -> dict[str, dict[str, float]]:
    """Return each word's positive pointwise mutual information with its contexts, of unit length."""
    totals: Counter[str] = Counter()
    for counts in contexts.values():
        totals.update(counts)
    total = totals.total()
    profiles = {}
    for word in words:
        counts = contexts.get(word, Counter())
        occurrences = counts.total()
        weights = {c: max(0.0, math.log(n * total / (occurrences * totals[c]))) for c, n in counts.items()}
        length = math.sqrt(math.fsum(weight**2 for weight in weights.values()))
        profiles[word] = {c: weight / length for c, weight in weights.items() if weight}
    return profiles


def _cosine(one: Mapping[str, float], other: Mapping[str, float]) -> float:
    return math.fsum(weight * other[context] for context, weight in one.items() if context in other)
