"""Image-text retrieval metrics: recall at K, median and mean rank, RSUM, in tiles and exact under ties."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from vse_core.evaluation.members import Member, compare, comparisons, mean_similarities, unified_members
from vse_core.evaluation.ranks import RankAccumulator, Ranks
from vse_core.outputs import Images, Texts

# Similarities of a tile, 8 MiB: products of smaller tiles take longer, as do comparisons of larger ones.
# A GPU wants many at once.
TILE_ELEMENTS = 2**21
GPU_TILE_ELEMENTS = 2**26

# A run of images and the run of their captions.
Block = tuple[slice, slice]


@dataclass(frozen=True)
class DirectionMetrics:
    """Metrics of one direction of retrieval: recalls are per cent of the queries, ranks count from 1.

    The median is rounded down, as published; ties are queries whose best relevant item has exactly the similarity of an
    irrelevant one.
    """

    r01: float
    r05: float
    r10: float
    median_rank: float
    mean_rank: float
    ties: float

    @property
    def recall_sum(self) -> float:
        """R@1 + R@5 + R@10, at most 300."""
        return self.r01 + self.r05 + self.r10

    def as_dict(self) -> dict[str, float]:
        """Flat names and values: ``recall_sum``, ``r01`` ... ``ties``."""
        return {"recall_sum": self.recall_sum, **vars(self)}


@dataclass(frozen=True)
class RetrievalResult:
    """Both directions of image-text retrieval; images and captions are those in the gallery (of each fold)."""

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
        """Flat names and values: ``rsum``, ``i2t_r01`` ... ``t2i_mean_rank``."""
        flat = {"rsum": self.rsum}
        for prefix, metrics in (("i2t", self.image_to_text), ("t2i", self.text_to_image)):
            flat |= {f"{prefix}_{name}": value for name, value in vars(metrics).items()}
        return flat


@dataclass(frozen=True)
class RetrievalRanks:
    """Ranks of both directions, within folds, contiguous galleries of equally many images, or in the whole gallery."""

    image_to_text: Ranks
    text_to_image: Ranks
    captions_B: Tensor
    folds: int

    @property
    def image_of_caption(self) -> Tensor:
        """The image of each caption."""
        return torch.repeat_interleave(torch.arange(len(self.captions_B)), self.captions_B)

    def each_fold(self) -> "list[RetrievalRanks]":
        """The ranks of each fold for itself; items keep their numbers."""
        size = len(self.captions_B) // self.folds
        return [
            RetrievalRanks(self.image_to_text[images], self.text_to_image[captions], self.captions_B[images], 1)
            for images, captions in _runs(self.captions_B, [size] * self.folds)
        ]

    def result(self) -> RetrievalResult:
        """The metrics, averaged over the folds."""
        folds = self.each_fold()
        image_to_text = _mean([direction_metrics(fold.image_to_text) for fold in folds])
        text_to_image = _mean([direction_metrics(fold.text_to_image) for fold in folds])
        images, captions = len(folds[0].image_to_text), len(folds[0].text_to_image)
        return RetrievalResult(image_to_text, text_to_image, images, captions, self.folds)


def evaluate_retrieval(
    images_BKD: Images, texts_CD: Texts, captions_per_image: int | Sequence[int] = 5, folds: int = 1
) -> RetrievalResult:
    """Rank all captions for every image and all images for every caption, without a similarity matrix of them all.

    An image's rank is that of its best caption. Ties and similarities that are not numbers are ranked as `Ranks` and
    `RankAccumulator` say.

    Args:
        images_BKD: (B, K, D) unit vectors, K views; similarity is the maximum over views. (B, D) is taken as K = 1.
            Or images that compare themselves with the texts, the captions' output of the same model.
        texts_CD: (C, D) unit vectors, the captions of image 0 first, then those of image 1, and so on.
        captions_per_image: number of captions of all images, or of each image; ValueError if it does not fit.
        folds: number of contiguous folds of equal size to average over (5 for the COCO 1K protocol).
    """
    return rank_retrieval([(images_BKD, texts_CD)], captions_per_image, (folds,))[folds].result()


def rank_retrieval(
    members: Sequence[Member], captions_per_image: int | Sequence[int] = 5, folds: Sequence[int] = (1,)
) -> dict[int, RetrievalRanks]:
    """Rank both ways within the folds of one or several cuts, with one pass over the similarities; the ranks by folds.

    Similarities are the mean of several models' (VSE-infinity, VSE+2AD), which may differ in D and K; all have images
    and captions in the same order. No member is a ValueError.

    The images are cut into blocks and the captions with them, so that a block of images and its own captions make a
    tile with all relevant pairs of either. These tiles come first. Every similarity is computed once, for all
    directions and cuts, on the members' device. ``folds`` are numbers of folds: 1 is the whole gallery, 5 is COCO 1K.
    """
    sizes = {(len(images), len(texts)) for images, texts in members}
    if len(sizes) != 1:
        raise ValueError(f"members of an ensemble share images and captions, got {sorted(sizes) or 'no members'}")
    ((images, captions),) = sizes
    counts_B = checked_counts(images, captions, captions_per_image)
    for cut in folds:
        if cut < 1 or images % cut:
            raise ValueError(f"{images} images cannot be cut into {cut} folds of equal size")
    pairs, device = unified_members(members), members[0][1].device
    accumulators = {cut: (RankAccumulator(images, device), RankAccumulator(captions, device)) for cut in folds}
    blocks = _blocks(counts_B, folds, sum(comparisons(*member) for member in members), device)
    image_of_C = torch.repeat_interleave(torch.arange(images), counts_B).to(device)
    diagonal_first = [*zip(blocks, blocks, strict=True), *itertools.permutations(blocks, 2)]
    for (images_p, _), (images_q, captions_q) in diagonal_first:
        together = [cut for cut in accumulators if images_p.start * cut // images == images_q.start * cut // images]
        if not together:
            continue
        tile_bc = mean_similarities([(each[images_p], texts[captions_q]) for each, texts in pairs], compare)
        for of_images, of_captions in (accumulators[cut] for cut in together):
            if images_p == images_q:
                image_c = image_of_C[captions_q] - images_p.start
                caption_c = torch.arange(len(image_c), device=device)
                of_images.start(tile_bc, images_p, captions_q.start, image_c, caption_c)
                of_captions.start(tile_bc.T, captions_q, images_p.start, caption_c, image_c)
            else:
                of_images.add(tile_bc, images_p, captions_q.start)
                of_captions.add(tile_bc.T, captions_q, images_p.start)
    return {
        cut: RetrievalRanks(of_images.ranks(), of_captions.ranks(), counts_B, cut)
        for cut, (of_images, of_captions) in accumulators.items()
    }


def chance_rsum(captions_per_image: Sequence[int], folds: int = 1) -> float:
    """Return the RSUM expected of a random ranking, from the number of captions of each image.

    With several contiguous folds of equal size it is their mean, as in :func:`evaluate_retrieval`.
    """
    size = len(captions_per_image) // folds
    chances = [_chance_rsum(captions_per_image[start : start + size]) for start in range(0, folds * size, size)]
    return sum(chances) / folds


def _chance_rsum(captions_per_image: Sequence[int]) -> float:
    images, captions = len(captions_per_image), sum(captions_per_image)
    total = 0.0
    for k in (1, 5, 10):
        first = min(k, captions)
        missed = [math.comb(captions - own, first) / math.comb(captions, first) for own in captions_per_image]
        total += 100 * (1 - sum(missed) / images) + 100 * min(k / images, 1.0)
    return total


def checked_counts(
    owners: int,
    items: int,
    counts: int | Sequence[int],
    names: tuple[str, str, str] = ("images", "captions", "captions_per_image"),
    fewest: int = 1,
) -> Tensor:
    """Return the number of each owner's items (owners,); raise ValueError unless they add up to all items."""
    if not owners:
        raise ValueError(f"nothing to evaluate: there are no {names[0]}")
    counts_O = torch.as_tensor([counts] * owners if isinstance(counts, int) else counts, dtype=torch.long)
    if len(counts_O) != owners or int(counts_O.sum()) != items or int(counts_O.min()) < fewest:
        raise ValueError(
            f"{items} {names[1]} of {owners} {names[0]} do not fit {names[2]} ({len(counts_O)} counts, "
            f"{int(counts_O.sum())} in all; none may be below {fewest})"
        )
    return counts_O


def _blocks(counts_B: Tensor, folds: Sequence[int], views: int, device: torch.device) -> list[Block]:
    """Cut images into runs, none across two folds, each with the run of its captions."""
    images = len(counts_B)
    edges = sorted({fold * images // cut for cut in folds for fold in range(cut + 1)})
    elements = TILE_ELEMENTS if device.type == "cpu" else GPU_TILE_ELEMENTS
    target = max(1, math.isqrt(int(elements * images / (int(counts_B.sum()) * views))))
    sizes = []
    for first, last in itertools.pairwise(edges):
        # Blocks of nearly the same size: a product with a handful of rows may be rounded in another way, and equal
        # embeddings would no longer tie.
        number = -(-(last - first) // target)
        sizes += [(part + 1) * (last - first) // number - part * (last - first) // number for part in range(number)]
    return _runs(counts_B, sizes)


def _runs(counts_B: Tensor, sizes: Sequence[int]) -> list[Block]:
    """Cut images into runs of these sizes; each run with the run of its captions."""
    images = [0, *itertools.accumulate(sizes)]
    starts_B1 = torch.cat([counts_B.new_zeros(1), counts_B.cumsum(0)])
    captions = starts_B1[images].tolist()
    image_runs, caption_runs = ([slice(*pair) for pair in itertools.pairwise(edges)] for edges in (images, captions))
    return list(zip(image_runs, caption_runs, strict=True))


def direction_metrics(ranks: Ranks, round_median: bool = True) -> DirectionMetrics:
    """Metrics of one direction; the median of an even number of ranks is rounded down, as image-text evaluations do."""
    ranks_Q = ranks.ranks_Q.double().sort().values
    r01, r05, r10 = (100.0 * (ranks_Q < k).double().mean().item() for k in (1, 5, 10))
    # Of an even number of ranks torch.median takes the lower of the two middle ones; the published code averages them.
    middle = (ranks_Q[(len(ranks_Q) - 1) // 2].item() + ranks_Q[len(ranks_Q) // 2].item()) / 2
    median = float(int(middle) if round_median else middle) + 1
    return DirectionMetrics(r01, r05, r10, median, ranks_Q.mean().item() + 1, float(ranks.tied_Q.sum()))


def _mean(metrics: list[DirectionMetrics]) -> DirectionMetrics:
    rows = [vars(each) for each in metrics]
    return DirectionMetrics(**{name: sum(row[name] for row in rows) / len(rows) for name in rows[0]})
