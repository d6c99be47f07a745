"""Dependencies of a caption resolved by its image: which noun is white, which colour it has, and who eats what."""

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from vse_core.evaluation.bootstrap import Interval, resampled_means
from vse_core.evaluation.ranks import CHUNK_ELEMENTS
from vse_core.precision import at_least_float32

# G dependencies, N candidates of all dependencies together, W words of a candidate, B images, K views, D embedding.

Words = tuple[int, ...]
# A dependency: its caption, its candidates, and which of them the parser found.
_Asked = tuple[int, Sequence[Words], Sequence[bool]]


@dataclass(frozen=True)
class Dependencies:
    """Dependencies to resolve, each with its candidates; those without a choice are `skipped`, a number.

    ``words_NW`` are ids of (adjective, noun) or (subject, relation, object), those of dependency 0 first, and
    ``first_G1`` is where each dependency's begin, and N; ``correct_N`` tells whether the parser found the candidate in
    the caption, ``caption_G``.
    """

    words_NW: Tensor
    first_G1: Tensor
    correct_N: Tensor
    caption_G: Tensor
    skipped: int


@dataclass(frozen=True)
class DependencyResult:
    """Accuracy, in per cent as chance is, with which the image alone finds the dependencies that the parser found.

    Ties are unresolved dependencies in which a correct and an incorrect candidate share the highest similarity.
    """

    accuracy: float
    chance: float
    dependencies: int
    ties: int


def find_dependencies(
    captions: Iterable[tuple[Sequence[int], Sequence[Words]]], kind: Literal["attributes", "relations"]
) -> Dependencies:
    """Ask of every adjective of a caption to which of its nouns it belongs (UniVSE, section 4.4).

    Or ask of every relation which of them are its subject and object (figure 7). Each caption has the noun ids of its
    objects, and its (adjective, noun) or (subject, relation, object) ids; any other noun is a ValueError.

    Candidates are the pairs with every noun of the caption, or the triples with all ordered pairs of two different
    nouns; those that the parser found are correct. The paper leaves repeated words open: here each counts once in a
    caption. One that the parser gives to several nouns ("a white dog and a white cat") is resolved by any of them; if
    all candidates are correct, or none is ("a boy by a boy"), there is nothing to resolve.
    """
    asked_at, width = (0, 2) if kind == "attributes" else (1, 3)
    found: list[_Asked] = []
    for caption, (objects, components) in enumerate(captions):
        nouns = list(dict.fromkeys(objects))
        for component in components:
            if not {*component[:asked_at], *component[asked_at + 1 :]} <= set(nouns):
                raise ValueError(f"caption {caption} has the component {component}, but only the nouns {nouns}")
        for asked in dict.fromkeys(component[asked_at] for component in components):
            chosen = itertools.permutations(nouns, width - 1)
            candidates = [(*some[:asked_at], asked, *some[asked_at:]) for some in chosen]
            found.append((caption, candidates, [candidate in components for candidate in candidates]))
    return _dependencies(found, width)


def find_adjectives(
    pairs_of_C: Sequence[Sequence[Words]],
    image_of_C: Sequence[int],
    choices: Sequence[int],
    alike: Callable[[int, int], bool],
) -> Dependencies:
    """Ask of every noun of a caption with one of some adjectives which of them it has: which colour, for instance.

    Words tell less of it than of :func:`find_dependencies`: a dog may have most colours, while what is green is seldom
    the dog. Captions have (adjective, noun) ids, and the index of their image. Candidates are the pairs of all choices
    with the noun; those that any caption of the image has are correct. Others that are `alike` to one of these
    ("grey") are left out.
    """
    said = defaultdict(set)
    for image, pairs in zip(image_of_C, pairs_of_C, strict=True):
        for adjective, noun in pairs:
            if adjective in choices:
                said[image, noun].add(adjective)
    found: list[_Asked] = []
    for caption, (image, pairs) in enumerate(zip(image_of_C, pairs_of_C, strict=True)):
        for noun in dict.fromkeys(noun for adjective, noun in pairs if adjective in choices):
            true = said[image, noun]
            kept = [word for word in choices if word in true or not any(alike(word, other) for other in true)]
            found.append((caption, [(word, noun) for word in kept], [word in true for word in kept]))
    return _dependencies(found, 2)


def _dependencies(found: Sequence[_Asked], width: int) -> Dependencies:
    """Return those that leave a choice between candidates of `width` words."""
    kept = [asked for asked in found if len(set(asked[2])) == 2]
    words = [candidate for _, candidates, _ in kept for candidate in candidates]
    return Dependencies(
        words_NW=torch.tensor(words, dtype=torch.long).reshape(-1, width),
        first_G1=torch.tensor([0, *itertools.accumulate(len(candidates) for _, candidates, _ in kept)]),
        correct_N=torch.tensor([is_correct for _, _, correct in kept for is_correct in correct], dtype=torch.bool),
        caption_G=torch.tensor([caption for caption, _, _ in kept], dtype=torch.long),
        skipped=len(found) - len(kept),
    )


def other_images(count: int, seed: int = 0) -> Tensor:
    """Return another image for each of several (B,), each of them once: a round trip through all in random order."""
    order_B = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    return torch.empty_like(order_B).scatter_(0, order_B, order_B.roll(-1))


def candidate_similarities(
    images_BKD: Tensor, candidates_ND: Tensor, image_of_N: Tensor, mask_BK: Tensor | None = None
) -> Tensor:
    """Similarity (N,) float32 of candidates (N, D) with their own images, the matching score of UniVSE's figure 7.

    It is the maximum over the images' K views or regions, of those in the mask (B, K) if there is one; images (B, D)
    are taken as K = 1. ``image_of_N`` is the index of each candidate's image.
    """
    images_BKD = images_BKD.unsqueeze(1) if images_BKD.dim() == 2 else images_BKD
    size = max(1, CHUNK_ELEMENTS // images_BKD.shape[1:].numel())
    best = []
    for candidates_nD, of_n in zip(candidates_ND.split(size), image_of_N.split(size), strict=True):
        # Sums along rows, not a matrix product: candidates of equal embeddings must tie, wherever they stand.
        scores_nK = (at_least_float32(images_BKD[of_n]) * at_least_float32(candidates_nD).unsqueeze(1)).sum(-1)
        if mask_BK is not None:
            scores_nK = scores_nK.masked_fill(~mask_BK[of_n], -torch.inf)
        best.append(scores_nK.amax(-1))
    return torch.cat(best)


def evaluate_dependencies(scores_N: Tensor, first_G1: Tensor, correct_N: Tensor) -> DependencyResult:
    """Choose the best candidate of every dependency and count how often the parser agrees (UniVSE, table 4).

    A dependency is resolved if a correct candidate is more similar to the image than every incorrect one; a tie
    counts as unresolved. Chance is the mean share of correct candidates. ``first_G1`` and ``correct_N`` are those of
    :class:`Dependencies`. No dependency is a ValueError.
    """
    best_correct_G, best_incorrect_G = _best_of_both(scores_N, first_G1, correct_N)
    shares_G = torch.segment_reduce(correct_N.double(), "mean", lengths=first_G1.diff())
    return DependencyResult(
        accuracy=100.0 * (best_correct_G > best_incorrect_G).double().mean().item(),
        chance=100.0 * shares_G.mean().item(),
        dependencies=len(shares_G),
        ties=int((best_correct_G == best_incorrect_G).sum()),
    )


def image_contribution(
    scores_N: Tensor, wrong_N: Tensor, first_G1: Tensor, correct_N: Tensor, image_G: Tensor
) -> tuple[float, Interval]:
    """Return by how much the accuracy is above that with wrong images, in percentage points, and its 95 % interval.

    What remains with a wrong image is what the words themselves tell: that grass is green, whatever is to be seen. The
    interval is of a bootstrap over the images, of which each dependency has one in ``image_G``; resamples without any
    dependency do not count. ``scores_N`` are the similarities of the candidates with their images, ``wrong_N`` with
    other images (:func:`other_images`).
    """
    resolved = [torch.gt(*_best_of_both(scores, first_G1, correct_N)) for scores in (scores_N, wrong_N)]
    gains_G1 = 100 * (resolved[0].double() - resolved[1].double()).unsqueeze(1)
    means_R = resampled_means(gains_G1, image_G)[:, 0]
    return gains_G1.mean().item(), Interval.of(means_R[~means_R.isnan()])


def _best_of_both(scores_N: Tensor, first_G1: Tensor, correct_N: Tensor) -> tuple[Tensor, Tensor]:
    """Return the highest scores of each dependency's correct and incorrect candidates."""
    if len(first_G1) < 2:
        raise ValueError("nothing to evaluate: there are no dependencies")
    best_correct_G, best_incorrect_G = (
        torch.segment_reduce(scores_N.masked_fill(left_out_N, -torch.inf), "max", lengths=first_G1.diff())
        for left_out_N in (~correct_N, correct_N)
    )
    return best_correct_G, best_incorrect_G
