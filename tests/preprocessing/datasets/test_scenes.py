"""The generated scenes: determinism, separate splits, five different captions, each true of the image."""

import hashlib
import io
import re
from itertools import pairwise

import numpy as np
import pytest
from PIL import Image

from preprocessing.datasets import DatasetError, build_dataset
from preprocessing.datasets.scenes import parse_scene_uri, render_scene
from preprocessing.datasets.scenes.captions import caption_scene
from preprocessing.datasets.scenes.layout import Scene, compose_scene

DEV, TEST = 10**9, 2 * 10**9

# The golden digests: pixels, file and captions of these scenes must never change without a reason given.
GOLDEN_SCENES = ((0, 0), (0, 1), (7, 123), (0, DEV), (2**64 - 1, TEST + 999_999_999))
GOLDEN_PIXELS = "4e8de177860f51fb0ad3390447efc98331ae901b92692fc778eda9d2d44129cf"
GOLDEN_FILES = "f368611bb52ee47a934984beaa65ea4ae06cfe4a0e7278ff4840b6c7b18d19d3"
GOLDEN_CAPTIONS = "429fd7ad2fa711c1107df1bf4c719e9e74bd0580680f6c42da0fe998e9951e7a"

SHAPES = {"disc": "circle", "plus sign": "cross"} | {
    name: name for name in ("circle", "square", "triangle", "star", "cross", "ring", "diamond", "heart")
}
SIZES = {"small": "small", "little": "small", "big": "big", "large": "big"}
TEXTURES = {"striped": "striped", "stripy": "striped", "dotted": "dotted", "spotted": "dotted"}
COLOURS = ("red", "orange", "yellow", "green", "blue", "pink", "white", "black")
NOUN = re.compile(
    rf"\b(?:an?|the) (?:({'|'.join(SIZES)}) )?(?:({'|'.join(TEXTURES)}) )?({'|'.join(COLOURS)}) ({'|'.join(SHAPES)})\b"
)
# Words between two noun phrases -> where the first is, seen from the second.
BETWEEN = {
    "left": ("to the left of", "left of", "on the left side of"),
    "right": ("to the right of", "right of", "on the right side of"),
    "above": ("above", "over"),
    "below": ("below", "under", "beneath"),
    "inside": ("inside", "within"),
    "around": ("around", "surrounding"),
}
# Words after "{A} with {B}" -> where B is, seen from A.
AFTER = {"to its left": "left", "to its right": "right"} | {
    f"{w} it": w for w in ("above", "below", "inside", "around")
}
ROWS, COLUMNS = {"top": 0, "bottom": 2}, {"left": 0, "right": 2}


def pixels_of(seed: int, index: int) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(render_scene(seed, index))))


def digest(parts: list[bytes]) -> str:
    return hashlib.sha256(b"".join(parts)).hexdigest()


def test_golden_pixels_files_and_captions() -> None:
    assert digest([pixels_of(*scene).tobytes() for scene in GOLDEN_SCENES]) == GOLDEN_PIXELS
    assert digest([render_scene(*scene) for scene in GOLDEN_SCENES]) == GOLDEN_FILES
    texts = ["\n".join(caption_scene(compose_scene(*scene))).encode() for scene in GOLDEN_SCENES]
    assert digest(texts) == GOLDEN_CAPTIONS


def test_an_image_does_not_depend_on_how_many_are_asked_for() -> None:
    few = list(build_dataset("scenes", seed=4, images={"train": 3, "dev": 2}).records("train"))
    many = list(build_dataset("scenes", seed=4, images={"train": 20}).records("train"))
    assert few == many[:3]
    assert [record.image_uri for record in few] == [f"scene://4/{k}" for k in range(3)]
    assert len({record.image_id for record in many}) == 20
    assert build_dataset("scenes", seed=4, images={"train": 3}).root == ""


def composition(scene: Scene) -> tuple[object, ...]:
    words = [item.words for item in scene.objects]
    relations = sorted((words[r.subject], r.predicate, words[r.target]) for r in scene.relations)
    return (tuple(sorted(words)), tuple(relations), scene.place)


def test_splits_share_no_composition_even_across_seeds() -> None:
    train = {composition(compose_scene(seed, k)) for seed in (0, 1) for k in range(1500)}
    dev = {composition(compose_scene(0, DEV + k)) for k in range(800)}
    test = {composition(compose_scene(1, TEST + k)) for k in range(800)}
    assert not train & dev
    assert not train & test
    assert not dev & test
    # The guard means something only where compositions do recur, as those of single objects must.
    assert len(train) < 3000


def truth(scene: Scene) -> dict[tuple[int, int], str]:
    """Return the position of object i relative to object j, read from the centres: without `scene.relations`."""
    found = {}
    for i, a in enumerate(scene.objects):
        for j, b in enumerate(scene.objects):
            dx, dy = b.x - a.x, b.y - a.y
            if i == j:
                continue
            if (dx, dy) == (0, 0):
                found[i, j] = "inside" if a.radius < b.radius else "around"
            elif abs(dy) <= 12 and abs(dx) > 30:
                found[i, j] = "left" if dx > 0 else "right"
            elif abs(dx) <= 12 and abs(dy) > 30:
                found[i, j] = "above" if dy > 0 else "below"
    return found


def object_of(match: re.Match[str], scene: Scene) -> int:
    """The only object of the scene that a noun phrase fits."""
    size, texture, colour, shape = match.groups()
    fitting = [
        k
        for k, item in enumerate(scene.objects)
        if item.colour == colour
        and item.shape == SHAPES[shape]
        and size in (None, *[word for word, meaning in SIZES.items() if meaning == item.size])
        and texture in (None, *[word for word, meaning in TEXTURES.items() if meaning == item.texture])
    ]
    assert len(fitting) == 1, match[0]
    return fitting[0]


def check_caption(text: str, scene: Scene) -> bool:
    """Every claim of the caption holds; returns whether it tells a relation."""
    matches = list(NOUN.finditer(text[0].lower() + text[1:]))
    named = [object_of(match, scene) for match in matches]
    assert len(set(named)) == len(named) >= 1
    lower = text[0].lower() + text[1:]
    if " background" in lower:
        assert f"on a {scene.background} background" in lower
    told = False
    for (a, first), (b, second) in pairwise(zip(named, matches, strict=True)):
        between = lower[first.end() : second.start()].strip().removeprefix("is ").strip()
        tail = lower[second.end() :].strip(" .")
        if between == "with":
            (words,) = [words for words in AFTER if tail.startswith(words)]
            assert truth(scene)[b, a] == AFTER[words], text
            told = True
        elif between in (phrase for phrases in BETWEEN.values() for phrase in phrases):
            (meaning,) = [key for key, phrases in BETWEEN.items() if between in phrases]
            assert truth(scene)[a, b] == meaning, text
            told = True
        else:
            for words in AFTER:
                between = between.removeprefix(words)
            assert between in {",", "and", "and there is also", ", together with", ", and"}, text
    return told


def check_single(text: str, scene: Scene) -> None:
    assert scene.place is not None
    row, column = (next((v for k, v in names.items() if k in text), 1) for names in (ROWS, COLUMNS))
    if any(word in text for word in ("corner", "at the", "on the left", "on the right", "middle")):
        assert (row, column) == scene.place, text
        item = scene.objects[0]
        assert (item.y // 43, item.x // 43) == scene.place


@pytest.mark.parametrize("start", [0, DEV, TEST])
def test_captions_are_five_different_and_true(start: int) -> None:
    relations_told = 0
    for index in range(start, start + 400):
        scene = compose_scene(11, index)
        captions = caption_scene(scene)
        assert len(set(captions)) == len(captions) == 5
        told = [check_caption(text, scene) for text in captions]
        if len(scene.objects) == 1:
            assert not any(told)
            for text in captions:
                check_single(text, scene)
        else:
            assert sum(told) == 4, captions
        assert any(scene.background in text for text in captions)
        relations_told += sum(told)
    assert relations_told > 1000


def test_stated_relations_agree_with_the_centres() -> None:
    names = {"left of": "left", "above": "above", "inside": "inside"}
    for index in range(500):
        scene = compose_scene(2, index)
        plain = truth(scene)
        for relation in scene.relations:
            assert plain[relation.subject, relation.target] == names[relation.predicate]
        assert len(scene.relations) * 2 == len(plain)


def test_uris_round_trip() -> None:
    assert parse_scene_uri(f"scene://7/{DEV + 3}") == (7, DEV + 3)
    for wrong in ("scene://", "scene://1", "scene://1/x", "scene://1/2/3", "scene://-1/2", "scene://1/2#3", "/a.jpg"):
        with pytest.raises(ValueError, match="is not scene://SEED/INDEX"):
            parse_scene_uri(wrong)


@pytest.mark.parametrize(("seed", "index"), [(-1, 0), (2**64, 0), (0, -1), (0, 3 * 10**9)])
def test_numbers_out_of_range_are_refused(seed: int, index: int) -> None:
    with pytest.raises(ValueError, match="is outside 0"):
        compose_scene(seed, index)


def test_wrong_split_is_refused() -> None:
    with pytest.raises(DatasetError, match="split 'val' is none of train, dev, test"):
        build_dataset("scenes", seed=0, images={"val": 1})
