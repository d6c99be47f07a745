"""Five different true captions of a scene, naming objects, attributes and relations in varied wording."""

import json
from collections.abc import Callable
from pathlib import Path

from preprocessing.datasets.scenes.layout import ABOVE, INSIDE, LEFT_OF, Draws, Relation, Scene, SceneObject

_CAPTION_STREAM = 1

# For each value of an attribute its words; "pronouns" end "{A} with {B} ...": where B is, seen from A.
_WORDS = json.loads(Path(__file__).with_name("words.json").read_bytes())

RIGHT_OF, BELOW, AROUND = "right of", "below", "around"
INVERSE = {LEFT_OF: RIGHT_OF, ABOVE: BELOW, INSIDE: AROUND}

Writer = Callable[[Scene, Draws], str]


def caption_scene(scene: Scene) -> tuple[str, ...]:
    """Return five different captions, each true of the image; a function of the scene's seed and index.

    Captions of a scene of one object tell its place or background, those of more objects their relations.
    """
    draws = Draws(scene.seed, scene.index, _CAPTION_STREAM)
    captions: list[str] = []
    for write in _SINGLE_WRITERS if len(scene.objects) == 1 else _GROUP_WRITERS:
        while (text := write(scene, draws)) in captions:
            pass
        captions.append(text)
    return tuple(f"{text[0].upper()}{text[1:]}." for text in captions)


def _name(item: SceneObject, draws: Draws, definite: bool = False, full: bool = False) -> str:
    """Return "a small striped red circle"; unless `full`, size and texture are left out now and then."""
    size = draws.choice(_WORDS["sizes"][item.size]) if full or draws.chance(80) else ""
    texture = draws.choice(_WORDS["textures"][item.texture]) if full or draws.chance(80) else ""
    words = [size, texture, item.colour, draws.choice(_WORDS["shapes"][item.shape])]
    phrase = " ".join(word for word in words if word)
    article = "the" if definite else "an" if phrase[0] in "aeiou" else "a"
    return f"{article} {phrase}"


def _relation(scene: Scene, draws: Draws) -> tuple[SceneObject, str, SceneObject, Relation]:
    """Draw one of the scene's relations in either direction: (A, predicate, B, the relation itself)."""
    relation = draws.choice(scene.relations)
    subject, target = scene.objects[relation.subject], scene.objects[relation.target]
    if draws.chance(50):
        return target, INVERSE[relation.predicate], subject, relation
    return subject, relation.predicate, target, relation


def _rest(scene: Scene, relation: Relation, draws: Draws) -> SceneObject | None:
    """Return, mostly, the object that a relation of a scene of three leaves out."""
    if len(scene.objects) < 3 or not draws.chance(70):
        return None
    left_out = {0, 1, 2} - {relation.subject, relation.target}
    return scene.objects[left_out.pop()]


def _related(text: str, with_rest: str, definite: bool = False) -> Writer:
    """Return a writer of captions that state one relation; `with_rest` adds a third object to the text."""

    def write(scene: Scene, draws: Draws) -> str:
        a, predicate, b, relation = _relation(scene, draws)
        words = draws.choice(_WORDS["relations"][predicate])
        first, second = _name(a, draws, definite), _name(b, draws, definite)
        told = text.format(a=first, words=words, b=second, background=scene.background)
        rest = _rest(scene, relation, draws)
        return told if rest is None else with_rest.format(text=told, rest=_name(rest, draws))

    return write


def _write_pronoun(scene: Scene, draws: Draws) -> str:
    a, predicate, b, relation = _relation(scene, draws)
    # B is told from A here, so the predicate of A towards B is turned around.
    turned = INVERSE | {after: before for before, after in INVERSE.items()}
    seen_from_a = _WORDS["pronouns"][turned[predicate]]
    start = draws.choice(("there is ", "we see ", ""))
    text = f"{start}{_name(a, draws)} with {_name(b, draws)} {seen_from_a}"
    rest = _rest(scene, relation, draws)
    return text if rest is None else f"{text}, and {_name(rest, draws)}"


def _write_list(scene: Scene, draws: Draws) -> str:
    items = draws.sample(scene.objects, len(scene.objects))
    names = [_name(item, draws, full=True) for item in items]
    start = draws.choice(("", "a picture of ", "a drawing of "))
    return f"{start}{', '.join(names[:-1])} and {names[-1]} on a {scene.background} background"


def _place(scene: Scene) -> str:
    assert scene.place is not None
    row, column = scene.place
    return str(_WORDS["places"][row][column])


_GROUP_WRITERS: tuple[Writer, ...] = (
    _related("{a} is {words} {b}", "{text} and there is also {rest}"),
    _related("{a} is {words} {b}", "in a picture with {rest}, {text}", definite=True),
    _write_pronoun,
    _write_list,
    _related("on a {background} background, {a} {words} {b}", "{text}, together with {rest}"),
)
_SINGLE_WRITERS: tuple[Writer, ...] = (
    lambda scene, draws: (
        f"there is {draws.choice(('', 'only '))}{_name(scene.objects[0], draws, full=True)} {_place(scene)}"
    ),
    lambda scene, draws: (
        f"{_name(scene.objects[0], draws)} {_place(scene)} of the {draws.choice(('picture', 'image'))}"
    ),
    lambda scene, draws: f"{_name(scene.objects[0], draws, full=True)} on a {scene.background} background",
    lambda scene, draws: f"{_name(scene.objects[0], draws)} and {draws.choice(('nothing else', 'no other shape'))}",
    lambda scene, draws: f"on a {scene.background} background, {_name(scene.objects[0], draws)} is {_place(scene)}",
)
