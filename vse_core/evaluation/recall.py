"""Image-text retrieval metrics: recall at K, median and mean rank, RSUM, in chunks and exact under ties."""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from vse_core.losses.similarity import similarity_matrix

CHUNK = 512

# (b, c) similarities of a run of images and a run of captions.
Similarities = Callable[[slice, slice], Tensor]


@dataclass(frozen=True)
class DirectionMetrics:
    """Metrics of one direction of retrieval.

    Attributes:
        r1, r5, r10: percentage of queries whose best true item is among the first 1, 5, 10.
        median_rank: ``floor(median) + 1`` of the 0-based ranks, as published.
        mean_rank: mean of the ranks, counted from 1.
        ties: queries whose best true item shares its similarity with a false one (a collapsed model has many).
    """

    r1: float
    r5: float
    r10: float
    median_rank: float
    mean_rank: float
    ties: float

    @property
    def recall_sum(self) -> float:
        """R@1 + R@5 + R@10, at most 300."""
        return self.r1 + self.r5 + self.r10


@dataclass(frozen=True)
class RetrievalResult:
    """Both directions of image-text retrieval.

    Attributes:
        image_to_text: images as queries, captions as gallery.
        text_to_image: captions as queries, images as gallery.
        images: images in the gallery (of each fold).
        captions: captions in the gallery (of each fold).
        folds: over how many folds the metrics are averaged.
    """

    image_to_text: DirectionMetrics
    text_to_image: DirectionMetrics
    images: int
    captions: int
    folds: int = 1

    @property
    def rsum(self) -> float:
        """Sum of the six recalls, at most 600."""
        return self.image_to_text.recall_sum + self.text_to_image.recall_sum

    def as_dict(self) -> dict[str, float]:
        """Flat names and values: ``rsum``, ``i2t_r1`` ... ``t2i_mean_rank``."""
        flat = {"rsum": self.rsum}
        for prefix, metrics in (("i2t", self.image_to_text), ("t2i", self.text_to_image)):
            flat |= {f"{prefix}_{name}": value for name, value in vars(metrics).items()}
        return flat


def evaluate_retrieval(
    images_BKD: Tensor, texts_CD: Tensor, captions_per_image: int | Sequence[int] = 5, folds: int = 1
) -> RetrievalResult:
    """Rank all captions for every image and all images for every caption.

    The rank of an item is the number of items with a higher similarity; among equal ones the later index comes
    first, as in the published evaluation code. An image's rank is that of its best caption. A similarity that is not a
    number is ranked against the model: whatever is compared with it counts as more similar. No similarity matrix of
    the whole gallery is ever held.

    Args:
        images_BKD: (B, K, D) unit vectors, K views; similarity is the maximum over views. (B, D) is taken as K = 1.
        texts_CD: (C, D) unit vectors, the captions of image 0 first, then those of image 1, and so on.
        captions_per_image: how many captions belong to each image: one number, or one number per image.
        folds: average over this many contiguous folds of equal size (5 for the COCO 1K protocol).

    Raises:
        ValueError: the numbers of images and captions do not fit, or the images cannot be cut into the folds.
    """
    return evaluate_ensemble([(images_BKD, texts_CD)], captions_per_image, folds)


def evaluate_ensemble(
    members: Sequence[tuple[Tensor, Tensor]], captions_per_image: int | Sequence[int] = 5, folds: int = 1
) -> RetrievalResult:
    """Rank as :func:`evaluate_retrieval` does, by the mean of several models' similarities.

    This is how VSE-infinity and VSE+2AD combine models of region, grid and patch features. Each member's similarity is
    the maximum over its own views, so members may differ in D and K.

    Args:
        members: each model's embeddings (B, K, D) or (B, D) of the images and (C, D) of the captions, all of the same
            images and captions in the same order.
        captions_per_image: how many captions belong to each image: one number, or one number per image.
        folds: average over this many contiguous folds of equal size.

    Raises:
        ValueError: there is no member, the numbers of images and captions do not fit, or the images cannot be cut into
            the folds.
    """
    sizes = {(len(images), len(texts)) for images, texts in members}
    if len(sizes) != 1:
        raise ValueError(f"members of an ensemble share images and captions, got {sorted(sizes) or 'no members'}")
    (images, captions) = sizes.pop()
    counts_B = caption_counts(images, captions, captions_per_image)
    if folds < 1 or images % folds:
        raise ValueError(f"{images} images cannot be cut into {folds} folds of equal size")
    similarities = _mean_similarities(members)
    starts_B = torch.cat([counts_B.new_zeros(1), counts_B.cumsum(0)]).tolist()
    size = images // folds
    results = []
    for first in range(0, images, size):
        fold = slice(first, first + size)
        results.append(_evaluate_fold(similarities, fold, starts_B[fold.start], counts_B[fold]))
    return results[0] if folds == 1 else _average(results)


def chance_rsum(captions_per_image: Sequence[int]) -> float:
    """The RSUM expected of a random ranking, for comparison.

    Args:
        captions_per_image: number of captions of each image.
    """
    images, captions = len(captions_per_image), sum(captions_per_image)
    total = 0.0
    for k in (1, 5, 10):
        first = min(k, captions)
        missed = [math.comb(captions - own, first) / math.comb(captions, first) for own in captions_per_image]
        total += 100 * (1 - sum(missed) / images) + 100 * min(k / images, 1.0)
    return total


def caption_counts(images: int, captions: int, captions_per_image: int | Sequence[int]) -> Tensor:
    """Captions of each image (B,), or a ValueError where they do not add up to all captions."""
    if isinstance(captions_per_image, int):
        captions_per_image = [captions_per_image] * images
    counts_B = torch.as_tensor(captions_per_image, dtype=torch.long)
    if len(counts_B) != images or int(counts_B.sum()) != captions or (images and int(counts_B.min()) < 1):
        raise ValueError(
            f"{images} images and {captions} captions do not fit captions_per_image "
            f"({len(counts_B)} counts, {int(counts_B.sum())} captions in all; every image needs at least one)"
        )
    if not images:
        raise ValueError("nothing to evaluate: there are no images")
    return counts_B


def _mean_similarities(members: Sequence[tuple[Tensor, Tensor]]) -> Similarities:
    pairs = [(images.unsqueeze(1) if images.dim() == 2 else images, texts) for images, texts in members]

    def similarities(images: slice, captions: slice) -> Tensor:
        each_bc = (similarity_matrix(images_BKD[images], texts_CD[captions]) for images_BKD, texts_CD in pairs)
        return functools.reduce(torch.add, each_bc) / len(pairs)

    return similarities


def _evaluate_fold(similarities: Similarities, fold: slice, first_caption: int, counts_B: Tensor) -> RetrievalResult:
    """Metrics over the images of a fold and their captions, which begin at a caption's index."""
    images, captions = len(counts_B), int(counts_B.sum())
    image_of_C = torch.repeat_interleave(torch.arange(images), counts_B)
    own = slice(first_caption, first_caption + captions)
    image_ranks = [
        best_caption_ranks(similarities(_part(fold, start), own), image_of_C, start)
        for start in range(0, images, CHUNK)
    ]
    caption_ranks = [
        _image_ranks(similarities(fold, _part(own, start)), image_of_C[start : start + CHUNK])
        for start in range(0, captions, CHUNK)
    ]
    return RetrievalResult(direction_metrics(image_ranks), direction_metrics(caption_ranks), images, captions)


def _part(whole: slice, start: int) -> slice:
    """The chunk of a run that begins at a place in it."""
    return slice(whole.start + start, min(whole.start + start + CHUNK, whole.stop))


def best_caption_ranks(sims_bC: Tensor, image_of_C: Tensor, first_image: int) -> tuple[Tensor, Tensor]:
    """Ranks (b,) of each image's best caption, and whether a false caption ties with it.

    Args:
        sims_bC: similarities of a run of images with all candidates.
        image_of_C: index of the image that each candidate describes; -1: none, an adversarial caption.
        first_image: index of the run's first image.
    """
    own_bC = image_of_C == torch.arange(first_image, first_image + len(sims_bC)).unsqueeze(1)
    best_b1 = sims_bC.masked_fill(~own_bC, -float("inf")).amax(dim=1, keepdim=True)
    equal_bC = sims_bC == best_b1
    index_C = torch.arange(sims_bC.shape[1])
    # Of an image's own captions with the best similarity the last one is ranked first.
    last_b1 = torch.where(own_bC & equal_bC, index_C, -1).amax(dim=1, keepdim=True)
    # Not "greater": a comparison with NaN is false, and a model of NaN would be first everywhere.
    ranks_b = (~(sims_bC <= best_b1)).sum(dim=1) + (equal_bC & (index_C > last_b1)).sum(dim=1)
    return ranks_b, (equal_bC & ~own_bC).any(dim=1)


def _image_ranks(sims_Bc: Tensor, image_of_c: Tensor) -> tuple[Tensor, Tensor]:
    """Ranks (c,) of each caption's image, and whether another image ties with it."""
    true_1c = sims_Bc.gather(0, image_of_c.unsqueeze(0))
    equal_Bc = sims_Bc == true_1c
    later_Bc = torch.arange(len(sims_Bc)).unsqueeze(1) > image_of_c
    ranks_c = (~(sims_Bc <= true_1c)).sum(dim=0) + (equal_Bc & later_Bc).sum(dim=0)
    return ranks_c, equal_Bc.sum(dim=0) > 1


def direction_metrics(chunks: list[tuple[Tensor, Tensor]]) -> DirectionMetrics:
    """Metrics of 0-based ranks, given with their ties in chunks of queries."""
    ranks = torch.cat([ranks for ranks, _ in chunks])
    ties = int(sum(int(tied.sum()) for _, tied in chunks))
    r1, r5, r10 = (100.0 * (ranks < k).double().mean().item() for k in (1, 5, 10))
    # torch.median takes the lower of the two middle values; the published code averages them, then rounds down.
    middle = ranks.double().quantile(0.5).item()
    return DirectionMetrics(r1, r5, r10, float(int(middle) + 1), ranks.double().mean().item() + 1, ties)


def _average(results: list[RetrievalResult]) -> RetrievalResult:
    def mean(direction: str) -> DirectionMetrics:
        rows = [vars(getattr(result, direction)) for result in results]
        return DirectionMetrics(**{name: sum(row[name] for row in rows) / len(rows) for name in rows[0]})

    first = results[0]
    return RetrievalResult(mean("image_to_text"), mean("text_to_image"), first.images, first.captions, len(results))
