"""Participants of actions: conjoined nouns, subjects that are not repeated, and the nouns that pronouns stand for."""

from preprocessing.captions.scene_graph.lexicon import (
    ANIMALS,
    FEMALE,
    FEMALE_ENDINGS,
    MALE,
    MALE_ENDINGS,
    PERSONS,
    YOUNG,
    word_set,
)
from preprocessing.captions.scene_graph.tree import Tree

GROUP_SIZE = 8
"""Of longer enumerations the first members count, which bounds the relations between two of them."""

SUBJECTS = frozenset({"nsubj", "nsubj:pass"})
OBJECTS = frozenset({"obj", "iobj"})
_RELATIVE_CLAUSES = frozenset({"acl", "acl:relcl"})
_OWN_DETERMINERS = frozenset({"det", "nummod", "nmod:poss", "case"})
_INFINITIVE = frozenset({"mark", "aux"})
_CLAUSE = frozenset({"nsubj", "nsubj:pass", "cop"})

_HE = word_set("he him his")
_SHE = word_set("she her hers")
_IT = word_set("it its")
_THEY = word_set("they them their theirs")
_RECIPROCAL = word_set("each one other another")
REFLEXIVE = word_set("herself himself itself oneself themselves")


class Arguments:
    """Finds the objects that a word stands for or is said of; they are numbered by their places in `heads`."""

    def __init__(self, tree: Tree, role: list[str], heads: list[int]) -> None:
        self._tree = tree
        self._role = role
        self._heads = heads
        self._object = [-1] * len(tree.words)
        for index, token in enumerate(heads):
            self._object[token] = index
        self._groups: dict[int, list[int]] = {}
        self._subjects: dict[int, tuple[int, ...]] = {}
        self._stands_for: dict[int, tuple[int, ...]] = {}
        self.relativised: set[int] = set()
        """Clauses with a relative pronoun or adverb."""
        self._resolve_pronouns()

    def is_object(self, token: int) -> bool:
        """Return whether the token heads an object."""
        return self._object[token] >= 0

    def named(self, token: int) -> tuple[int, ...]:
        """The object that a noun heads, those that a pronoun stands for, or none."""
        if self._object[token] >= 0:
            return (self._object[token],)
        return self._stands_for.get(token, ())

    def members(self, token: int) -> list[int]:
        """A noun with those conjoined to it, ascending; at most GROUP_SIZE."""
        found = self._groups.get(token)
        if found is None:
            found, waiting = [token], [token]
            while waiting and len(found) < GROUP_SIZE:
                head = waiting.pop()
                for child in self._tree.children[head]:
                    if self._tree.labels[child] == "conj" and not self._tree.is_predicate(child):
                        found.append(child)
                        waiting.append(child)
            found = self._groups[token] = sorted(found)[:GROUP_SIZE]
        return found

    def things(self, token: int) -> tuple[int, ...]:
        """The objects that a noun and those conjoined to it name."""
        return tuple(thing for member in self.members(token) for thing in self.named(member))

    def modified(self, noun: int, modifier: int) -> list[int]:
        """The conjoined nouns that a phrase or clause behind one of them belongs to.

        That is all where it hangs on the first and stands behind the last ("[man and woman] with a dog"), and where it
        hangs on a later one that has no determiner of its own ("a [man and woman] with a dog").
        """
        tree, first = self._tree, noun
        while tree.labels[first] == "conj" and tree.heads[first] >= 0 and self._object[tree.heads[first]] >= 0:
            first = tree.heads[first]
        group = self.members(first)
        if modifier < noun or noun not in group:
            return [noun]
        if noun == first:
            return group if group[-1] < modifier else [noun]
        if tree.has_child(noun, _OWN_DETERMINERS):
            return [noun]
        return [member for member in group if member <= noun]

    def subjects(self, predicate: int) -> tuple[int, ...]:
        """The objects of which a verb, adjective or noun is said, its own or those of the clause that it continues."""
        path: list[int] = []
        token = predicate
        while True:
            if token in self._subjects:
                found = self._subjects[token]
                break
            path.append(token)
            nouns = self._subject_tokens(token)
            if nouns is not None:
                found = tuple(thing for noun in nouns for thing in self.named(noun))
                break
            token = self._tree.heads[token]
        for step in path:
            self._subjects[step] = found
        return found

    def _subject_tokens(self, token: int) -> list[int] | None:
        """The nouns and pronouns that are the subject of a word; None where it has that of its head."""
        tree = self._tree
        own = [c for c in tree.children[token] if tree.labels[c] in SUBJECTS]
        if own:
            return [member for subject in own for member in self.members(subject)]
        head, label = tree.heads[token], tree.labels[token]
        if head < 0 or label in SUBJECTS:
            return []
        if label in _RELATIVE_CLAUSES or label == "amod":
            return [] if self._is_infinitive(token) else self.modified(head, token)
        if label == "xcomp":
            objects = [member for c in tree.children[head] if tree.labels[c] in OBJECTS for member in self.members(c)]
            if objects:
                return objects
        if self._object[head] >= 0 and not tree.has_child(head, _CLAUSE) and label != "xcomp":
            return self.modified(head, token)
        return None

    def _is_infinitive(self, token: int) -> bool:
        tree = self._tree
        if "VerbForm=Inf" in tree.features[token]:
            return True
        return any(tree.words[c] == "to" for c in tree.children[token] if tree.labels[c] in _INFINITIVE)

    def _resolve_pronouns(self) -> None:
        tree = self._tree
        for token, upos in enumerate(tree.upos):
            if "PronType=Rel" in tree.features[token]:
                self._resolve_relative(token)
            elif upos == "PRON" or tree.labels[token] == "nmod:poss":
                self._resolve_personal(token)
            elif upos in ("DET", "ADJ") and self._is_reciprocal(token):
                self._stands_for[token] = self._subjects_of_clause(token)

    def _resolve_relative(self, token: int) -> None:
        """A relative pronoun stands for the noun that its clause modifies."""
        tree, clause = self._tree, token
        while clause >= 0 and tree.labels[clause] not in _RELATIVE_CLAUSES:
            clause = tree.heads[clause]
        if clause < 0 or tree.heads[clause] < 0:
            return
        self.relativised.add(clause)
        if tree.upos[token] in ("PRON", "DET"):
            nouns = self.modified(tree.heads[clause], clause)
            self._stands_for[token] = tuple(thing for noun in nouns for thing in self.named(noun))

    def _is_reciprocal(self, token: int) -> bool:
        """Return whether it heads "each other" or "one another"."""
        tree, words = self._tree, self._tree.words
        if words[token] not in _RECIPROCAL:
            return False
        partners = {words[c] for c in tree.children[token] if tree.labels[c] in ("fixed", "det")}
        return (words[token] in ("each", "one") and bool(partners & {"other", "another"})) or (
            words[token] in ("other", "another") and bool(partners & {"each", "one"})
        )

    def _subjects_of_clause(self, token: int) -> tuple[int, ...]:
        """The objects of the subject in whose clause a pronoun is an object or an oblique."""
        tree, head = self._tree, token
        if tree.labels[head] in SUBJECTS:
            return ()
        while tree.heads[head] >= 0 and not tree.is_predicate(head):
            head = tree.heads[head]
        while (nouns := self._subject_tokens(head)) is None:
            head = tree.heads[head]
        return tuple(thing for noun in nouns for thing in self.named(noun))

    def _resolve_personal(self, token: int) -> None:
        """A pronoun stands for the one object before it in its sentence that agrees with it, or for none."""
        tree = self._tree
        word = tree.words[token]
        if word in REFLEXIVE or self._is_reciprocal(token):
            self._stands_for[token] = self._subjects_of_clause(token)
            return
        if word not in _HE and word not in _SHE and word not in _IT and word not in _THEY:
            return
        excluded: set[int] = set()
        if tree.labels[token] != "nmod:poss":
            own = self.named(tree.heads[token]) if tree.heads[token] >= 0 else ()
            # "A desk has a lamp on it", but "a man looks at him".
            excluded.update(own or self._subjects_of_clause(token))
        before = [
            noun
            for index, noun in enumerate(self._heads)
            if noun < token and index not in excluded and tree.sentences[noun] == tree.sentences[token]
        ]
        antecedents = self._plural(before, token) if word in _THEY else self._singular(before, word, token)
        self._stands_for[token] = tuple(self._object[noun] for noun in antecedents)

    def _plural(self, before: list[int], token: int) -> list[int]:
        """The only plural noun or the only enumeration; failing these the only person."""
        candidates: list[list[int]] = []
        grouped: set[int] = set()
        for noun in before:
            group = [member for member in self.members(noun) if member < token and member in before]
            if noun in grouped:
                continue
            grouped.update(group)
            if len(group) > 1 or self._is_plural(noun):
                candidates.append(group)
        persons = [[noun] for noun in before if self._is_person(noun)]
        if persons:  # "they" are persons rather than what these have or wear
            candidates = [group for group in candidates if any(map(self._is_person, group))] or persons
        return candidates[0] if len(candidates) == 1 else []

    def _singular(self, before: list[int], word: str, token: int) -> list[int]:
        """The only noun of the likeliest kind: "he" is a person rather than an animal, that rather than a thing."""
        singular = [noun for noun in before if not self._is_plural(noun)]
        if word in _IT:
            things = [noun for noun in singular if not self._is_person(noun) or self._lemma(noun) in YOUNG]
            animals = [noun for noun in things if self._lemma(noun) in ANIMALS]
            # Ownership of a part ("its tail") is told of animals rather than of things.
            tiers = [animals, things] if self._tree.labels[token] == "nmod:poss" else [things]
        else:
            other = self._is_female if word in _HE else self._is_male
            agreeing = [noun for noun in singular if not other(noun)]
            persons = [noun for noun in agreeing if self._is_person(noun)]
            animals = [noun for noun in agreeing if self._lemma(noun) in ANIMALS]
            tiers = [persons, animals, agreeing]
        for tier in tiers:
            if tier:
                return tier if len(tier) == 1 else []
        return []

    def _lemma(self, noun: int) -> str:
        return self._tree.lemmas[noun]

    def _is_plural(self, noun: int) -> bool:
        tree = self._tree
        if "Number=Plur" in tree.features[noun] or tree.child(noun, "quantifier") is not None:
            return True
        return any(tree.labels[c] == "nummod" and tree.lemmas[c] not in ("one", "1") for c in tree.children[noun])

    def _is_female(self, noun: int) -> bool:
        return self._lemma(noun) in FEMALE or self._lemma(noun).endswith(FEMALE_ENDINGS)

    def _is_male(self, noun: int) -> bool:
        return not self._is_female(noun) and (self._lemma(noun) in MALE or self._lemma(noun).endswith(MALE_ENDINGS))

    def _is_person(self, noun: int) -> bool:
        return self._lemma(noun) in PERSONS or self._is_female(noun) or self._is_male(noun)
