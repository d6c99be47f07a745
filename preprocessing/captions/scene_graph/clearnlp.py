"""From the dependency labels of spaCy's own English models (those of ClearNLP) to Universal Dependencies."""

from preprocessing.captions.scene_graph.lexicon import word_set
from preprocessing.captions.scene_graph.tree import RENAMED, Tree

# Labels that only spaCy's scheme has. A parse with none of them reads the same in both schemes.
_OWN_LABELS = word_set(
    "acomp agent attr auxpass csubjpass dative dobj npadvmod nsubjpass oprd pcomp pobj poss preconj predet prep prt "
    "quantmod relcl"
)
_NOMINAL = frozenset({"NOUN", "PROPN", "PRON", "NUM", "ADP"})
_PREPOSITIONAL = frozenset({"prep", "agent", "dative"})


def to_universal(tree: Tree) -> None:
    """Give a parse in spaCy's scheme the heads and labels of Universal Dependencies; leave any other as it is.

    Prepositions hang on their nouns afterwards. "be" stays a head: the rules read what hangs on it as they read a
    predicate with a copula.
    """
    if _OWN_LABELS.isdisjoint(tree.labels):
        return
    tree.subtyped = True
    _split_small_clauses(tree)
    successors = _complements(tree)
    labels = [RENAMED.get(label, label) for label in tree.labels]
    for token, label in enumerate(tree.labels):
        if label in _PREPOSITIONAL and (token in successors or label != "dative"):
            labels[token] = _oblique(tree, token)
        elif label == "attr" and tree.heads[token] >= 0 and tree.child(tree.heads[token], "expl") is not None:
            labels[token] = "nsubj"
    tree.labels = labels
    tree.promote(successors)


def _split_small_clauses(tree: Tree) -> None:
    """Make the dog of "sees [a dog run]" the object of "sees", as in Universal Dependencies."""
    for token, label in enumerate(tree.labels):
        if label != "ccomp" or tree.upos[token] != "VERB" or tree.child(token, "mark", "aux", "auxpass") is not None:
            continue
        subject, head = tree.child(token, "nsubj"), tree.heads[token]
        finite = "VerbForm=Fin" in tree.features[token]
        if subject is None or head < 0 or finite or not head < subject or tree.child(head, "dobj") is not None:
            continue
        tree.heads[subject], tree.labels[subject], tree.labels[token] = head, "dobj", "xcomp"
    tree.link()


def _complements(tree: Tree) -> dict[int, tuple[int, str]]:
    """Return for each preposition the child that it introduces, as whose case it is read."""
    successors = {}
    for token, label in enumerate(tree.labels):
        if label not in _PREPOSITIONAL and tree.upos[token] != "ADP":
            continue
        complement = tree.child(token, "pobj", "pcomp")
        # "out of the window": the second preposition hangs on the first.
        complement = tree.child(token, "prep") if complement is None else complement
        if complement is not None:
            successors[token] = complement, "case"
    return successors


def _oblique(tree: Tree, token: int) -> str:
    if tree.labels[token] == "agent":
        return "obl:agent"
    head = tree.heads[token]
    return "nmod" if head >= 0 and tree.upos[head] in _NOMINAL else "obl"
