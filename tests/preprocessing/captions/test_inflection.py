"""Forms of words: those of the library, and those that captions have instead."""

from preprocessing.captions.inflection import inflect


def test_verbs() -> None:
    forms = {
        verb: (inflect(verb, "VBZ"), inflect(verb, "VBG"), inflect(verb, "VBN")) for verb in ("ride", "lie", "ski")
    }
    assert forms == {
        "ride": ("rides", "riding", "ridden"),
        "lie": ("lies", "lying", "lain"),
        "ski": ("skis", "skiing", "skied"),
    }


def test_plurals() -> None:
    nouns = ("woman", "sheep", "person", "fish", "hockey", "groomsman")
    assert [inflect(noun, "NNS") for noun in nouns] == ["women", "sheep", "people", "fish", "hockey", "groomsmen"]
