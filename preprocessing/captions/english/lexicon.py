"""Words for sentences that sound like captions, by kind, and their inflection."""

from __future__ import annotations

from pathlib import Path


def _read(path: Path) -> dict[str, list[str]]:
    lists: dict[str, list[str]] = {}
    body: dict[str, str] = {}
    name = ""
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            name = line.strip("[]")
            body[name] = ""
        elif not line.startswith("#"):
            body[name] = body.get(name, "") + " " + line
    for name, text in body.items():
        entries = text.split("|") if "|" in text else text.split()
        lists[name] = [" ".join(entry.split()) for entry in entries]
    return lists


_LISTS = _read(Path(__file__).with_suffix(".txt"))
PEOPLE = _LISTS["people"]
COMMON_PEOPLE = _LISTS["common_people"]
COMPOUND_PEOPLE = _LISTS["compound_people"]
ANIMALS = _LISTS["animals"]
COMMON_ANIMALS = _LISTS["common_animals"]
CLOTHES = _LISTS["clothes"]
CLOTHES_PLURAL = _LISTS["clothes_plural"]
COMPOUND_CLOTHES = _LISTS["compound_clothes"]
COMPOUND_CLOTHES_PLURAL = _LISTS["compound_clothes_plural"]
THINGS = _LISTS["things"]
COMPOUND_THINGS = _LISTS["compound_things"]
FOOD = _LISTS["food"]
DRINKS = _LISTS["drinks"]
VEHICLES = _LISTS["vehicles"]
COMPOUND_VEHICLES = _LISTS["compound_vehicles"]
RIDEABLE = _LISTS["rideable"]
FURNITURE = _LISTS["furniture"]
STRUCTURES = _LISTS["structures"]
PLACES_IN = _LISTS["places_in"]
PLACES_ON = _LISTS["places_on"]
PLACES_AT = _LISTS["places_at"]
COMPOUND_PLACES = _LISTS["compound_places"]
PATHS = _LISTS["paths"]
MASSES = _LISTS["masses"]
SPORTS = _LISTS["sports"]
INSTRUMENTS = _LISTS["instruments"]
BODY = _LISTS["body"]
COLORS = _LISTS["colors"]
PERSON_ADJECTIVES = _LISTS["person_adjectives"]
ANIMAL_ADJECTIVES = _LISTS["animal_adjectives"]
THING_ADJECTIVES = _LISTS["thing_adjectives"]
PLACE_ADJECTIVES = _LISTS["place_adjectives"]
MATERIALS = frozenset(_LISTS["materials"])
GERUND_ADJECTIVES = _LISTS["gerund_adjectives"]
NUMERALS = _LISTS["numerals"]
QUANTIFIER_NOUNS = _LISTS["quantifier_nouns"]
MOTION = _LISTS["motion"]
POSTURE = _LISTS["posture"]
ACTIVITY = _LISTS["activity"]
CONTROL = _LISTS["control"]
PREPOSITIONAL = _LISTS["prepositional"]
PHRASAL = _LISTS["phrasal"]
ADVERBIAL = _LISTS["adverbial"]
PASSIVE = _LISTS["passive"]
PARTS = _LISTS["parts"]
PLACE_PREPOSITIONS = _LISTS["place_prepositions"]
PATH_PREPOSITIONS = _LISTS["path_prepositions"]
DIRECTIONS = _LISTS["directions"]
MANNERS = _LISTS["manners"]
BARE_PLACES = frozenset(_LISTS["bare_places"])
PLACES_IN_THE_PLURAL = frozenset(_LISTS["places_in_the_plural"])
ADJECTIVES_IN_COMPOUNDS = frozenset(_LISTS["adjectives_in_compounds"])
BALLS = _LISTS["balls"]
OBSTACLES = _LISTS["obstacles"]
TRICKS = _LISTS["tricks"]
EVENTS = _LISTS["events"]
OPENINGS = _LISTS["openings"]
CAMERAS = _LISTS["cameras"]
DECORATIONS = _LISTS["decorations"]
CONTAINERS = _LISTS["containers"]
PICTURES = _LISTS["pictures"]
PARTICIPLES_HANGING = _LISTS["participles_hanging"]
PARTICIPLES_HELD = _LISTS["participles_held"]
TIMES = _LISTS["times"]
SIZES = _LISTS["sizes"]
EVALUATIONS = _LISTS["evaluations"]

# First part, its tag, second part, its tag, lemma of the second.
HYPHENATED_PERSON = (
    ("long", "JJ", "haired", "JJ", "haired"),
    ("dark", "JJ", "haired", "JJ", "haired"),
    ("red", "JJ", "haired", "JJ", "haired"),
    ("middle", "JJ", "aged", "JJ", "aged"),
    ("dark", "JJ", "skinned", "JJ", "skinned"),
)
HYPHENATED_PLACE = (
    ("snow", "NN", "covered", "VBN", "cover"),
    ("tree", "NN", "lined", "VBN", "line"),
    ("leaf", "NN", "covered", "VBN", "cover"),
)
# The verbs, and the kinds of their objects (see templates.py).
TRANSITIVE = (
    ("hold carry grab lift take bring show examine inspect move drop raise", "thing food"),
    ("throw catch kick hit chase fetch bounce toss retrieve roll swing return", "ball"),
    ("wear model adjust remove", "clothes"),
    ("ride drive race steer mount board", "vehicle"),
    ("ride surf catch", "rideable"),
    ("eat cook prepare make bite serve share taste chew cut slice bake sell buy enjoy", "food"),
    ("drink sip pour", "drink"),
    ("play watch practice", "sport"),
    ("play hold", "instrument"),
    ("push pull move load unload drag park wash repair fix", "vehicle"),
    ("watch see hug kiss help follow face photograph greet chase lead teach tackle approach touch", "person"),
    ("pet feed walk watch chase lead wash brush hug train follow lick bite herd", "animal"),
    ("climb cross jump descend scale leave enter clean paint sweep leap", "place"),
    ("read write hold paint draw open fix", "thing"),
    ("raise lift stretch wave wash clap cross hold shake", "body"),
    ("perform do attempt practice try land", "trick"),
    ("fly hold", "kite"),
    ("blow pop chase", "bubbles"),
    ("take snap", "photo"),
    ("brush comb cut wash dry braid", "hair"),
    ("lick bite chew sniff carry shake catch tug grab", "thing"),
    ("clear jump leap", "obstacle"),
    ("make build destroy", "sandcastle"),
)

_IRREGULAR_PLURALS = {
    "man": "men", "woman": "women", "child": "children", "person": "people", "policeman": "policemen",
    "fisherman": "fishermen", "gentleman": "gentlemen", "businessman": "businessmen", "goose": "geese", "foot": "feet",
    "tooth": "teeth", "leaf": "leaves", "knife": "knives", "shelf": "shelves", "calf": "calves", "wolf": "wolves",
    "sheep": "sheep", "deer": "deer", "fish": "fish", "loaf": "loaves", "scarf": "scarves", "piano": "pianos",
    "photo": "photos", "video": "videos", "kangaroo": "kangaroos", "banjo": "banjos", "cello": "cellos",
    "life": "lives", "hoof": "hooves", "mouse": "mice", "half": "halves",
}  # fmt: skip
# Nouns whose only form is the plural; the lemma that English Web Treebank gives them.
PLURAL_ONLY = {
    "jeans": "jeans", "pants": "pants", "shorts": "shorts", "trousers": "trousers", "overalls": "overalls",
    "glasses": "glasses", "sunglasses": "sunglasses", "goggles": "goggles", "clothes": "clothes", "pajamas": "pajamas",
    "tights": "tights", "leggings": "leggings", "trunks": "trunks", "headphones": "headphones", "woods": "woods",
    "fatigues": "fatigues",
}  # fmt: skip
# Plurals that the treebank takes for lemmas of their own.
PLURAL_LEMMAS = {"person": "people"}
# Nouns that the lists hold in the plural.
PLURAL_OF_PAIRS = {
    "boots": "boot", "shoes": "shoe", "sandals": "sandal", "sneakers": "sneaker", "socks": "sock", "skates": "skate",
    "gloves": "glove", "slippers": "slipper", "earrings": "earring", "mittens": "mitten", "heels": "heel",
    "muffs": "muff",
}  # fmt: skip
# Past participles that are not regular.
_PARTICIPLES = {
    "run": "run", "ride": "ridden", "drive": "driven", "swim": "swum", "fly": "flown", "swing": "swung", "fall":
    "fallen", "go": "gone", "sit": "sat", "stand": "stood", "lie": "lain", "lay": "laid", "sleep": "slept", "hang":
    "hung", "bend": "bent", "eat": "eaten", "sing": "sung", "read": "read", "write": "written", "fight": "fought",
    "drink": "drunk", "dig": "dug", "spin": "spun", "hold": "held", "take": "taken", "bring": "brought", "show":
    "shown", "throw": "thrown", "catch": "caught", "hit": "hit", "wear": "worn", "make": "made", "bite": "bitten",
    "cut": "cut", "sell": "sold", "buy": "bought", "see": "seen", "lead": "led", "teach": "taught", "feed": "fed",
    "leave": "left", "sweep": "swept", "draw": "drawn", "shake": "shaken", "do": "done", "blow": "blown", "build":
    "built", "put": "put", "set": "set", "stick": "stuck", "get": "gotten", "come": "come", "light": "lit", "begin":
    "begun", "spread": "spread", "have": "had", "give": "given", "strike": "struck", "speak": "spoken", "dive":
    "dived", "leap": "leaped", "hide": "hidden", "find": "found", "lose": "lost", "keep": "kept", "be": "been",
    "let": "let", "beat": "beaten", "break": "broken", "ring": "rung", "shoot": "shot", "wind": "wound",
}  # fmt: skip
_VOWELS = "aeiou"
# Two syllables with the stress on the first: the last consonant is not doubled.
_NOT_DOUBLED = frozenset(
    {"cover", "enter", "follow", "gather", "linger", "listen", "open", "position", "travel", "visit", "wander"}
)


def plural(noun: str) -> str:
    """The plural of a noun."""
    if noun in PLURAL_ONLY:
        return noun
    if noun in _IRREGULAR_PLURALS:
        return _IRREGULAR_PLURALS[noun]
    return _with_s(noun)


def third_person(verb: str) -> str:
    """Third person singular of the present."""
    return {"have": "has", "be": "is"}.get(verb) or _with_s(verb)


def gerund(verb: str) -> str:
    """The form in -ing."""
    if verb.endswith("ie"):
        return verb[:-2] + "ying"
    if verb.endswith("e") and not verb.endswith(("ee", "oe", "ye")) and verb != "be":
        return verb[:-1] + "ing"
    return _doubled(verb) + "ing"


def participle(verb: str) -> str:
    """The past participle."""
    if verb in _PARTICIPLES:
        return _PARTICIPLES[verb]
    if verb.endswith("e"):
        return verb + "d"
    if verb.endswith("y") and verb[-2] not in _VOWELS:
        return verb[:-1] + "ied"
    return _doubled(verb) + "ed"


def _with_s(word: str) -> str:
    if word.endswith("y") and word[-2] not in _VOWELS:
        return word[:-1] + "ies"
    if word.endswith(("s", "x", "z", "ch", "sh")) or (word.endswith("o") and word[-2] not in _VOWELS):
        return word + "es"
    return word + "s"


def _doubled(verb: str) -> str:
    """With its last consonant doubled where that is a single one after a single vowel."""
    if len(verb) < 3 or verb in _NOT_DOUBLED or verb[-1] in _VOWELS + "wxy":
        return verb
    single = verb[-2] in _VOWELS and verb[-3] not in _VOWELS
    if verb.startswith("qu") and len(verb) == 4:
        single = True
    return verb + verb[-1] if single else verb
