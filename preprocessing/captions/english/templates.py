"""Sentences that sound like captions, written from templates together with their dependency trees.

The English Web Treebank holds letters, reviews and news: almost no "dog", "frisbee" or "surfs", few sentences without a
finite verb. Trees follow its conventions: in "in front of the house" the noun "front" is an oblique and "house" its
modifier; a noun followed by a participle governs it as ``acl``; in "with its tongue hanging out" the verb is an
``advcl`` marked by "with".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from preprocessing.captions.english import lexicon
from preprocessing.captions.english.treebank import Word


@dataclass(slots=True)
class Node:
    """A word with the words that depend on it, in the order of the text."""

    form: str
    upos: str
    xpos: str
    lemma: str
    before: list[tuple[str, Node]] = field(default_factory=list)
    after: list[tuple[str, Node]] = field(default_factory=list)

    def add(self, relation: str, child: Node) -> Node:
        """Append a dependent at the right; returns this node."""
        self.after.append((relation, child))
        return self

    def prepend(self, relation: str, child: Node) -> Node:
        """Put a dependent at the very left; returns this node."""
        self.before.insert(0, (relation, child))
        return self


@dataclass(frozen=True, slots=True)
class Subject:
    """A noun phrase that may become a subject.

    Attributes:
        node: its head.
        plural: whether a verb agrees with it in the plural.
        person: whether it is a person rather than an animal or a thing.
        inner: what its modifiers belong to: "people" in "a group of people", otherwise the head.
    """

    node: Node
    plural: bool
    person: bool
    inner: Node


def linearise(root: Node) -> list[Word]:
    """The words of a tree in the order of the text, with indices of their heads."""
    order: list[tuple[Node, int, str]] = []
    position: dict[int, int] = {}

    def visit(node: Node, head: int, relation: str) -> None:
        for label, child in node.before:
            visit(child, id(node), label)
        position[id(node)] = len(order)
        order.append((node, head, relation))
        for label, child in node.after:
            visit(child, id(node), label)

    visit(root, 0, "root")
    return [
        Word(node.form, node.lemma, node.upos, node.xpos, position.get(head, -1), relation)
        for node, head, relation in order
    ]


def _word(form: str, upos: str, xpos: str, lemma: str | None = None) -> Node:
    return Node(form, upos, xpos, form if lemma is None else lemma)


def _adposition(form: str) -> Node:
    return _word(form, "ADP", "IN")


def _noun(lemma: str, plural: bool = False) -> Node:
    """A noun, or several as a compound; a hyphen within is a word of its own, as the tokenizer has it."""
    *modifiers, last = lemma.replace("-", " - ").split()
    if last in lexicon.PLURAL_ONLY:
        head = _word(last, "NOUN", "NNS", lexicon.PLURAL_ONLY[last])
    elif last in lexicon.PLURAL_OF_PAIRS:
        head = _word(last, "NOUN", "NNS", lexicon.PLURAL_OF_PAIRS[last])
    elif plural:
        head = _word(lexicon.plural(last), "NOUN", "NNS", lexicon.PLURAL_LEMMAS.get(last, last))
    else:
        head = _word(last, "NOUN", "NN")
    outer = head
    for modifier in reversed(modifiers):
        if modifier == "-":
            continue
        adjective = modifier in lexicon.ADJECTIVES_IN_COMPOUNDS
        node = _word(modifier, "ADJ", "JJ") if adjective else _word(modifier, "NOUN", "NN")
        outer.prepend("amod" if adjective else "compound", node)
        outer = node
    if "-" in modifiers:
        head.before[-1][1].add("punct", _word("-", "PUNCT", "HYPH"))
    return head


def _verb(lemma: str, tag: str) -> Node:
    form = {
        "VBZ": lexicon.third_person,
        "VBG": lexicon.gerund,
        "VBN": lexicon.participle,
    }.get(tag, str)(lemma)
    return _word(form, "VERB", tag, lemma)


def _be(plural: bool, upos: str = "AUX") -> Node:
    return _word("are" if plural else "is", upos, "VBP" if plural else "VBZ", "be")


def _hyphenated(parts: tuple[str, str, str, str, str]) -> Node:
    first, first_tag, second, second_tag, lemma = parts
    node = _word(second, "VERB" if second_tag == "VBN" else "ADJ", second_tag, lemma)
    part = _word(first, "NOUN" if first_tag == "NN" else "ADJ", first_tag)
    return node.prepend("compound" if first_tag == "NN" else "amod", part.add("punct", _word("-", "PUNCT", "HYPH")))


def _adjective(form: str) -> Node:
    if form in ("older", "younger"):
        return _word(form, "ADJ", "JJR", form.removesuffix("er"))
    return _word(form, "ADJ", "JJ")


def _conjoin(nodes: Sequence[Node], conjunction: str = "and", comma: bool = True) -> Node:
    """Conjoin: the first governs the others; commas stand between all but the last two."""
    first, *others = nodes
    for i, node in enumerate(others):
        if i == len(others) - 1:
            node.prepend("cc", _word(conjunction, "CCONJ", "CC"))
        elif comma:
            node.prepend("punct", _word(",", "PUNCT", ","))
        first.add("conj", node)
    return first


# Kinds of objects: their nouns, and the adjectives that suit them. A kind that is not here is a noun itself.
_KINDS: dict[str, tuple[Sequence[str], Sequence[str]]] = {
    "thing": (lexicon.THINGS + lexicon.COMPOUND_THINGS, lexicon.THING_ADJECTIVES),
    "food": (lexicon.FOOD, lexicon.THING_ADJECTIVES),
    "ball": (lexicon.BALLS, lexicon.THING_ADJECTIVES),
    "vehicle": (lexicon.VEHICLES + lexicon.COMPOUND_VEHICLES, lexicon.THING_ADJECTIVES),
    "rideable": (lexicon.RIDEABLE + lexicon.COMPOUND_VEHICLES, lexicon.THING_ADJECTIVES),
    "structure": (lexicon.STRUCTURES, lexicon.PLACE_ADJECTIVES),
    "obstacle": (lexicon.OBSTACLES, lexicon.THING_ADJECTIVES),
    "furniture": (lexicon.FURNITURE, lexicon.THING_ADJECTIVES),
    "place": (
        [
            word
            for word in lexicon.STRUCTURES + lexicon.PATHS
            if word not in lexicon.BARE_PLACES | lexicon.PLACES_IN_THE_PLURAL
        ],
        lexicon.PLACE_ADJECTIVES,
    ),
    "body": (lexicon.BODY, lexicon.SIZES),
    "trick": (lexicon.TRICKS, lexicon.EVALUATIONS),
    "event": (lexicon.EVENTS, lexicon.EVALUATIONS),
    "window": (lexicon.OPENINGS, lexicon.THING_ADJECTIVES),
    "camera": (lexicon.CAMERAS, lexicon.SIZES),
    "flowers": (lexicon.DECORATIONS, lexicon.COLORS),
}
_GARMENTS = (
    lexicon.CLOTHES,
    lexicon.CLOTHES,
    lexicon.COMPOUND_CLOTHES,
    lexicon.CLOTHES_PLURAL,
    lexicon.COMPOUND_CLOTHES_PLURAL,
)
# Kinds that take no article.
_UNCOUNTED = {"mass": lexicon.MASSES, "drink": lexicon.DRINKS, "sport": lexicon.SPORTS, "music": ["music"]}
_PRONOUNS = (
    ("someone", "NN", False),
    ("somebody", "NN", False),
    ("everyone", "NN", False),
    ("he", "PRP", False),
    ("she", "PRP", False),
    ("it", "PRP", False),
    ("they", "PRP", True),
)
_OBJECT_PRONOUNS = (
    ("it", "PRP", "it"),
    ("them", "PRP", "they"),
    ("him", "PRP", "he"),
    ("her", "PRP", "she"),
    ("himself", "PRP", "himself"),
    ("themselves", "PRP", "themselves"),
    ("something", "NN", "something"),
)


class CaptionWriter:
    """Writes captions at random, each with its tree.

    Args:
        rng: where all choices come from: the same state gives the same captions.
    """

    def __init__(self, rng: Random) -> None:
        self._rng = rng

    def captions(self, n: int) -> Iterator[list[Word]]:
        """Yield ``n`` captions."""
        for _ in range(n):
            yield self._finish(self._caption())

    # Chances and choices -------------------------------------------------------------------------------------------

    def _chance(self, probability: float) -> bool:
        return self._rng.random() < probability

    def _pick(self, items: Sequence[str]) -> str:
        return self._rng.choice(items)

    def _finish(self, root: Node) -> list[Word]:
        """Casing and the final stop vary as in real captions."""
        draw = self._rng.random()
        if draw < 0.75:
            root.add("punct", _word(".", "PUNCT", "."))
        words = linearise(root)
        if draw >= 0.45 and draw < 0.75:
            words[-2] = replace(words[-2], space_after=False)
        for i, word in enumerate(words[:-1]):
            if word.form == "-":
                words[i] = replace(word, space_after=False)
                words[i - 1] = replace(words[i - 1], space_after=False)
            elif (word.form == "," and draw >= 0.45) or (word.form == "'s" and draw >= 0.45):
                words[i - 1] = replace(words[i - 1], space_after=False)
        if self._chance(0.55):
            words[0] = replace(words[0], form=words[0].form[0].upper() + words[0].form[1:])
        return words

    # Noun phrases --------------------------------------------------------------------------------------------------

    def _determine(self, node: Node, possessive: bool = True) -> Node:
        """Give a noun its determiner, numeral or possessive."""
        plural = node.xpos == "NNS"
        draw = self._rng.random()
        if draw < 0.10:
            return node.prepend("det", _word("the", "DET", "DT"))
        if possessive and draw < 0.22:
            form, lemma = self._rng.choice((("his", "his"), ("her", "her"), ("their", "their"), ("its", "its")))
            return node.prepend("nmod:poss", _word(form, "PRON", "PRP$", lemma))
        if plural:
            return self._count(node)
        if draw < 0.26:
            return node.prepend("det", _word("another", "DET", "DT"))
        if draw < 0.30:
            return node
        if draw < 0.32:
            return node.prepend("nummod", _word("one", "NUM", "CD"))
        first = (node.before[0][1] if node.before else node).form
        if node.before and node.before[0][1].before:
            first = node.before[0][1].before[0][1].form
        return node.prepend("det", _word("an" if first[0] in "aeiou" else "a", "DET", "DT", "a"))

    def _count(self, node: Node) -> Node:
        """Give a plural noun a numeral, a quantifier or nothing."""
        if node.form in lexicon.PLURAL_ONLY:
            return node.prepend("det", _word("some", "DET", "DT")) if self._chance(0.15) else node
        draw = self._rng.random()
        if draw < 0.45:
            return node.prepend("nummod", _word(self._pick(lexicon.NUMERALS), "NUM", "CD"))
        if draw < 0.60:
            return node.prepend("amod", _word(self._pick(("several", "many", "few", "other")), "ADJ", "JJ"))
        if draw < 0.68:
            return node.prepend("det", _word(self._pick(("some", "some", "these", "all")), "DET", "DT"))
        if draw < 0.72:
            return node.prepend("amod", _word("few", "ADJ", "JJ")).prepend("det", _word("a", "DET", "DT"))
        return node

    def _describe(self, node: Node, adjectives: Sequence[str], mean: float = 0.6) -> Node:
        """Put adjectives before a noun: none, one, two, or two joined by "and"."""
        draw = self._rng.random()
        if draw > mean:
            return node
        if draw < mean * 0.6:
            return self._modify(node, self._pick(adjectives))
        if draw < mean * 0.75:
            forms = self._rng.sample(lexicon.COLORS, self._rng.choice((2, 2, 2, 3)))
            return node.prepend("amod", _conjoin([_adjective(form) for form in forms]))
        for form in sorted(self._rng.sample(list(adjectives), 2), key=lexicon.MATERIALS.__contains__, reverse=True):
            self._modify(node, form)
        return node

    @staticmethod
    def _modify(node: Node, form: str) -> Node:
        if form in lexicon.MATERIALS:
            return node.prepend("compound", _word(form, "NOUN", "NN"))
        return node.prepend("amod", _adjective(form))

    def _being(self, plural: bool | None = None) -> Subject:
        """A person or an animal, or several, with a determiner and adjectives."""
        if plural is None:
            plural = self._chance(0.35)
        draw = self._rng.random()
        if draw < 0.62:
            words = lexicon.COMMON_PEOPLE if self._chance(0.6) else lexicon.PEOPLE
            node, adjectives, person = _noun(self._pick(words), plural), lexicon.PERSON_ADJECTIVES, True
        elif draw < 0.72:
            node, adjectives, person = (
                _noun(self._pick(lexicon.COMPOUND_PEOPLE), plural),
                lexicon.PERSON_ADJECTIVES,
                True,
            )
        else:
            words = lexicon.COMMON_ANIMALS if self._chance(0.6) else lexicon.ANIMALS
            node, adjectives, person = _noun(self._pick(words), plural), lexicon.ANIMAL_ADJECTIVES, False
        if self._chance(0.05):
            node.prepend("amod", _verb(self._pick(lexicon.GERUND_ADJECTIVES), "VBG"))
        if person and self._chance(0.04):
            node.prepend("amod", _hyphenated(self._rng.choice(lexicon.HYPHENATED_PERSON)))
        if person and self._chance(0.03):
            node.prepend("amod", _word("aged", "ADJ", "JJ").prepend("amod", _word("middle", "ADJ", "JJ")))
        self._describe(node, adjectives, 0.55)
        if plural and self._chance(0.22):
            return Subject(self._quantified(node), False, person, node)
        return Subject(self._determine(node, possessive=False), plural, person, node)

    def _quantified(self, node: Node) -> Node:
        """A group of people: "group" governs "people"."""
        head = _noun(self._pick(lexicon.QUANTIFIER_NOUNS))
        self._describe(head, ("large", "small", "big", "huge"), 0.15)
        inner = node.prepend("case", _adposition("of"))
        return head.prepend("det", _word("a", "DET", "DT")).add("nmod", inner)

    def _subject(self) -> Subject:
        """The subject of a sentence: one being, two or three conjoined, a pronoun, or a being with a modifier."""
        draw = self._rng.random()
        if draw < 0.14:
            beings = _conjoin([self._being().node for _ in range(3 if draw < 0.03 else 2)])
            return Subject(beings, True, True, beings)
        if draw < 0.17:
            return self._pronoun()
        if draw < 0.20:
            return self._thing_subject()
        being = self._being()
        if being.person and self._chance(0.33):
            self._clothe(being.inner)
        elif self._chance(0.08):
            self._attach_place(being.inner, "nmod")
        elif self._chance(0.05):
            self._relative(being)
        return being

    def _thing_subject(self) -> Subject:
        plural = self._chance(0.3)
        kind = self._pick(("vehicle", "thing", "structure", "food"))
        node = self._object((kind,), plural=plural)
        return Subject(node, plural, False, node)

    def _pronoun(self) -> Subject:
        form, tag, plural = self._rng.choice(_PRONOUNS)
        node = _word(form, "PRON", tag)
        return Subject(node, plural, True, node)

    def _clothe(self, node: Node) -> Node:
        """A person in clothes, of which there may be several pieces."""
        draw = self._rng.random()
        if draw < 0.45:
            return node.add("nmod", self._clothes().prepend("case", _adposition("in")))
        if draw < 0.60:
            return node.add("acl", _verb("wear", "VBG").add("obj", self._clothes()))
        if draw < 0.68:
            color = _adjective(self._pick(lexicon.COLORS))
            return node.add("nmod", color.prepend("case", _adposition("in")))
        if draw < 0.76:
            return node.add("acl", _verb("dress", "VBN").add("obl", self._clothes().prepend("case", _adposition("in"))))
        body = self._describe(_noun("hair"), lexicon.COLORS, 0.9) if draw < 0.88 else self._object(("thing", "body"))
        return node.add("nmod", body.prepend("case", _adposition("with")))

    def _clothes(self) -> Node:
        pieces = [self._garment() for _ in range(self._rng.choice((1, 1, 1, 1, 2, 2, 3)))]
        return _conjoin(pieces)

    def _garment(self) -> Node:
        which = self._rng.choice(_GARMENTS)
        paired = which is lexicon.CLOTHES_PLURAL or which is lexicon.COMPOUND_CLOTHES_PLURAL
        node = self._describe(_noun(self._pick(which), paired or self._chance(0.12)), lexicon.THING_ADJECTIVES, 0.7)
        return self._determine(node)

    def _object(self, kinds: Sequence[str], plural: bool | None = None) -> Node:
        """A noun phrase of one of the kinds, such as may follow a verb or a preposition."""
        kind = self._pick(kinds)
        if kind in ("person", "animal"):
            being = self._being(plural)
            if being.person and self._chance(0.2):
                self._clothe(being.inner)
            return being.node
        if kind == "clothes":
            return self._clothes()
        if kind in _UNCOUNTED:
            return self._describe(_noun(self._pick(_UNCOUNTED[kind])), lexicon.THING_ADJECTIVES, 0.2)
        if kind == "color":
            return _adjective(self._pick(lexicon.COLORS))
        if kind == "instrument":
            return self._determine(_noun(self._pick(lexicon.INSTRUMENTS)))
        nouns, adjectives = _KINDS.get(kind, ((kind,), lexicon.THING_ADJECTIVES))
        always_plural = kind in ("bubbles", "pieces", "flowers")
        if plural is None:
            plural = self._chance(0.2)
        lemma = self._pick(nouns)
        node = _noun(lemma.removesuffix("s") if always_plural else lemma, plural or always_plural)
        node = self._determine(self._describe(node, adjectives, 0.45))
        return self._extend(node, kind)

    def _extend(self, node: Node, kind: str) -> Node:
        """Now and then conjoin a thing, fill it, or say what is on it or whose it is."""
        draw = self._rng.random()
        if kind in ("thing", "food", "vehicle", "furniture") and draw < 0.07:
            return _conjoin([node, self._object((kind,))])
        if kind in ("thing", "food") and draw < 0.12:
            container = self._determine(_noun(self._pick(lexicon.CONTAINERS)))
            filling = self._object(("food", "mass", "drink"), plural=kind == "food")
            return container.add("nmod", filling.prepend("case", _adposition("of")))
        if kind in ("thing", "vehicle", "structure", "furniture") and draw < 0.16:
            part = self._object(("body", "thing", "mass", "person"))
            return node.add("nmod", part.prepend("case", _adposition("with")))
        if kind in ("thing", "body", "vehicle") and draw < 0.20 and node.before:
            if node.before[0][0] in ("det", "nmod:poss"):
                del node.before[0]
            owner = self._being(plural=False).node
            return node.prepend("nmod:poss", owner.add("case", _word("'s", "PART", "POS")))
        return node

    # Places --------------------------------------------------------------------------------------------------------

    def _place_noun(self, words: Sequence[str]) -> Node:
        lemma = self._pick(lexicon.COMPOUND_PLACES) if self._chance(0.25) else self._pick(words)
        if lemma in lexicon.BARE_PLACES:
            node = self._describe(_noun(lemma), lexicon.PLACE_ADJECTIVES, 0.3)
            if self._chance(0.04):
                node.prepend("amod", _hyphenated(self._rng.choice(lexicon.HYPHENATED_PLACE)))
            return node.prepend("det", _word("the", "DET", "DT")) if self._chance(0.7) else node
        if lemma in lexicon.PLACES_IN_THE_PLURAL:
            return _noun(lemma.removesuffix("s"), True).prepend("det", _word("the", "DET", "DT"))
        node = self._describe(_noun(lemma), lexicon.PLACE_ADJECTIVES, 0.35)
        if self._chance(0.03):
            node.prepend("amod", _hyphenated(self._rng.choice(lexicon.HYPHENATED_PLACE)))
        if self._chance(0.45):
            node.prepend("det", _word("the", "DET", "DT"))
        else:
            self._determine(node, possessive=False)
        if self._chance(0.06):
            inner = self._place_noun(words) if self._chance(0.5) else self._object(("mass",))
            node.add("nmod", inner.prepend("case", _adposition(self._pick(("of", "of", "with", "by", "near")))))
        return node

    def _attach_place(self, head: Node, relation: str) -> Node:
        """Say where: a prepositional phrase as ``obl`` of a verb or ``nmod`` of a noun."""
        draw = self._rng.random()
        if draw < 0.25:
            return head.add(relation, self._place_noun(lexicon.PLACES_IN).prepend("case", _adposition("in")))
        if draw < 0.45:
            return head.add(relation, self._place_noun(lexicon.PLACES_ON).prepend("case", _adposition("on")))
        if draw < 0.53:
            return head.add(relation, self._place_noun(lexicon.PLACES_AT).prepend("case", _adposition("at")))
        if draw < 0.70:
            return head.add(relation, self._part_of_place())
        if draw < 0.79:
            return self._next_to(head)
        kinds = ("structure", "furniture", "vehicle", "person", "animal", "thing", "place")
        place = self._object(kinds)
        if draw < 0.82:
            first, second = self._rng.choice((("outside", "of"), ("out", "of"), ("off", "of"), ("inside", "of")))
            return head.add(relation, place.prepend("case", _adposition(second)).prepend("case", _adposition(first)))
        if draw < 0.845:
            place = _conjoin([place, self._object(kinds)])
            return head.add(relation, place.prepend("case", _adposition("between")))
        return head.add(relation, place.prepend("case", _adposition(self._pick(lexicon.PLACE_PREPOSITIONS))))

    def _part_of_place(self) -> Node:
        """Write "in front of the house", "on top of a hill": the part governs the whole."""
        part = self._pick(("front", "front", "front", "top", "top", *lexicon.PARTS))
        whole = self._object(("structure", "furniture", "vehicle", "person", "place", "place", "thing"))
        if self._chance(0.4):
            whole = self._place_noun((*lexicon.PLACES_IN, *lexicon.PLACES_ON))
        node = _noun(part)
        if part != "front" and not (part == "top" and self._chance(0.8)):
            node.prepend("det", _word("the", "DET", "DT"))
        preposition = {"front": "in", "middle": "in", "midst": "in", "center": "in", "corner": "in", "background": "in"}
        form = preposition.get(part) or self._pick(("on", "on", "at", "near", "along", "to", "by"))
        if part == "top" and len(node.before) == 0:
            form = "on"
        return node.prepend("case", _adposition(form)).add("nmod", whole.prepend("case", _adposition("of")))

    def _next_to(self, head: Node) -> Node:
        """Write "next to the house": an adverb with an oblique, as in "close to" and "away from"."""
        place = self._object(("structure", "furniture", "vehicle", "person", "animal", "thing", "place", "place"))
        draw = self._rng.random()
        if draw < 0.75:
            adverb, form = _word("next", "ADV", "RB"), "to"
        elif draw < 0.9:
            adverb, form = _word("close", "ADV", "RB"), "to"
        else:
            adverb, form = _word("away", "ADV", "RB"), "from"
        return head.add("advmod", adverb.add("obl", place.prepend("case", _adposition(form))))

    def _attach_path(self, verb: Node) -> Node:
        """Say along what something moves."""
        draw = self._rng.random()
        if draw < 0.08:
            particle = _word(self._pick(lexicon.DIRECTIONS), "ADV", "RB")
            verb.add("advmod", particle)
        if draw > 0.85:
            goal = self._object(("structure", "person", "animal", "vehicle", "place"))
            form = self._pick(("towards", "toward", "to", "past", "around", "over", "behind", "after", "away"))
            if form == "away":
                away = _word("away", "ADV", "RB").add("obl", goal.prepend("case", _adposition("from")))
                return verb.add("advmod", away)
            return verb.add("obl", goal.prepend("case", _adposition(form)))
        place = self._place_noun(lexicon.PATHS)
        return verb.add("obl", place.prepend("case", _adposition(self._pick(lexicon.PATH_PREPOSITIONS))))

    # Verb phrases --------------------------------------------------------------------------------------------------

    def _verb_phrase(self, tag: str, depth: int = 0) -> Node:
        """A verb in the given form with its objects, places and adjuncts."""
        draw = self._rng.random()
        if draw < 0.19:
            verb = _verb(self._pick(lexicon.MOTION), tag)
            if self._chance(0.85):
                self._attach_path(verb)
        elif draw < 0.33:
            verb = self._attach_place(_verb(self._pick(lexicon.POSTURE), tag), "obl")
        elif draw < 0.44:
            verb = _verb(self._pick(lexicon.ACTIVITY), tag)
            if self._chance(0.8):
                self._attach_place(verb, "obl")
        elif draw < 0.70:
            verb = self._transitive(tag)
        elif draw < 0.81:
            verb = self._with_preposition(tag)
        elif draw < 0.88:
            verb = self._phrasal(tag)
        elif draw < 0.94:
            verb = self._with_adverb(tag)
        elif depth == 0:
            verb = self._control(tag)
        else:
            return self._transitive(tag)
        if depth == 0:
            self._adjoin(verb)
        return verb

    def _transitive(self, tag: str) -> Node:
        verbs, kinds = self._rng.choice(lexicon.TRANSITIVE)
        verb = _verb(self._pick(verbs.split()), tag)
        if kinds == "hair":
            return verb.add("obj", _noun("hair").prepend("nmod:poss", _word("her", "PRON", "PRP$")))
        if self._chance(0.03):
            return self._reciprocal(verb)
        verb.add("obj", self._object(kinds.split()))
        if self._chance(0.02):
            verb.after.insert(0, ("iobj", self._being(plural=False).node))
        draw = self._rng.random()
        if draw < 0.25:
            self._attach_place(verb, "obl")
        elif draw < 0.35:
            self._attach_path(verb)
        elif draw < 0.41:
            tool = self._object(("thing", "body"))
            verb.add("obl", tool.prepend("case", _adposition(self._pick(("with", "with", "from", "into", "for")))))
        return verb

    def _reciprocal(self, verb: Node) -> Node:
        draw = self._rng.random()
        if draw < 0.4:
            return verb.add("obj", _word("each", "DET", "DT").add("fixed", _word("other", "ADJ", "JJ")))
        if draw < 0.6:
            return verb.add("obj", _word("one", "PRON", "CD").add("fixed", _word("another", "DET", "DT")))
        form, tag, lemma = self._rng.choice(_OBJECT_PRONOUNS)
        return verb.add("obj", _word(form, "PRON", tag, lemma))

    def _with_preposition(self, tag: str) -> Node:
        lemma, preposition, *kinds = self._pick(lexicon.PREPOSITIONAL).split()
        verb = _verb(lemma, tag)
        if preposition in ("with", "at") and self._chance(0.08):
            other = _word("each", "DET", "DT").add("fixed", _word("other", "ADJ", "JJ"))
            return verb.add("obl", other.prepend("case", _adposition(preposition)))
        goal = self._object(kinds)
        if kinds == ["camera"] and self._chance(0.6):
            goal = _noun("camera").prepend("det", _word("the", "DET", "DT"))
        verb.add("obl", goal.prepend("case", _adposition(preposition)))
        if self._chance(0.2):
            self._attach_place(verb, "obl")
        return verb

    def _phrasal(self, tag: str) -> Node:
        lemma, particle, *kinds = self._pick(lexicon.PHRASAL).split()
        verb = _verb(lemma, tag)
        particle_node = _word(particle, "ADP", "RP")
        if kinds == ["-"]:
            verb.add("compound:prt", particle_node)
        elif self._chance(0.75):
            verb.add("compound:prt", particle_node).add("obj", self._object(kinds))
        else:
            verb.add("obj", self._object(kinds)).add("compound:prt", particle_node)
        if self._chance(0.45):
            self._attach_place(verb, "obl")
        return verb

    def _with_adverb(self, tag: str) -> Node:
        lemma, adverb = self._pick(lexicon.ADVERBIAL).split()
        verb = _verb(lemma, tag).add("advmod", _word(adverb, "ADV", "RB"))
        if self._chance(0.4):
            self._attach_place(verb, "obl")
        return verb

    def _control(self, tag: str) -> Node:
        lemma = self._pick(lexicon.CONTROL)
        infinitive = self._verb_phrase("VB", depth=1).prepend("mark", _word("to", "PART", "TO"))
        if lemma == "get":
            return _verb("get", tag).add("xcomp", _word("ready", "ADJ", "JJ").add("xcomp", infinitive))
        if lemma == "go":
            return _verb("go", tag).add("xcomp", _verb(self._pick(lexicon.ACTIVITY), "VBG"))
        if lemma == "wait":
            return _verb("wait", tag).add("advcl" if self._chance(0.3) else "xcomp", infinitive)
        return _verb(lemma, tag).add("xcomp", infinitive)

    def _adjoin(self, verb: Node) -> None:
        """Add a clause after a verb phrase: "while ...", "as ...", "to ...", "with its tongue hanging out"."""
        draw = self._rng.random()
        if draw < 0.05:
            mark = _word(self._pick(("while", "while", "whilst", "after", "before")), "SCONJ", "IN")
            verb.add("advcl", self._verb_phrase("VBG", depth=1).prepend("mark", mark))
        elif draw < 0.09:
            clause = self._finite(self._being(), depth=1)
            verb.add("advcl", clause.prepend("mark", _word(self._pick(("as", "while", "as", "when")), "SCONJ", "IN")))
        elif draw < 0.11:
            infinitive = self._verb_phrase("VB", depth=1).prepend("mark", _word("to", "PART", "TO"))
            verb.add("advcl", infinitive)
        elif draw < 0.15:
            verb.add("advcl", self._absolute())
        elif draw < 0.18:
            clause = self._verb_phrase("VBG", depth=1)
            if self._chance(0.4):
                clause.prepend("punct", _word(",", "PUNCT", ","))
            verb.add("advcl", clause)
        elif draw < 0.24:
            companion = self._object(("person", "thing", "animal", "thing"))
            form = self._pick(("with", "with", "with", "without", "like", "for", "from"))
            verb.add("obl", companion.prepend("case", _adposition(form)))
        elif draw < 0.28:
            time = _noun(self._pick(lexicon.TIMES))
            form = "at" if time.form in ("night", "sunset", "dusk") else "during"
            if form == "during":
                time.prepend("det", _word("the", "DET", "DT"))
            verb.add("obl", time.prepend("case", _adposition(form)))

    def _absolute(self) -> Node:
        """Write "with its tongue hanging out": the clause has a subject of its own."""
        mark = _word("with", "SCONJ", "IN")
        if self._chance(0.5):
            part = self._determine(_noun(self._pick(lexicon.BODY), self._chance(0.3)))
        else:
            part = self._being().node
        draw = self._rng.random()
        if draw < 0.25:
            predicate = _word(self._pick(("open", "closed", "bare", "visible", "wet")), "ADJ", "JJ")
        elif draw < 0.55:
            predicate = _verb(self._pick(lexicon.PARTICIPLES_HANGING), "VBG")
            if self._chance(0.5):
                predicate.add("advmod", _word(self._pick(("out", "out", "down", "up", "around")), "ADV", "RB"))
        elif draw < 0.85:
            predicate = _verb(self._pick(lexicon.PARTICIPLES_HELD), "VBN")
            return predicate.prepend("nsubj:pass", part).prepend("mark", mark)
        else:
            predicate = _word(self._pick(("up", "out", "down", "behind", "nearby")), "ADV", "RB")
        return predicate.prepend("nsubj", part).prepend("mark", mark)

    # Clauses -------------------------------------------------------------------------------------------------------

    def _finite(self, subject: Subject, depth: int = 0) -> Node:
        """A clause: present tense, or the progressive."""
        if self._chance(0.5):
            tag = "VBP" if subject.plural else "VBZ"
            verb = self._verb_phrase(tag, depth)
            if depth == 0 and self._chance(0.1):
                self._conjoin_verb(verb, tag)
            if self._chance(0.03):
                verb.prepend("advmod", _word(self._pick(lexicon.MANNERS), "ADV", "RB"))
        else:
            verb = self._verb_phrase("VBG", depth)
            if depth == 0 and self._chance(0.1):
                self._conjoin_verb(verb, "VBG")
            verb.prepend("aux", _be(subject.plural))
        return verb.prepend("nsubj", subject.node)

    def _conjoin_verb(self, verb: Node, tag: str) -> None:
        second = self._verb_phrase(tag, depth=1)
        second.prepend("cc", _word("and", "CCONJ", "CC"))
        if self._chance(0.15):
            second.prepend("punct", _word(",", "PUNCT", ","))
        verb.add("conj", second)

    def _passive(self, tag: str = "VBN") -> Node:
        """A participle with what belongs to it: "parked next to a house", "pulled by horses"."""
        lemma, preposition, *kinds = self._pick(lexicon.PASSIVE).split()
        verb = _verb(lemma, tag)
        if lemma in ("park", "stop", "seat", "gather", "stand", "locate", "position", "leave") and self._chance(0.6):
            return self._attach_place(verb, "obl")
        if preposition == "next-to":
            return self._next_to(verb)
        if preposition in ("in-front-of", "on-top-of"):
            return verb.add("obl", self._part_of_place())
        goal = self._object(kinds).prepend("case", _adposition(preposition))
        verb.add("obl:agent" if preposition == "by" else "obl", goal)
        if self._chance(0.2):
            self._attach_place(verb, "obl")
        return verb

    def _passive_clause(self) -> Node:
        subject = self._thing_subject() if self._chance(0.6) else self._subject()
        verb = self._passive()
        if self._chance(0.15):
            verb.prepend("aux:pass", _word("being", "AUX", "VBG", "be"))
            return verb.prepend("aux", _be(subject.plural)).prepend("nsubj:pass", subject.node)
        return verb.prepend("aux:pass", _be(subject.plural)).prepend("nsubj:pass", subject.node)

    def _copular(self) -> Node:
        """Write "the man is in the water", "the dog is wet"."""
        subject = self._subject()
        draw = self._rng.random()
        if draw < 0.55:
            holder = self._attach_place(_word("", "X", ""), "obl").after[0]
            predicate = holder[1]
        elif draw < 0.8:
            predicate = _adjective(
                self._pick(lexicon.PERSON_ADJECTIVES if subject.person else lexicon.THING_ADJECTIVES)
            )
        elif draw < 0.9:
            predicate = _word("about", "ADJ", "JJ")
            infinitive = self._verb_phrase("VB", depth=1).prepend("mark", _word("to", "PART", "TO"))
            predicate.add("xcomp", infinitive)
        else:
            form = self._pick(("outside", "inside", "outdoors", "alone", "underwater", "airborne", "up", "nearby"))
            predicate = _word(form, "ADV", "RB")
        return predicate.prepend("cop", _be(subject.plural)).prepend("nsubj", subject.node)

    def _relative(self, being: Subject) -> Node:
        """Add a relative clause to a noun: "who is walking", "that runs", "which is parked"."""
        form, upos, tag = ("who", "PRON", "WP") if being.person and self._chance(0.6) else ("that", "PRON", "WDT")
        if form == "that" and self._chance(0.25):
            form = "which"
        node = _word(form, upos, tag)
        pronoun = Subject(node, being.plural, being.person, node)
        draw = self._rng.random()
        if draw < 0.7:
            clause = self._finite(pronoun, depth=1)
        elif draw < 0.85:
            clause = self._passive().prepend("aux:pass", _be(being.plural)).prepend("nsubj:pass", pronoun.node)
        else:
            holder = self._attach_place(_word("", "X", ""), "obl").after[0][1]
            clause = holder.prepend("cop", _be(being.plural)).prepend("nsubj", pronoun.node)
        return being.inner.add("acl:relcl", clause)

    def _fragment(self) -> Node:
        """A noun phrase for a sentence: "a boy in a red shirt riding a bike"."""
        subject = self._subject()
        if subject.node.upos == "PRON":
            return self._finite(subject)
        noun = subject.inner
        draw = self._rng.random()
        if draw < 0.58:
            verb = self._verb_phrase("VBG")
            if self._chance(0.1):
                self._conjoin_verb(verb, "VBG")
            if self._chance(0.06):
                verb.prepend("punct", _word(",", "PUNCT", ","))
            noun.add("acl", verb)
        elif draw < 0.70:
            passive = self._passive()
            if self._chance(0.25):
                passive.prepend("aux:pass", _word("being", "AUX", "VBG", "be"))
            noun.add("acl", passive)
        elif draw < 0.84:
            for _ in range(2 if self._chance(0.2) else 1):
                self._attach_place(noun, "nmod")
        elif draw < 0.90:
            about = _word(self._pick(("about", "ready")), "ADJ", "JJ")
            infinitive = self._verb_phrase("VB", depth=1).prepend("mark", _word("to", "PART", "TO"))
            noun.add("amod", about.add("xcomp", infinitive))
        else:
            self._relative(subject)
        return subject.node

    def _existential(self) -> Node:
        """Write "There is a man riding a bike"."""
        subject = self._subject()
        if subject.node.upos == "PRON":
            subject = self._being()
        node = subject.inner
        draw = self._rng.random()
        verb = _be(subject.plural, "VERB").prepend("expl", _word("there", "PRON", "EX")).add("nsubj", subject.node)
        if draw < 0.5:
            node.add("acl", self._verb_phrase("VBG"))
        elif draw < 0.65:
            node.add("acl", self._passive())
        elif draw < 0.8:
            self._relative(subject)
        else:
            self._attach_place(verb, "obl")
        return verb

    def _headline(self) -> Node:
        """A sentence without articles at its beginning: "Man riding horse", "Dogs playing in snow"."""
        root = self._fragment() if self._chance(0.7) else self._finite(self._subject())
        subject = root
        for relation, child in root.before:
            if relation == "nsubj":
                subject = child
        subject.before = [pair for pair in subject.before if pair[0] not in ("det", "nmod:poss")]
        return root

    def _picture(self) -> Node:
        """Write "A close up of a man holding a phone"."""
        noun = _noun(self._pick(lexicon.PICTURES))
        self._describe(noun, ("black", "old", "blurry", "close", "aerial", "beautiful"), 0.3)
        inner = self._fragment() if self._chance(0.6) else self._object(("place", "structure", "animal"))
        if inner.upos == "VERB":
            inner = self._being().node
        return noun.prepend("det", _word("a", "DET", "DT")).add("nmod", inner.prepend("case", _adposition("of")))

    def _two_clauses(self) -> Node:
        first, second = self._finite(self._subject(), depth=1), self._finite(self._being(), depth=1)
        form = self._pick(("and", "and", "while", "as", "but"))
        if form in ("while", "as"):
            second.prepend("mark", _word(form, "SCONJ", "IN"))
            return first.add("advcl", second)
        second.prepend("cc", _word(form, "CCONJ", "CC"))
        if self._chance(0.4):
            second.prepend("punct", _word(",", "PUNCT", ","))
        return first.add("conj", second)

    def _caption(self) -> Node:
        draw = self._rng.random()
        for share, build in (
            (0.42, lambda: self._finite(self._subject())),
            (0.70, self._fragment),
            (0.76, self._passive_clause),
            (0.80, self._copular),
            (0.84, self._existential),
            (0.90, self._headline),
            (0.93, self._picture),
            (0.985, self._two_clauses),
        ):
            if draw < share:
                return build()
        return self._verb_phrase("VBG")
