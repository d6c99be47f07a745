"""Dependencies of a caption resolved by its image: which noun is white, and who eats what."""

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from vse_core.evaluation.bootstrap import Interval, resampled_means
from vse_core.precision import at_least_float32

# G dependencies, N candidates of all dependencies together, W words of a candidate, B images, K views, D embedding.

Words = tuple[int, ...]

# Numbers of the gathered images held at once; 64 MiB in float32.
CHUNK_ELEMENTS = 2**24


@dataclass(frozen=True)
class Dependencies:
    """Dependencies to resolve, each with its candidates.

    Attributes:
        words_NW: ids of (adjective, noun) or (subject, relation, object), those of dependency 0 first.
        first_G1: where each dependency's candidates begin, and N.
        correct_N: whether the parser found this candidate in the caption.
        caption_G: the caption of each dependency.
        skipped: number of dependencies that offer no choice and are left out.
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

    def as_dict(self) -> dict[str, float]:
        """Return the values by name."""
        return {name: float(value) for name, value in vars(self).items()}


def attribute_dependencies(captions: Iterable[tuple[Sequence[int], Sequence[tuple[int, int]]]]) -> Dependencies:
    """Ask of every adjective of a caption which of the caption's nouns it belongs to (UniVSE, section 4.4).

    The candidates of an adjective are its pairs with every noun of the caption; those that the parser found are
    correct. The paper leaves repeated words open: here a caption's nouns and adjectives count once each. An adjective
    that the parser gives to several nouns ("a white dog and a white cat") is resolved by any of them; if all nouns
    are correct, or there is only one, there is nothing to resolve and the dependency is left out.

    Each caption has the noun ids of its objects, and its (adjective id, noun id) pairs; any other noun is a ValueError.
    """

    def questions(nouns: Sequence[int], pairs: Sequence[Words]) -> Iterable[list[Words]]:
        return ([(adjective, noun) for noun in nouns] for adjective in _distinct(pair[0] for pair in pairs))

    return _collect(captions, questions, nouns_at=(1,))


def relation_dependencies(captions: Iterable[tuple[Sequence[int], Sequence[tuple[int, int, int]]]]) -> Dependencies:
    """Ask of every relation of a caption which of its nouns are subject and object (UniVSE, section 4.4, figure 7).

    The candidates of a relation are all ordered pairs of two different nouns; those that the parser found are correct.
    All else is as in `attribute_dependencies`. A relation of a noun to itself ("a boy by a boy") is not a candidate.

    Of each caption the noun ids of its objects are given, and its (subject, relation, object) ids.
    """

    def questions(nouns: Sequence[int], triples: Sequence[Words]) -> Iterable[list[Words]]:
        ordered = list(itertools.permutations(nouns, 2))
        for relation in _distinct(triple[1] for triple in triples):
            yield [(subject, relation, other) for subject, other in ordered]

    return _collect(captions, questions, nouns_at=(0, 2))


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
    counts_G = first_G1.diff()
    correct_G = torch.zeros_like(counts_G).index_add(0, _dependency_of(first_G1), correct_N.long())
    return DependencyResult(
        accuracy=100.0 * (best_correct_G > best_incorrect_G).double().mean().item(),
        chance=100.0 * (correct_G.double() / counts_G).mean().item(),
        dependencies=len(counts_G),
        ties=int((best_correct_G == best_incorrect_G).sum()),
    )


def image_contribution(
    scores_N: Tensor, wrong_N: Tensor, first_G1: Tensor, correct_N: Tensor, image_G: Tensor
) -> tuple[float, Interval]:
    """Return by how much the accuracy is above that with wrong images, in percentage points, and its 95 % interval.

    What remains with a wrong image is what the words themselves tell: that grass is green, whatever is to be seen. The
    interval is of a bootstrap over the images, of which each dependency has one in ``image_G``. ``scores_N`` are the
    similarities of the candidates with their images, ``wrong_N`` with other images (:func:`other_images`).
    """
    resolved = [torch.gt(*_best_of_both(scores, first_G1, correct_N)) for scores in (scores_N, wrong_N)]
    gains_G1 = 100 * (resolved[0].double() - resolved[1].double()).unsqueeze(1)
    return gains_G1.mean().item(), Interval.of(resampled_means(gains_G1, image_G)[:, 0])


def _dependency_of(first_G1: Tensor) -> Tensor:
    return torch.repeat_interleave(torch.arange(len(first_G1) - 1), first_G1.diff())


def _best_of_both(scores_N: Tensor, first_G1: Tensor, correct_N: Tensor) -> tuple[Tensor, Tensor]:
    counts_G = first_G1.diff()
    if not len(counts_G):
        raise ValueError("nothing to evaluate: there are no dependencies")
    dependency_of_N = _dependency_of(first_G1)
    best_correct_G = _best(scores_N[correct_N], dependency_of_N[correct_N], len(counts_G))
    return best_correct_G, _best(scores_N[~correct_N], dependency_of_N[~correct_N], len(counts_G))


def _best(scores_n: Tensor, dependency_of_n: Tensor, dependencies: int) -> Tensor:
    lowest_G = scores_n.new_full((dependencies,), -float("inf"))
    return lowest_G.scatter_reduce(0, dependency_of_n, scores_n, "amax")


def _collect(
    captions: Iterable[tuple[Sequence[int], Sequence[Words]]],
    questions: Callable[[Sequence[int], Sequence[Words]], Iterable[list[Words]]],
    nouns_at: tuple[int, ...],
) -> Dependencies:
    words: list[Words] = []
    correct: list[bool] = []
    first, owners, skipped = [0], [], 0
    for caption, (objects, found) in enumerate(captions):
        nouns, known = _distinct(objects), {tuple(component) for component in found}
        for component in found:
            if any(component[place] not in nouns for place in nouns_at):
                raise ValueError(f"caption {caption} has the component {component}, but only the nouns {nouns}")
        for candidates in questions(nouns, found):
            agreed = [candidate in known for candidate in candidates]
            if not any(agreed) or all(agreed):
                skipped += 1
                continue
            words += candidates
            correct += agreed
            first.append(len(words))
            owners.append(caption)
    width = len(nouns_at) + 1
    return Dependencies(
        words_NW=torch.tensor(words, dtype=torch.long).reshape(-1, width),
        first_G1=torch.tensor(first),
        correct_N=torch.tensor(correct, dtype=torch.bool),
        caption_G=torch.tensor(owners, dtype=torch.long),
        skipped=skipped,
    )


def _distinct(values: Iterable[int]) -> list[int]:
    return list(dict.fromkeys(values))
