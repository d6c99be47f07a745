"""UniVSE's attacks: a wrong object, a wrong attribute or a wrong relation in a caption."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Literal, TypeVar

import numpy as np

from preprocessing.captions.adversarial.files import Adversarial
from preprocessing.captions.adversarial.grammar import article
from preprocessing.captions.adversarial.lexicon import ImageWords, Lexicon, verb_form
from preprocessing.captions.adversarial.sentence import (
    Edit,
    TokenizedCaption,
    different,
    find_words,
    frame_of,
    noun_span,
    relation_span,
    rewrite,
)
from preprocessing.captions.graph import Attribute, SceneObject
from preprocessing.randomness import UNIVSE_ATTACKS, attack_rng

Rng = np.random.Generator
Change = Callable[[Rng], str | None]
"""Makes a caption's text with a random change; None if this one came to nothing."""

T = TypeVar("T")

_TRIES_PER_TEXT = 40

UniVSEAttack = Literal["object", "attribute", "relation"]


def univse_attack(
    images: Iterable[Sequence[TokenizedCaption]], attack: UniVSEAttack, lexicon: Lexicon, seed: int, count: int = 5
) -> Iterator[Adversarial]:
    """Attack the captions of a split as UniVSE's test of robustness does (its own lists are unpublished).

    * object: a noun is replaced by an irrelevant one, or an irrelevant one is appended ("with a cat").
    * attribute: an adjective or participle is replaced by an irrelevant adjective, or one is put before a noun.
    * relation: subject, relation or object of a relation is replaced by an irrelevant one, or an irrelevant preposition
      and noun are put after a noun.

    The ways that a caption allows have equal chances; :class:`ImageWords` and the training split's :class:`Lexicon` say
    what is irrelevant and fits. There is an entry for each caption, image by image; its reason says why, if it has
    fewer texts than ``count``. Texts depend on the seed, on the ids and on the image's captions alone.
    """
    for captions in images:
        words = ImageWords(captions, lexicon)
        for caption in captions:
            changes, reason = _CHANGES[attack](caption, words)
            rng = attack_rng(seed, caption.image_id, caption.caption_id, UNIVSE_ATTACKS[attack])
            tries = range(_TRIES_PER_TEXT * count if changes else 0)
            texts = different((_pick(changes, rng)(rng) for _ in tries), words.texts, count)
            if len(texts) == count:
                reason = ""
            elif changes:
                reason = "too few irrelevant words that fit" if texts else "no irrelevant word that fits"
            yield Adversarial(caption.image_id, caption.caption_id, attack, caption.text, texts, reason)


def _pick(options: Sequence[T], rng: Rng) -> T:
    return options[int(rng.integers(len(options)))]


def _object_changes(caption: TokenizedCaption, words: ImageWords) -> tuple[list[Change], str]:
    things = caption.graph.objects
    changes: list[Change] = [partial(_append_noun, caption, words)] if caption.tokens else []
    if things:
        changes.append(lambda rng: _replace_noun(caption, words, _pick(things, rng), rng))
    return changes, "an empty caption"


def _attribute_changes(caption: TokenizedCaption, words: ImageWords) -> tuple[list[Change], str]:
    things = caption.graph.objects
    spans = [
        span
        for thing in things
        for attribute in thing.attributes
        if (span := _attribute_span(caption, thing, attribute)) is not None
    ]
    changes: list[Change] = []
    if things:
        changes.append(lambda rng: _add_adjective(caption, words, _pick(things, rng), rng))
    if spans:
        changes.append(lambda rng: _exchange(caption, _pick(spans, rng), words.adjectives(), rng))
    return changes, "no object"


def _relation_changes(caption: TokenizedCaption, words: ImageWords) -> tuple[list[Change], str]:
    things, relations = caption.graph.objects, caption.graph.relations
    changes: list[Change] = []
    if relations:
        changes.append(lambda rng: _replace_noun(caption, words, things[_pick(relations, rng).subject], rng))
        changes.append(lambda rng: _replace_noun(caption, words, things[_pick(relations, rng).object], rng))
    found = [(span, verb_form(r.words, r.lemma)) for r in relations if (span := relation_span(caption, r)) is not None]
    if found:

        def replace_relation(rng: Rng) -> str | None:
            span, form = _pick(found, rng)
            return _exchange(caption, span, words.relations(form), rng)

        changes.append(replace_relation)
    if things:
        changes.append(lambda rng: _add_relation(caption, words, _pick(things, rng), rng))
    return changes, "no object"


_CHANGES = {"object": _object_changes, "attribute": _attribute_changes, "relation": _relation_changes}


def _exchange(caption: TokenizedCaption, span: tuple[int, int], choices: Sequence[str], rng: Rng) -> str | None:
    return rewrite(caption, [(*span, _pick(choices, rng).split())]) if choices else None


def _replace_noun(caption: TokenizedCaption, words: ImageWords, thing: SceneObject, rng: Rng) -> str | None:
    return _exchange(caption, noun_span(caption, thing), words.nouns(frame_of(caption, thing)), rng)


def _append_noun(caption: TokenizedCaption, words: ImageWords, rng: Rng) -> str | None:
    nouns = words.nouns("indefinite")
    if not nouns:
        return None
    end = len(caption.tokens)
    ends_with_point = end > 1 and caption.tokens[-1] in (".", "!", "?")
    noun = _pick(nouns, rng)
    return rewrite(caption, [_added_after(caption, end - ends_with_point, "with", article(noun), noun)])


def _added_after(caption: TokenizedCaption, end: int, *words: str) -> Edit:
    return end - 1, end, (caption.written[end - 1].rstrip(), *words)


def _attribute_span(caption: TokenizedCaption, thing: SceneObject, attribute: Attribute) -> tuple[int, int] | None:
    """Return the place of a describing attribute, in the noun phrase or elsewhere; None if no adjective fits there."""
    compared = attribute.kind == "adjective" and attribute.word != attribute.lemma
    if attribute.kind not in ("adjective", "participle") or compared:
        return None
    within = find_words(caption, attribute.word, thing.start, noun_span(caption, thing)[0])
    if within or attribute.kind == "participle":
        return within
    return find_words(caption, attribute.word, 0, len(caption.tokens))


def _add_adjective(caption: TokenizedCaption, words: ImageWords, thing: SceneObject, rng: Rng) -> str | None:
    start, _ = noun_span(caption, thing)
    choices = [f"{adjective} {caption.tokens[start]}" for adjective in words.adjectives()]
    return _exchange(caption, (start, start + 1), choices, rng)


def _add_relation(caption: TokenizedCaption, words: ImageWords, thing: SceneObject, rng: Rng) -> str | None:
    _, end = noun_span(caption, thing)
    prepositions, nouns = words.relations("preposition"), words.nouns("indefinite")
    if not prepositions or not nouns or caption.tokens[end : end + 1] in (("'s",), ("'",)):
        return None
    noun = _pick(nouns, rng)
    return rewrite(caption, [_added_after(caption, end, *_pick(prepositions, rng).split(), article(noun), noun)])
