"""Draws of adversarial captions that depend on the seed, the caption and the attack alone."""

from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

import numpy as np

from preprocessing.captions.adversarial.files import Adversarial
from preprocessing.captions.adversarial.sentence import Edit, TokenizedCaption, plain, rewrite

Change = Callable[[np.random.Generator], str | None]
"""Makes a caption's text with a random change; None if this one came to nothing."""

_TRIES_PER_TEXT = 40

T = TypeVar("T")


def pick(options: Sequence[T], rng: np.random.Generator) -> T:
    """Return one of the options, with equal chances."""
    return options[int(rng.integers(len(options)))]


def draw_different(
    caption: TokenizedCaption,
    attack: str,
    changes: Sequence[Change],
    true_texts: Collection[str],
    count: int,
    rng: np.random.Generator,
    reason: str,
) -> Adversarial:
    """Make ``count`` different texts, none of them a true one, each by a change that is drawn with equal chances.

    ``reason`` says why there are no changes, if there are none.
    """
    texts: dict[str, None] = {}
    for _ in range(_TRIES_PER_TEXT * count if changes else 0):
        text = pick(changes, rng)(rng)
        if text is not None and plain(text) not in true_texts:
            texts[text] = None
        if len(texts) == count:
            break
    if len(texts) == count:
        reason = ""
    elif changes:
        reason = "too few irrelevant words that fit" if texts else "no irrelevant word that fits"
    return Adversarial(caption.image_id, caption.caption_id, attack, caption.text, tuple(texts), reason)


def limit_shuffled(
    caption: TokenizedCaption,
    attack: str,
    candidates: Sequence[Sequence[Edit]],
    true_texts: Collection[str],
    limit: int,
    rng: np.random.Generator,
    reason: str,
) -> Adversarial:
    """Shuffle the candidates and keep the first ``limit`` different texts; ``reason`` says why there may be fewer."""
    texts: dict[str, None] = {}
    for index in rng.permutation(len(candidates)).tolist():
        text = rewrite(caption, candidates[index])
        if plain(text) not in true_texts:
            texts[text] = None
        if len(texts) == limit:
            reason = ""
            break
    return Adversarial(caption.image_id, caption.caption_id, attack, caption.text, tuple(texts), reason)
