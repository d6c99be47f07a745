"""A small training split, and the words that it gives."""

from preprocessing.captions.adversarial.lexicon import Lexicon
from preprocessing.captions.pools import Pools
from preprocessing.captions.relatedness import Relatedness
from tests.preprocessing.captions.markup import caption

NOUNS = ["dog", "cat", "owl", "apple", "umbrella", "car", "man", "boy", "table", "flower", "boat", "tree", "hat"]
PLURALS = {"man": "men"}
MASS = ["snow", "grass", "water", "hockey"]
ADJECTIVES = ["red", "old", "orange", "wooden", "snowy", "little", "small", "empty", "busy", "blue"]
VERBS = ["riding|ride", "holding|hold", "watching|watch", "sitting on|sit on", "carrying|carry"]
PREPOSITIONS = ["on", "under", "near", "behind", "inside", "with"]


def training_captions() -> list[str]:
    marked = []
    for i, noun in enumerate(NOUNS):
        adjective, verb = ADJECTIVES[i % len(ADJECTIVES)], VERBS[i % len(VERBS)]
        many, preposition = PLURALS.get(noun, noun + "s"), PREPOSITIONS[i % len(PREPOSITIONS)]
        marked.append(f"[a {{{adjective}}} {noun}] ({verb}) [the {noun}]")
        marked.append(f"[{{two#}} {many}|{noun}] ({preposition}) [{{{adjective}}} {many}|{noun}]")
    marked += [f"[the dog] (in) [{mass}]" for mass in MASS]
    marked += ["[a dog] (rides|ride) [a boat]", "[a dog] (holds|hold) [a hat]", "[a dog] (sees|see) [a hat]"]
    return marked * 4


def lexicon() -> Lexicon:
    return lexicon_of(training_captions())


def lexicon_of(marked: list[str]) -> Lexicon:
    captions = [caption(text) for text in marked]
    pools = Pools.build((c.graph for c in captions), 3, 3, 3)
    return Lexicon(captions, pools, Relatedness())
