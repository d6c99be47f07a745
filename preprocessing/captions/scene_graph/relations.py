"""Relations between the objects of a caption."""

from preprocessing.captions.graph import Relation
from preprocessing.captions.scene_graph.arguments import OBJECTS, Arguments
from preprocessing.captions.scene_graph.lexicon import LEXICON
from preprocessing.captions.scene_graph.objects import is_absent, is_denied, is_sport
from preprocessing.captions.scene_graph.tree import OBLIQUES, SUBJECTS, Tree

_NO_VERB = frozenset({"aux", "aux:pass", "cop", "case", "mark", "fixed", "compound", "flat", "cc", "amod"})
_PAST_PARTICIPLE = frozenset({"VerbForm=Part", "Tense=Past"})
_PARTICLES = frozenset({"obl", "nmod", "advmod", "compound:prt"})


def find_relations(tree: Tree, arguments: Arguments) -> tuple[Relation, ...]:
    """Return the relations between the objects of a caption, each once, never of an object to itself."""
    finder = _Finder(tree, arguments)
    for token, upos in enumerate(tree.upos):
        is_verb = upos in ("VERB", "AUX")  # only a verb may have its subject and objects from another one
        if not (is_verb or tree.children[token]) or is_denied(tree, token):
            continue
        if is_verb:
            label = tree.labels[token]
            if label not in _NO_VERB or (label == "amod" and tree.children[token]):
                finder.verb(token)
        elif upos in ("ADJ", "ADV") and not arguments.is_object(token):
            finder.property(token)
        elif tree.is_clause(token):
            finder.nominal_predicate(token)
        if arguments.is_object(token):
            finder.noun(token)
    return tuple(finder.found.values())


class _Finder:
    """Gathers relations; ``found`` holds them by subject, object and base form."""

    def __init__(self, tree: Tree, arguments: Arguments) -> None:
        self._tree = tree
        self._arguments = arguments
        self.found: dict[tuple[int, int, str], Relation] = {}

    def verb(self, token: int) -> None:
        """A verb between its subject, its objects and its obliques."""
        tree, arguments = self._tree, self._arguments
        subjects = arguments.subjects(token)
        objects, obliques, agents = self._dependents(token)
        words = self._verb_words(token)
        for agent in agents:
            self._add_all(arguments.things(agent), subjects, words)
        gap = self._gap(token)
        for target in objects:
            self._add_all(subjects, arguments.things(target), words)
        self._add_all(subjects, gap, words)
        for target in () if objects else tree.children_with(token, ("xcomp",)):
            if tree.is_noun(target):
                self._oblique(subjects, words, target)
        if obliques:
            # With an object the verb relates subject and object, and what is left to the oblique is its preposition.
            takes_other = any(tree.words[c] not in LEXICON["reflexive"] for c in objects)
            before = [] if takes_other or gap or self._is_existential(token) else words
            for target in obliques:
                self._oblique(subjects, before, target)
        self._absolute(token)

    def property(self, token: int) -> None:
        """An adjective or adverb with an oblique: "asleep on the floor" sets its subject "on" the floor."""
        for child in self._tree.children_with(token, OBLIQUES):
            self._oblique(self._arguments.subjects(token), [], child)
        self._absolute(token)

    def nominal_predicate(self, token: int) -> None:
        """A noun said of a subject: "is a pianist", "is on a bike"."""
        subjects = self._arguments.subjects(token)
        copulas = self._tree.children_with(token, ("cop",))[:1]
        self._oblique(subjects, [], token, without_case=copulas)
        for child in self._tree.children_with(token, ("obl",)):
            self._oblique(subjects, [], child)
        self._absolute(token)

    def noun(self, token: int) -> None:
        """Relate an object to its possessions, and to the noun of a preposition behind it."""
        tree, arguments = self._tree, self._arguments
        for child in tree.children[token]:
            label = tree.labels[child]
            if label == "nmod:poss":
                for owner in arguments.things(child):
                    for thing in arguments.named(self._owned(token, child)):
                        self._relate(owner, thing, "have", "have")
            elif label == "nmod" or (label == "obl" and not tree.is_clause(token)):
                self._oblique(arguments.named(arguments.modified(token, child)), [], child)

    def _dependents(self, token: int) -> tuple[list[int], list[int], list[int]]:
        """Return a verb's objects, obliques and agents; those behind the last of conjoined verbs belong to all."""
        tree = self._tree
        objects, obliques = tree.children_with(token, OBJECTS), tree.children_with(token, OBLIQUES)
        agents = tree.children_with(token, ("obl:agent",))
        if not agents and not tree.subtyped and self._is_passive(token):
            agents = [c for c in obliques if [tree.lemmas[case] for case in tree.case_words(c)] == ["by"]]
            obliques = [c for c in obliques if c not in agents]
        head = tree.heads[token]
        if head >= 0 and tree.labels[token] == "conj" and not objects and not obliques:
            objects, obliques = (
                [child for child in tree.children_with(head, kind) if child > token] for kind in (OBJECTS, OBLIQUES)
            )
        objects = [c for c in objects if not (is_absent(tree, c) or is_sport(tree, c))]
        return objects, obliques, agents

    def _is_passive(self, token: int) -> bool:
        """For parsers without subtypes: a past participle with "be" or without an auxiliary."""
        tree = self._tree
        if not tree.features[token] >= _PAST_PARTICIPLE:
            return False
        auxiliaries = [tree.lemmas[c] for c in tree.children_with(token, ("aux",))]
        return not auxiliaries or auxiliaries[-1] in ("be", "get")

    def _verb_words(self, token: int) -> list[int]:
        tree = self._tree
        particles = tree.children_with(token, _PARTICLES)
        return [token, *(c for c in particles if tree.labels[c] == "compound:prt" or tree.upos[c] == "ADP")]

    def _is_existential(self, token: int) -> bool:
        """Return whether a verb only says that something is there: "there is a man on a bike"."""
        return self._tree.lemmas[token] == "be" or self._tree.has_child(token, ("expl",))

    def _gap(self, token: int) -> tuple[int, ...]:
        """Return the noun that a relative clause has for object: "the ball [that] the dog chases"."""
        tree, arguments = self._tree, self._arguments
        if tree.has_child(token, ("obj", "xcomp")):
            return ()
        clause = token
        while tree.labels[clause] == "xcomp" and tree.heads[clause] >= 0:
            clause = tree.heads[clause]
        noun = tree.heads[clause]
        relative = tree.labels[clause] == "acl:relcl" or (tree.labels[clause] == "acl" and not tree.subtyped)
        if noun < 0 or not relative or clause in arguments.relativised:
            return ()
        if not tree.has_child(clause, SUBJECTS) or tree.has_child(clause, {"mark"}):
            return ()
        return arguments.named(arguments.modified(noun, clause))

    def _owned(self, noun: int, owner: int) -> list[int]:
        """Return the noun with those conjoined to it that have no determiner: "the man's [hat and coat]"."""
        tree = self._tree
        if owner > noun:
            return [noun]
        rest = [m for m in self._arguments.members(noun) if m != noun and not tree.has_child(m, {"det", "nmod:poss"})]
        return [noun, *rest]

    def _absolute(self, token: int) -> None:
        """Read "with a ball in its mouth" as a clause: its subject is with the one of whom all is said."""
        tree, arguments = self._tree, self._arguments
        head, marks = tree.heads[token], tree.children_with(token, ("mark",))
        marks = [child for child in marks if tree.lemmas[child] == "with"] if marks else []
        if head < 0 or not marks:
            return
        if tree.labels[token] == "acl" or not tree.is_predicate(head):
            holders = arguments.named(arguments.modified(head, token))
        else:
            holders = arguments.subjects(head)
        self._add_all(holders, arguments.subjects(token), marks[:1])

    def _oblique(
        self, subjects: tuple[int, ...], before: list[int], target: int, without_case: list[int] | None = None
    ) -> None:
        """Relate subjects to a noun and those conjoined to it by its preposition; each may have one of its own.

        The tokens ``before`` precede the preposition; without one ``without_case``, or else they, are the relation.
        """
        shared = self._tree.case_words(target)
        for member in self._arguments.members(target):
            case = (member != target and self._tree.case_words(member)) or shared
            words = before + case if case or without_case is None else without_case
            self._add_all(subjects, self._arguments.named([member]), words)

    def _add_all(self, subjects: tuple[int, ...], objects: tuple[int, ...], tokens: list[int]) -> None:
        if subjects and objects and tokens:
            words = " ".join(map(self._tree.words.__getitem__, tokens))
            lemma = " ".join(map(self._tree.lemmas.__getitem__, tokens))
            for subject in subjects:
                for thing in objects:
                    self._relate(subject, thing, words, lemma)

    def _relate(self, subject: int, thing: int, words: str, lemma: str) -> None:
        if subject != thing:
            self.found.setdefault((subject, thing, lemma), Relation(subject, thing, words, lemma))
