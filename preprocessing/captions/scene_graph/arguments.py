"""Participants of actions: conjoined nouns, subjects that are not repeated, and the nouns that pronouns stand for."""

from collections.abc import Iterable

from preprocessing.captions.scene_graph.lexicon import LEXICON, is_female, is_male, is_person
from preprocessing.captions.scene_graph.tree import OWN_DETERMINERS, SUBJECTS, Tree

# The first members of longer enumerations count, which bounds the relations between two of them.
GROUP_SIZE = 8

OBJECTS = frozenset({"obj", "iobj"})
_RELATIVE_CLAUSES = frozenset({"acl", "acl:relcl"})
_EACH, _OTHERS = ("each", "one"), ("other", "another")
_RECIPROCAL = {"each": _OTHERS, "one": _OTHERS, "other": _EACH, "another": _EACH}
_PERSONAL = LEXICON["he"] | LEXICON["she"] | LEXICON["it"] | LEXICON["they"]


class Arguments:
    """Finds the objects that a word stands for or is said of; they are numbered by their positions in `heads`."""

    def __init__(self, tree: Tree, heads: list[int]) -> None:
        self._tree = tree
        self._heads = heads
        self._object = {token: index for index, token in enumerate(heads)}
        self._subjects: dict[int, tuple[int, ...]] = {}
        self._stands_for: dict[int, tuple[int, ...]] = {}
        self.relativised: set[int] = set()
        """Clauses with a relative pronoun or adverb."""
        self._resolve_pronouns()

    def is_object(self, token: int) -> bool:
        """Return whether the token heads an object."""
        return token in self._object

    def named(self, tokens: Iterable[int]) -> tuple[int, ...]:
        """Return the objects that nouns head and that pronouns stand for."""
        found: list[int] = []
        for token in tokens:
            found += [self._object[token]] if token in self._object else self._stands_for.get(token, ())
        return tuple(found)

    def members(self, token: int) -> list[int]:
        """Return a noun with those conjoined to it, ascending; at most GROUP_SIZE."""
        found, waiting = [token], [token]
        while waiting and len(found) < GROUP_SIZE:
            for conjunct in self._tree.children_with(waiting.pop(), ("conj",)):
                if not self._tree.is_predicate(conjunct):
                    found.append(conjunct)
                    waiting.append(conjunct)
        return sorted(found)[:GROUP_SIZE]

    def things(self, token: int) -> tuple[int, ...]:
        """Return the objects that a noun and those conjoined to it name."""
        return self.named(self.members(token))

    def modified(self, noun: int, modifier: int) -> list[int]:
        """Return the conjoined nouns that a phrase or clause behind one of them belongs to.

        These are all if it hangs on the first and stands behind the last ("[man and woman] with a dog"), or hangs on a
        later one without a determiner of its own ("a [man and woman] with a dog").
        """
        tree, first = self._tree, noun
        while tree.labels[first] == "conj" and self.is_object(tree.heads[first]):
            first = tree.heads[first]
        group = self.members(first)
        if modifier < noun or noun not in group:
            return [noun]
        if noun == first:
            return group if group[-1] < modifier else [noun]
        if tree.has_child(noun, OWN_DETERMINERS):
            return [noun]
        return [member for member in group if member <= noun]

    def subjects(self, predicate: int) -> tuple[int, ...]:
        """Return the objects of which a word is said, its own subjects or those of the clause that it continues."""
        path, token = [], predicate
        while token not in self._subjects:
            path.append(token)
            nouns = self._subject_tokens(token)
            if nouns is not None:
                self._subjects[token] = self.named(nouns)
                break
            token = self._tree.heads[token]
        found = self._subjects[token]
        self._subjects.update(dict.fromkeys(path, found))
        return found

    def _subject_tokens(self, token: int) -> list[int] | None:
        """Return the nouns and pronouns that are the subject of a word; None if it has that of its head."""
        tree = self._tree
        own = tree.children_with(token, SUBJECTS)
        if own:
            return [member for subject in own for member in self.members(subject)]
        head, label = tree.heads[token], tree.labels[token]
        if head < 0 or label in SUBJECTS:
            return []
        if label in _RELATIVE_CLAUSES or label == "amod":
            return [] if self._is_infinitive(token) else self.modified(head, token)
        if label == "xcomp":
            objects = [member for child in tree.children_with(head, OBJECTS) for member in self.members(child)]
            return objects or None
        if self.is_object(head) and not tree.is_clause(head):
            return self.modified(head, token)
        return None

    def _is_infinitive(self, token: int) -> bool:
        tree = self._tree
        to = any(tree.words[child] == "to" for child in tree.children_with(token, ("mark", "aux")))
        return to or "VerbForm=Inf" in tree.features[token]

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
        tree, clause = self._tree, token
        while clause >= 0 and tree.labels[clause] not in _RELATIVE_CLAUSES:
            clause = tree.heads[clause]
        if clause < 0 or tree.heads[clause] < 0:
            return
        self.relativised.add(clause)
        if tree.upos[token] in ("PRON", "DET"):
            nouns = self.modified(tree.heads[clause], clause)
            self._stands_for[token] = self.named(nouns)

    def _is_reciprocal(self, token: int) -> bool:
        words, partners = self._tree.words, _RECIPROCAL.get(self._tree.words[token], ())
        return partners != () and any(words[c] in partners for c in self._tree.children_with(token, ("fixed", "det")))

    def _subjects_of_clause(self, token: int) -> tuple[int, ...]:
        tree, head = self._tree, token
        if tree.labels[head] in SUBJECTS:
            return ()
        while tree.heads[head] >= 0 and not tree.is_predicate(head):
            head = tree.heads[head]
        while (nouns := self._subject_tokens(head)) is None:
            head = tree.heads[head]
        return self.named(nouns)

    def _resolve_personal(self, token: int) -> None:
        """A pronoun stands for the one object before it in its sentence that agrees with it, or for none."""
        tree = self._tree
        word = tree.words[token]
        if word in LEXICON["reflexive"] or self._is_reciprocal(token):
            self._stands_for[token] = self._subjects_of_clause(token)
            return
        if word not in _PERSONAL:
            return
        excluded: set[int] = set()
        if tree.labels[token] != "nmod:poss":
            own = self.named([tree.heads[token]])
            # "A desk has a lamp on it", but "a man looks at him".
            excluded.update(own or self._subjects_of_clause(token))
        before = [
            noun
            for index, noun in enumerate(self._heads)
            if noun < token and index not in excluded and tree.sentences[noun] == tree.sentences[token]
        ]
        antecedents = self._plural(before, token) if word in LEXICON["they"] else self._singular(before, word, token)
        self._stands_for[token] = tuple(self._object[noun] for noun in antecedents)

    def _plural(self, before: list[int], token: int) -> list[int]:
        """Return the only plural noun or the only enumeration; failing these the only person."""
        candidates: list[list[int]] = []
        grouped: set[int] = set()
        for noun in before:
            if noun not in grouped:
                group = [member for member in self.members(noun) if member < token and member in before]
                grouped.update(group)
                if len(group) > 1 or self._is_plural(noun):
                    candidates.append(group)
        lemmas = self._tree.lemmas
        persons = [[noun] for noun in before if is_person(lemmas[noun])]
        if persons:  # "they" are persons rather than what these have or wear
            candidates = [group for group in candidates if any(is_person(lemmas[noun]) for noun in group)] or persons
        return candidates[0] if len(candidates) == 1 else []

    def _singular(self, before: list[int], word: str, token: int) -> list[int]:
        """Return the only noun of the likeliest kind: "he" is a person rather than an animal or thing."""
        lemmas = self._tree.lemmas
        singular = [noun for noun in before if not self._is_plural(noun)]
        if word in LEXICON["it"]:
            agreeing = [noun for noun in singular if not is_person(lemmas[noun]) or lemmas[noun] in LEXICON["young"]]
        else:
            other = is_female if word in LEXICON["he"] else is_male
            agreeing = [noun for noun in singular if not other(lemmas[noun])]
        tiers = [agreeing]
        # Ownership of a part ("its tail") is told of animals rather than of things.
        if word not in LEXICON["it"] or self._tree.labels[token] == "nmod:poss":
            tiers.insert(0, [noun for noun in agreeing if lemmas[noun] in LEXICON["animals"]])
        if word not in LEXICON["it"]:
            tiers.insert(0, [noun for noun in agreeing if is_person(lemmas[noun])])
        first = next(filter(None, tiers), [])
        return first if len(first) == 1 else []

    def _is_plural(self, noun: int) -> bool:
        tree = self._tree
        if "Number=Plur" in tree.features[noun] or tree.has_child(noun, {"quantifier"}):
            return True
        return any(tree.lemmas[child] not in ("one", "1") for child in tree.children_with(noun, ("nummod",)))
