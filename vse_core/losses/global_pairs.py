"""Bases of losses: a local batch's output in, the global batch's loss out.

Similarities of this process's images and captions with the global batch are taken in blocks that fit in memory.

A anchors, images or captions of this process; C candidates, all of the other side's global batch; K views.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from vse_core.distributed import all_reduce_sums, gather_output, gather_rows, rank
from vse_core.outputs import ComparedImages
from vse_core.precision import at_least_float32
from vse_core.similarity import best_view, view_similarities

# Numbers that are compared at once, of 128 MB in float32; a loss holds about five times as much.
BLOCK = 2**25

# Which side's members are anchors.
IMAGES, CAPTIONS = True, False

Sums = dict[str, Tensor]


@dataclass(frozen=True, slots=True)
class Block:
    """Similarities of A anchors with C candidates, of which anchor a's own is the one at ``first + a``.

    ``sims_AKC`` are those of every view, ``sims_AC`` of the views combined; ``negative_AC`` is true for candidates that
    are negatives; ``first`` is the first anchor's position in the global batch.
    """

    sims_AKC: Tensor
    sims_AC: Tensor
    negative_AC: Tensor
    first: int
    of_images: bool

    def own_mask(self) -> Tensor:
        """Return the mask (A, C) of the anchors' own candidates."""
        places_A, places_C = (torch.arange(size, device=self.sims_AC.device) for size in self.sims_AC.shape)
        return (places_A + self.first).unsqueeze(1) == places_C

    def own(self, sims_MAC: Tensor) -> Tensor:
        """Return the anchors' similarities (..., A) to their own candidates."""
        return sims_MAC.diagonal(self.first, -2, -1)

    def turned(self) -> "Block":
        """Return the block of the candidates as anchors, if all of the batch are both."""
        sims_AKC = self.sims_AKC.permute(2, 1, 0)
        return Block(sims_AKC, self.sims_AC.T, self.negative_AC.T, self.first, not self.of_images)


# Gives a block's part of sums over all anchors, by name.
Terms = Callable[[Block], Sums]


class GlobalPairs:
    """The pairs of a global batch, of which this process compares its own images and captions with all.

    Similarities are not exchanged: with W processes each computes, and holds for the backward pass, 1/W of what the
    losses of both directions need. More than :data:`BLOCK` are computed in blocks of anchors, and again in the backward
    pass, so that memory does not grow with the square of the batch.

    Row i of this process's images and of its captions belong together; ``image_ids_b`` are equal for captions of one
    image, which ``mask_same_image`` does not take as negatives (the released VSE-infinity code does); ``counts`` are
    the pairs of each process, in order. ``compare`` gives the similarities (B, K, C) of all views of images with
    captions, ``combine`` one of the views'.
    """

    def __init__(
        self,
        images: Any,
        texts: Any,
        image_ids_b: Tensor,
        counts: list[int],
        mask_same_image: bool,
        compare: Callable[[Any, Any], Tensor] = view_similarities,
        combine: Callable[[Tensor], Tensor] = best_view,
    ) -> None:
        self.images, self._texts = images, texts
        self._all_images, self._all_texts = gather_output(images, counts), gather_output(texts, counts)
        self.image_ids_B = gather_rows(image_ids_b, counts)
        self._first = sum(counts[: rank()])
        self._mask_same_image = mask_same_image
        self._compare, self._combine = compare, combine
        self._is_alone = len(counts) == 1
        numbers = images.numbers_per_pair(self._all_texts) if isinstance(images, ComparedImages) else images.shape[1]
        size = max(1, BLOCK // (numbers * len(self)))
        local = len(image_ids_b)
        self._anchors = [slice(first, min(first + size, local)) for first in range(0, max(local, 1), size)]
        self._held: dict[bool, Block] = {}

    def __len__(self) -> int:
        """Return the pairs of the global batch."""
        return len(self.image_ids_B)

    def sums(self, terms: Terms, sides: tuple[bool, ...] = (IMAGES, CAPTIONS)) -> Sums:
        """Add up what `terms` gives for each block, over all anchors of these sides on all processes.

        The sums are the same on every process; their gradients are as :func:`~vse_core.distributed.gather_rows` says.
        """
        totals: Sums = {}
        for side in sides:
            for anchors in self._anchors:
                for name, value in self._of_block(terms, side, anchors).items():
                    totals[name] = totals[name] + value if name in totals else value
        summed = all_reduce_sums([at_least_float32(value) for value in totals.values()])
        return dict(zip(totals, summed, strict=True))

    def _of_block(self, terms: Terms, side: bool, anchors: slice) -> Sums:
        if len(self._anchors) == 1:
            return terms(self._whole(side))
        sums: Sums = checkpoint(
            lambda: terms(self._block(side, anchors)), use_reentrant=False, preserve_rng_state=False
        )
        return sums

    def _whole(self, side: bool) -> Block:
        """Return the one block of a side, which is made once; it has the other's similarities if all are here."""
        if side not in self._held:
            is_turned = self._is_alone and side == CAPTIONS
            with torch.enable_grad():  # the loss takes it as well, after what is measured without a gradient
                self._held[side] = self._whole(IMAGES).turned() if is_turned else self._block(side, self._anchors[0])
        return self._held[side]

    def _block(self, side: bool, anchors: slice) -> Block:
        if side == IMAGES:
            sims_AKC = self._compare(self.images[anchors], self._all_texts)
        else:
            sims_AKC = self._compare(self._all_images, self._texts[anchors]).permute(2, 1, 0)
        sims_AC, first = self._combine(sims_AKC), self._first + anchors.start
        ids_B = self.image_ids_B if self._mask_same_image else torch.arange(len(self), device=sims_AC.device)
        negative_AC = ids_B[first : first + len(sims_AC)].unsqueeze(1) != ids_B
        return Block(sims_AKC, sims_AC, negative_AC, first, side)


@torch.no_grad()
def pair_similarities(pairs: GlobalPairs) -> Sums:
    """Mean similarity of the pairs, and of each image's hardest negative caption (of those images that have one).

    The latter is 0 if no image has a negative.
    """
    sums = pairs.sums(_pair_sums, (IMAGES,))
    return {
        "positive_similarity": sums["own"] / len(pairs),
        "hardest_negative_similarity": sums["hardest"] / sums["found"].clamp(min=1),
    }


def _pair_sums(block: Block) -> Sums:
    hardest_A = block.sims_AC.masked_fill(~block.negative_AC, -torch.inf).amax(dim=1)
    # A sum over all and not a selection, for whose size the host would wait.
    found_A = block.negative_AC.any(dim=1)
    hardest = hardest_A.masked_fill(~found_A, 0.0).sum()
    return {"own": block.own(block.sims_AC).sum(), "hardest": hardest, "found": found_A.sum()}


# The total, and the parts of it that this loss alone reports.
TotalAndParts = tuple[Tensor, dict[str, Tensor]]


@dataclass(frozen=True)
class LossResult:
    """A loss: the scalar to minimise, in float32, and named scalars that it is made of, detached, for logging."""

    total: Tensor
    parts: dict[str, Tensor] = field(default_factory=dict)


def detached(parts: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Detach the parts of a loss for logging; copy parameters, which the optimiser changes before they are read."""
    return {
        name: part.detach().clone() if isinstance(part, nn.Parameter) else part.detach() for name, part in parts.items()
    }


class GlobalLoss(nn.Module, ABC):
    """A loss over a global batch, of which each process holds a local batch."""

    is_diagnosed = True

    def diagnose(self, wanted: bool) -> None:
        """Say whether the parts that are measured for a reader alone, such as mean similarities, are wanted."""
        for module in self.modules():
            if isinstance(module, GlobalLoss):
                module.is_diagnosed = wanted

    def forward(self, *output_and_ids: Any) -> LossResult:
        """Loss of a batch that one process holds: of the model's output, or its parts, and the image ids."""
        *output, image_ids_B = output_and_ids
        return self.from_local_batch(output[0] if len(output) == 1 else output, image_ids_B, [len(image_ids_B)])

    @abstractmethod
    def from_local_batch(self, output: Any, image_ids_b: Tensor, counts: list[int]) -> LossResult:
        """Return the global batch's loss, the same on every process, of a model's output for the local batch.

        It gathers what it needs of the other processes, in such a way that gradients averaged over the processes (as
        DistributedDataParallel does) are those of one process that holds the complete batch. ``image_ids_b`` are equal
        for captions of one image; ``counts`` are the pairs of each process, in order.
        """


class PairLoss(GlobalLoss):
    """A loss over B pairs of an image and a caption, to which the batch's other captions and images are negatives."""

    compare: Callable[[Any, Any], Tensor] = staticmethod(view_similarities)
    combine: Callable[[Tensor], Tensor] = staticmethod(best_view)

    def __init__(self, mask_same_image: bool = False) -> None:
        super().__init__()
        self.mask_same_image = mask_same_image

    def from_local_batch(self, output: tuple[Any, Any], image_ids_b: Tensor, counts: list[int]) -> LossResult:
        """Loss of images (b, K, D) and texts (b, D), all of unit length, of which the same rows belong together.

        Its parts are what the loss is made of (see its class), and, if it is diagnosed, the mean similarity of pairs
        and of their hardest negatives.
        """
        pairs = GlobalPairs(*output, image_ids_b, counts, self.mask_same_image, self.compare, self.combine)
        total, parts = self.total_and_parts(pairs)
        if self.is_diagnosed:
            parts |= pair_similarities(pairs)
        return LossResult(total, detached(parts))

    @abstractmethod
    def total_and_parts(self, pairs: GlobalPairs) -> TotalAndParts:
        """The loss of a global batch, the same on every process."""
