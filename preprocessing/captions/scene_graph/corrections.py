"""Corrections of attachments that a statistical parser often gets wrong and that the nouns show to be wrong."""

from preprocessing.captions.scene_graph.lexicon import LEXICON, is_person
from preprocessing.captions.scene_graph.tree import NOUNS, OBLIQUES, SUBJECTS, Tree
from preprocessing.captions.wordnet.taxonomy import load_taxonomy

_OF_LIVING = frozenset({"dress", "seat", "clothe"})
_OF_NOUNS = frozenset({"cop", "det", "amod", "nummod", "case", "nmod:poss", "compound"})
_CASE = ("case",)
_CLAUSE = SUBJECTS | {"mark", "cop"}
_OTHER_CLAUSE = frozenset({"root", "parataxis", "advcl", "acl:relcl"})


def correct(tree: Tree) -> None:
    """Attach adjectives, participles, conjuncts and prepositional phrases to the nouns that they go with.

    Differs from the parse: in "a man in a hat and a boy" the boy is conjoined to the man; in "a dog by a man holding a
    stick" the man holds it, in "a man in a hat holding a stick" too; in "a boat on a river with hills in the
    background" the hills are there; in "a table full of food" the table is full; "a man in a suit jumps" jumps.
    """
    for token, word in enumerate(tree.words):
        if word == "in":
            _verb_behind_colours(tree, token)
        elif tree.labels[token] == "acl" and tree.upos[token] == "VERB":
            _place_taken_for_verb(tree, token)
    has_of = "of" in tree.lemmas
    for token, children in enumerate(tree.children):
        if children and tree.upos[token] in NOUNS:
            _verb_taken_for_noun(tree, token)
            _predicate_taken_for_noun(tree, token)
            if has_of:
                _of_noun_before(tree, token)
    for token, label in enumerate(tree.labels):
        if label in ("acl", "advcl"):
            if tree.upos[token] == "VERB":
                _participle(tree, token)
            elif tree.upos[token] == "ADJ":
                _adjective_behind(tree, token)
        elif tree.words[token] == "full":
            _adjective_behind(tree, token)
        elif label == "conj":
            _conjunct(tree, token)
        elif label in OBLIQUES:
            _place_of_companion(tree, token)


def is_living(tree: Tree, token: int) -> bool:
    """Return whether a noun names a person or an animal."""
    lemma = tree.lemmas[token]
    return tree.is_noun(token) and (is_person(lemma) or lemma in LEXICON["animals"])


def _is_worn(tree: Tree, token: int) -> bool:
    """Return whether a noun names clothes or a part of the body, which do nothing by themselves."""
    return load_taxonomy().is_body_part(tree.lemmas[token]) or _is_clothing(tree, token)


def _is_clothing(tree: Tree, token: int) -> bool:
    return load_taxonomy().same_or_kind_of(tree.lemmas[token], "clothing", "noun")


def _attach(tree: Tree, token: int, head: int, label: str) -> None:
    """Hang a token on another head, unless that is part of its own phrase."""
    above = head
    while above >= 0:
        if above == token:
            return
        above = tree.heads[above]
    tree.heads[token], tree.labels[token] = head, label
    tree.link()


def _noun_before(tree: Tree, token: int) -> int:
    """Return the noun that a phrase without comma follows directly, or -1."""
    return token - 1 if token and tree.is_noun(token - 1) else -1


def _living_above(tree: Tree, token: int) -> int:
    """Return the nearest person or animal before a noun on whom it depends in the same clause, or -1."""
    above = tree.heads[token]
    while above >= 0 and not is_living(tree, above):
        if tree.labels[above] in _OTHER_CLAUSE or tree.has_child(above, _CLAUSE):
            return -1
        above = tree.heads[above]
    return above if above < token else -1


def _verb_taken_for_noun(tree: Tree, token: int) -> None:
    """Make a verb of the plural in "a suit jumps", if the article belongs to the noun before it."""
    noun = token - 1
    if "Number=Plur" not in tree.features[token] or tree.upos[token] != "NOUN" or is_living(tree, token):
        return
    single = any(tree.words[c] in ("a", "an") for c in tree.children_with(token, ("det",)))
    if not single or tree.heads[noun] != token or tree.labels[noun] != "compound" or not _may_be_verb(tree, token):
        return
    for child in tree.children[token]:
        if child < noun:
            tree.heads[child] = noun
    head, label = tree.heads[token], tree.labels[token]
    tree.upos[token], tree.features[token] = "VERB", frozenset({"VerbForm=Fin"})
    if head < 0:
        tree.labels[noun] = "nsubj"
    else:
        tree.heads[noun], tree.labels[noun] = head, label
        while tree.heads[head] >= 0:
            head = tree.heads[head]
        tree.heads[token], tree.labels[token] = head, "conj" if tree.is_predicate(head) else "acl"
    tree.link()


def _verb_behind_colours(tree: Tree, case: int) -> None:
    """Make a verb of "play" in "men in white and red play soccer", which the parser takes for what is white and red.

    An article would tell a noun from it ("in a red race car"). The noun at the root is its subject, what it was
    compounded with its object, and what stands behind it hangs on it.
    """
    words, verb = tree.words, case + 1
    while verb < len(words) and (
        words[verb] in LEXICON["colours"] or (verb > case + 1 and words[verb] in (",", "and"))
    ):
        verb += 1
    host = tree.heads[case]
    if verb in (case + 1, len(words)) or words[verb] not in LEXICON["acts"] or host not in (verb, tree.heads[verb]):
        return
    wearer = tree.heads[host]
    root = wearer
    while root >= 0 and tree.heads[root] >= 0 and (tree.is_noun(root) or tree.labels[root] == "acl"):
        root = tree.heads[root]
    if root < 0 or not tree.is_noun(root) or tree.is_clause(root):
        return
    colour, old = case + 1, (wearer, root)
    tree.heads[colour], tree.labels[colour], tree.heads[case] = wearer, tree.labels[host], colour
    for token in range(colour + 1, verb):
        tree.heads[token] = colour
        tree.labels[token] = "flat" if words[token] in LEXICON["colours"] else tree.labels[token]
    tree.upos[verb], tree.features[verb] = "VERB", frozenset({"VerbForm=Fin"})
    tree.heads[verb], tree.labels[verb] = tree.heads[root], "root"
    tree.heads[root], tree.labels[root] = verb, "nsubj"
    for token in range(verb + 1, len(words)):
        if token == host:
            tree.heads[token], tree.labels[token] = verb, "obj"
        elif tree.heads[token] in (*old, verb) or (tree.heads[token] == host and token > host):
            tree.heads[token] = verb
            tree.labels[token] = "obl" if tree.labels[token] == "nmod" else tree.labels[token]
    tree.link()


def _place_taken_for_verb(tree: Tree, token: int) -> None:
    """Make a noun of the participle in "a restaurant setting": WordNet knows it as a place alone."""
    noun, taxonomy = token - 1, load_taxonomy()
    word, follows = tree.words[token], tree.is_noun(noun) and not tree.children[token]
    if not (follows and taxonomy.kinds(word) == {"noun"} and taxonomy.same_category(word, "place")):
        return
    tree.upos[token], tree.features[token], tree.lemmas[token] = "NOUN", frozenset({"Number=Sing"}), word
    tree.heads[token], tree.labels[token] = tree.heads[noun], tree.labels[noun]
    for child in tree.children[noun]:
        if child < noun:
            tree.heads[child] = token
    tree.heads[noun], tree.labels[noun] = token, "compound"
    tree.link()


def _may_be_verb(tree: Tree, token: int) -> bool:
    return "verb" in load_taxonomy().kinds(tree.lemmas[token])


def _adjective_behind(tree: Tree, token: int) -> None:
    """Hang an adjective on the noun that it directly follows: "a table full of food"."""
    before = _noun_before(tree, token)
    if before >= 0 and before != tree.heads[token]:
        _attach(tree, token, before, "acl")


def _participle(tree: Tree, token: int) -> None:
    """Hang a participle on the person or animal just before it, or on the one who wears what it hangs on."""
    if "VerbForm=Part" not in tree.features[token] or tree.has_child(token, _CLAUSE):
        return
    head, before = tree.heads[token], _noun_before(tree, token)
    if before >= 0 and tree.first_conjunct(before) != head:
        if is_living(tree, before) or _is_made_so(tree, token, before) or _acts(tree, before, token):
            _attach(tree, token, before, "acl")
    elif "Tense=Pres" in tree.features[token] and head >= 0 and _does_not(tree, head, token):
        owner = _living_above(tree, head)
        if owner >= 0:
            _attach(tree, token, owner, "acl")


def _does_not(tree: Tree, noun: int, verb: int) -> bool:
    """Return whether a noun cannot do this: clothes do nothing, and what does not live wears no hat."""
    return _is_worn(tree, noun) or (tree.lemmas[verb] in LEXICON["living_actions"] and not is_living(tree, noun))


def _acts(tree: Tree, noun: int, verb: int) -> bool:
    """Return whether it is the thing before it that does so: "a ball floating", "a sandwich with [cheese pouring]"."""
    if tree.lemmas[verb] in LEXICON["thing_actions"]:
        return not _is_worn(tree, noun)
    head = tree.heads[noun]
    beside = head >= 0 and tree.upos[head] == "NOUN" and not is_living(tree, head)
    return beside and any(tree.lemmas[c] == "with" for c in tree.children[noun])


def _is_made_so(tree: Tree, token: int, noun: int) -> bool:
    """Return whether a participle tells how the thing before it was made or placed: "a field covered in snow"."""
    return "Tense=Past" in tree.features[token] and tree.lemmas[token] not in _OF_LIVING and not _is_worn(tree, noun)


def _predicate_taken_for_noun(tree: Tree, token: int) -> None:
    """Make a verb of what has a subject but nothing that a noun has: "a man and a woman care for a child"."""
    is_predicate = tree.has_child(token, SUBJECTS) and not tree.has_child(token, _OF_NOUNS)
    if tree.upos[token] == "NOUN" and is_predicate and _may_be_verb(tree, token):
        tree.upos[token], tree.features[token] = "VERB", frozenset({"VerbForm=Fin"})


def _of_noun_before(tree: Tree, token: int) -> None:
    """Hang "of" with its noun on the noun directly before it: "a bottle of vodka"."""
    cases = tree.children_with(token, _CASE)
    if len(cases) != 1 or tree.lemmas[cases[0]] != "of" or tree.labels[token] == "conj":
        return
    before = _noun_before(tree, cases[0])
    if before >= 0 and before != tree.heads[token] and tree.labels[before] not in ("compound", "flat"):
        _attach(tree, token, before, "nmod")


def _conjunct(tree: Tree, token: int) -> None:
    """Conjoin a person or animal with the one before rather than with the clothes or the place of that one."""
    head = tree.heads[token]
    if head < 0 or not is_living(tree, token) or is_living(tree, head):
        return
    placed = any(tree.lemmas[c] in ("in", "on", "at") for c in tree.children_with(head, _CASE))
    partner = _living_above(tree, head) if placed or _is_worn(tree, head) else -1
    if partner >= 0:
        for child in tree.children_with(partner, ("nmod",)):
            if token + 1 in tree.children[child]:  # "and a woman in a hat": the hat is hers
                tree.heads[child] = token
        _attach(tree, token, partner, "conj")


def _place_of_companion(tree: Tree, token: int) -> None:
    """Hang a prepositional phrase on the noun just before it.

    "In the background" and parts of the body that are owned go to the noun of a "with"; "in a suit" goes to a person.
    """
    head, cases = tree.heads[token], tree.children_with(token, _CASE)
    before = _noun_before(tree, cases[0]) if head >= 0 and cases else -1
    if before < 0 or before == head:
        return
    if is_living(tree, before) and tree.lemmas[cases[0]] == "in" and _is_clothing(tree, token):
        _attach(tree, token, before, "nmod")
        return
    first = tree.first_conjunct(before)
    accompanies = tree.labels[first] in OBLIQUES and any(
        tree.lemmas[c] == "with" for c in tree.children_with(first, _CASE)
    )
    if first == head or not accompanies:
        return
    owned = tree.has_child(token, {"nmod:poss"}) and load_taxonomy().is_body_part(tree.lemmas[token])
    of_companion = owned and (tree.lemmas[token] == "mouth" or not is_living(tree, before))
    if of_companion or tree.lemmas[token] in LEXICON["backgrounds"]:
        _attach(tree, token, first, "nmod")
