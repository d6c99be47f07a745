"""VSE-C's attacks: a wrong noun, a wrong number, or a wrong relation in a caption."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from preprocessing.captions.adversarial.files import Adversarial
from preprocessing.captions.adversarial.grammar import (
    NUMBER_WORDS,
    PLURAL_ONLY,
    PREPOSITIONS,
    number_value,
    plural,
    wrong_prepositions,
)
from preprocessing.captions.adversarial.lexicon import Lexicon, without
from preprocessing.captions.adversarial.sentence import (
    Edit,
    TokenizedCaption,
    different,
    find_words,
    frame_of,
    noun_span,
    plain,
    relation_span,
    rewrite,
)
from preprocessing.captions.graph import SceneObject
from preprocessing.captions.inflection import inflect
from preprocessing.randomness import VSE_C_ATTACKS, attack_rng

VSECAttack = Literal["noun", "numeral", "relation"]

_JOINED_BY = frozenset(("with", "and", "or", ","))
_SINGULAR_VERBS = {"is": "are", "was": "were", "has": "have", "does": "do"}
_PLURAL_VERBS = {plural_verb: verb for verb, plural_verb in _SINGULAR_VERBS.items()}


def vse_c_attack(
    images: Iterable[Sequence[TokenizedCaption]], attack: VSECAttack, lexicon: Lexicon, seed: int, limit: int = 20
) -> Iterator[Adversarial]:
    """Attack the captions of a split as VSE-C does (Shi et al. 2018, released code).

    * noun: the noun of a phrase becomes one that is not related to it and not a word of the image's captions.
    * numeral: the number of a phrase ("a", "two") becomes each of 28 number words of another value; the noun, and the
      verb after it, change their number along.
    * relation: two noun phrases that are not joined trade places, or a preposition before a noun phrase becomes one
      that shares no class with it.

    Differs from the released code: see :class:`Lexicon`; a new noun has the number of the old one, and "a" and "an"
    agree; a comma joins phrases, as intended there; of all results ``limit`` are kept, shuffled by the seed, since a
    caption has thousands of wrong nouns. Entries are as of :func:`univse_attack`.
    """
    for captions in images:
        words = {token for caption in captions for token in caption.tokens}
        words.update(thing.lemma for caption in captions for thing in caption.graph.objects)
        true_texts = {plain(caption.text) for caption in captions}
        for caption in captions:
            if attack == "noun":
                candidates = list(_noun_candidates(caption, lexicon, words))
                reason = "too few nouns that fit" if caption.graph.objects else "no object"
            elif attack == "numeral":
                candidates = list(_numeral_candidates(caption))
                reason = "all numbers used" if candidates else "no number"
            else:
                candidates = [*_swapped_phrases(caption), *_other_prepositions(caption)]
                reason = "all exchanges used" if candidates else "no phrases apart and no preposition"
            rng = attack_rng(seed, caption.image_id, caption.caption_id, VSE_C_ATTACKS[attack])
            shuffled = (candidates[index] for index in rng.permutation(len(candidates)).tolist())
            texts = different((rewrite(caption, edits) for edits in shuffled), true_texts, limit)
            reason = "" if len(texts) == limit else reason
            yield Adversarial(caption.image_id, caption.caption_id, attack, caption.text, texts, reason)


def _noun_candidates(caption: TokenizedCaption, lexicon: Lexicon, words: set[str]) -> Iterator[list[Edit]]:
    for thing in caption.graph.objects:
        phrase = "".join(caption.tokens[thing.start : thing.end])
        if not (phrase.isascii() and phrase.isalpha()):
            continue
        span = noun_span(caption, thing)
        nouns = lexicon.nouns[frame_of(caption, thing)].items()
        for noun in without(nouns, lexicon.related(thing.lemma) | {thing.lemma}, words):
            yield [(*span, (noun,))]


def _numeral_candidates(caption: TokenizedCaption) -> Iterator[list[Edit]]:
    for thing in caption.graph.objects:
        position = _number_position(caption, thing)
        value = None if position is None else number_value(caption.tokens[position])
        if position is None or value is None or thing.word in PLURAL_ONLY:
            continue
        _, end = noun_span(caption, thing)
        for word, new_value in NUMBER_WORDS.items():
            if new_value == value or word == "an":  # "a" becomes "an" where it must
                continue
            edits: list[Edit] = [(position, position + 1, (word,))]
            if (value == 1) != (new_value == 1):
                singular = "person" if thing.lemma == "people" else thing.lemma
                noun = plural(singular) if value == 1 else singular
                edits += [(end - 1, end, (noun,)), *_verb_edits(caption, thing, end, many=value == 1)]
            yield edits


def _number_position(caption: TokenizedCaption, thing: SceneObject) -> int | None:
    """Return where a thing's number stands: a numeral of its own, or "a" with nothing but adjectives up to the noun."""
    start, _ = noun_span(caption, thing)
    if any(attribute.kind == "quantifier" for attribute in thing.attributes):
        return None
    for attribute in thing.attributes:
        if attribute.kind == "numeral":
            span = find_words(caption, attribute.word, thing.start, start)
            return span[0] if span else None
    described = {part for attribute in thing.attributes for part in attribute.word.split("-")} | {"and", ",", "-"}
    for position in range(start - 1, max(thing.start - 2, -1), -1):
        if caption.tokens[position] in ("a", "an"):
            return position
        if caption.tokens[position] not in described:
            return None
    return None


def _verb_edits(caption: TokenizedCaption, thing: SceneObject, end: int, *, many: bool) -> Iterator[Edit]:
    """Yield the verb right after a noun phrase, in the other number; not after "... and two dogs"."""
    tokens = caption.tokens
    joined = any(token in ("and", "or") for token in tokens[max(thing.start - 1, 0) : thing.start])
    if end >= len(tokens) or joined:
        return
    table = _SINGULAR_VERBS if many else _PLURAL_VERBS
    if tokens[end] in table:
        yield end, end + 1, (table[tokens[end]],)
        return
    for relation in caption.graph.relations:
        span = relation_span(caption, relation)
        if caption.graph.objects[relation.subject] is thing and span and span[0] == end:
            verb = relation.lemma.split()[0]
            old, new = (inflect(verb, "VBZ"), verb) if many else (verb, inflect(verb, "VBZ"))
            if tokens[end] == old and verb not in PREPOSITIONS:
                yield end, end + 1, (new,)
            return


def _swapped_phrases(caption: TokenizedCaption) -> Iterator[list[Edit]]:
    spans = sorted({(thing.start, thing.end) for thing in caption.graph.objects})
    group = list(range(len(spans)))
    for i in range(1, len(spans)):
        between = caption.tokens[spans[i - 1][1] : spans[i][0]]
        if not between or (len(between) == 1 and between[0] in _JOINED_BY):
            group[i] = group[i - 1]
    for (i, one), (j, other) in itertools.combinations(enumerate(spans), 2):
        if group[i] != group[j] and one[1] <= other[0]:
            phrases = ["".join(caption.written[slice(*span)]).rstrip().lower() for span in (one, other)]
            yield [(*one, [phrases[1]]), (*other, [phrases[0]])]


def _other_prepositions(caption: TokenizedCaption) -> Iterator[list[Edit]]:
    for start in sorted({thing.start for thing in caption.graph.objects}):
        position = start - 1
        if position >= 0 and caption.tokens[position] in PREPOSITIONS:
            for word in wrong_prepositions(caption.tokens[position]):
                yield [(position, start, (word,))]
