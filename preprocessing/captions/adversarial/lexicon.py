"""Words with the forms in which captions use them, to put in another word's place."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence, Set
from typing import Literal, get_args

from preprocessing.captions.adversarial.grammar import PREPOSITIONS
from preprocessing.captions.adversarial.sentence import Frame, TokenizedCaption, frame_of, plain
from preprocessing.captions.pools import Pools
from preprocessing.captions.relatedness import Relatedness
from preprocessing.captions.word_lists import WORD_LISTS
from preprocessing.captions.wordnet.taxonomy import load_taxonomy

VerbForm = Literal["preposition", "ing", "s", "base", "past"]

# The fewest of a noun's uses, and the smallest share of them, before it may stand in such a place. "Dog" without an
# article occurs in telegram style; "snow" with one occurs if a parser slips.
_MIN_USES = 3
_MIN_SHARE: dict[Frame, float] = {"indefinite": 0.1, "bare": 0.3, "plural": 0.02, "definite": 0.0}

_EVERYWHERE = frozenset(WORD_LISTS["in_every_image"])


class Lexicon:
    """The pools' words in forms that fit a place in a sentence, and which of them are wrong for an image.

    A noun fits after "a" if training captions use it so ("a dog", not "a snow"), as a plural if they have its plural,
    and so on: see :data:`Frame`. A relation fits where another of the same form stood ("riding", "rides", "near").

    Differs from VSE-C: nouns are the pool's, instead of those above a concreteness of 0.6; captions as well as WordNet
    tell which words are related. What nearly every image shows is put in no place: parts of the body, "surface".
    """

    def __init__(self, captions: Iterable[TokenizedCaption], pools: Pools, relatedness: Relatedness) -> None:
        uses: dict[Frame, dict[str, Counter[str]]] = {frame: defaultdict(Counter) for frame in get_args(Frame)}
        relations: dict[VerbForm, Counter[tuple[str, str]]] = {form: Counter() for form in get_args(VerbForm)}
        is_body_part, known_relations = load_taxonomy().is_body_part, set(pools.relations)
        nouns = {noun for noun in pools.nouns if noun not in _EVERYWHERE and not is_body_part(noun)}
        for caption in captions:
            for thing in caption.graph.objects:
                if thing.lemma in nouns:
                    uses[frame_of(caption, thing)][thing.lemma][thing.word] += 1
            for relation in caption.graph.relations:
                if relation.lemma in known_relations:
                    relations[verb_form(relation.words, relation.lemma)][relation.lemma, relation.words] += 1
        self.nouns = _fitting(uses)
        """Base forms of the nouns that fit a place, and how they are written there."""
        self.relations = {
            form: sorted(entry for entry, count in counts.items() if count >= _MIN_USES)
            for form, counts in relations.items()
        }
        """The relations of a form: base forms, and words."""
        self.adjectives = pools.adjectives
        self._words = {*pools.nouns, *pools.adjectives}
        self._relatedness = relatedness
        self._related: dict[str, frozenset[str]] = {}

    def related(self, word: str) -> frozenset[str]:
        """Return the pools' words that are related to a word."""
        if word not in self._related:
            related = self._relatedness.related
            self._related[word] = frozenset(
                w for w in self._words if related(w, word, "noun") or related(w, word, "adjective")
            )
        return self._related[word]

    def same_relation(self, one: str, other: str) -> bool:
        """Return whether two relations that begin with these words may mean the same."""
        return one == other or other in PREPOSITIONS.get(one, ()) or self._relatedness.related(one, other, "verb")


class ImageWords:
    """The words of an image's captions (`texts`, as they are compared with others), and so those that are wrong for it.

    A noun or an adjective is irrelevant if it is neither a word of a caption of the image nor related to one of its
    nouns or attributes; a relation, if its first word is not related to that of one of its relations.
    """

    def __init__(self, captions: Sequence[TokenizedCaption], lexicon: Lexicon) -> None:
        objects = [thing for caption in captions for thing in caption.graph.objects]
        self._lexicon = lexicon
        self._tokens = {token for caption in captions for token in caption.tokens}
        said = {thing.lemma for thing in objects} | {a.lemma for thing in objects for a in thing.attributes}
        self._excluded = said.union(*(lexicon.related(word) for word in said))
        self._relations = {r.lemma.split()[0] for caption in captions for r in caption.graph.relations}
        self._found: dict[str, list[str]] = {}
        self.texts = {plain(caption.text) for caption in captions}

    def nouns(self, frame: Frame) -> list[str]:
        """Return the irrelevant nouns in the form that fits."""
        return self._irrelevant(frame, self._lexicon.nouns[frame].items())

    def adjectives(self) -> list[str]:
        """Return the irrelevant adjectives."""
        return self._irrelevant("adjective", ((word, word) for word in self._lexicon.adjectives))

    def _irrelevant(self, name: str, words: Iterable[tuple[str, str]]) -> list[str]:
        """Choose once among the words of a name: few images need all lists, some need one often."""
        if name not in self._found:
            self._found[name] = without(words, self._excluded, self._tokens)
        return self._found[name]

    def relations(self, form: VerbForm) -> list[str]:
        """Return the irrelevant relations of this form."""
        if form not in self._found:
            relations = [(lemma.split()[0], words) for lemma, words in self._lexicon.relations[form]]
            same = self._lexicon.same_relation
            firsts = {first for first, _ in relations}
            said = {first for first in firsts if any(same(first, used) for used in self._relations)}
            self._found[form] = [words for first, words in relations if first not in said]
        return self._found[form]


def verb_form(words: str, lemma: str) -> VerbForm:
    """Return the form of a relation, by its first word: another of the same form may take its place."""
    word, base = words.split()[0], lemma.split()[0]
    if word in PREPOSITIONS and word == base:
        return "preposition"
    if word.endswith("ing") and word != base:
        return "ing"
    if word == base:
        return "base"
    return "s" if word.endswith("s") else "past"


def _fitting(uses: dict[Frame, dict[str, Counter[str]]]) -> dict[Frame, dict[str, str]]:
    totals: Counter[str] = Counter()
    for by_noun in uses.values():
        totals.update({noun: forms.total() for noun, forms in by_noun.items()})
    fitting = {
        frame: {
            noun: min(forms, key=lambda form: (-forms[form], form))  # the most frequent
            for noun, forms in sorted(by_noun.items())
            if forms.total() >= _MIN_USES and forms.total() >= _MIN_SHARE[frame] * totals[noun]
        }
        for frame, by_noun in uses.items()
    }
    # "The" goes with every singular.
    fitting["definite"] = dict(sorted({**fitting["indefinite"], **fitting["bare"], **fitting["definite"]}.items()))
    return fitting


def without(candidates: Iterable[tuple[str, str]], excluded: Set[str], tokens: Set[str]) -> list[str]:
    """Return the forms of those (base form, form) that are not excluded and not words of the image's captions."""
    return [form for lemma, form in candidates if lemma not in excluded and tokens.isdisjoint((lemma, form))]
