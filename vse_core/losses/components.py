"""The input of UniVSE's loss, and the alignment of components with the regions of their own image (section 3.4).

b pairs of an image and a caption of this process, K views, N regions, M components of one kind, V a component and its
negatives, D dimensions. All embeddings have unit length.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from vse_core.precision import at_least_float32, full_precision
from vse_core.static_shapes import has_static_shapes


@dataclass(frozen=True, slots=True)
class ComponentVectors:
    """Embeddings of M components of one kind, each before its negatives, and the rows of their captions."""

    vectors_MVD: Tensor
    owners_M: Tensor

    def __len__(self) -> int:
        return len(self.owners_M)

    @property
    def own(self) -> Tensor:
        """The components' own vectors (M, D)."""
        return self.vectors_MVD[:, 0]


@dataclass(frozen=True, slots=True)
class UnifiedOutput:
    """UniVSE's output for this process's b pairs of an image and a caption.

    Regions beyond the mask mean nothing; ``sentences_bD`` is u_sent, and ``composed_bD`` is u_comp, zero for a caption
    without components. The numbers of triples are equal if the triples are; those of all that are true of an image
    are filled up with -1.
    """

    images_bKD: Tensor
    regions_bND: Tensor
    region_mask_bN: Tensor
    sentences_bD: Tensor
    composed_bD: Tensor
    has_components_b: Tensor
    objects: ComponentVectors
    pairs: ComponentVectors
    triples: ComponentVectors
    triple_numbers_T: Tensor
    true_triples_bX: Tensor


def region_similarities(components: ComponentVectors, regions_bND: Tensor) -> Tensor:
    """Inner products (M, V, N) of every component and its negatives with every region of its own image, in float32."""
    vectors_MVD, regions_bND = at_least_float32(components.vectors_MVD), at_least_float32(regions_bND)
    if has_static_shapes(vectors_MVD):
        with full_precision(regions_bND):
            return vectors_MVD @ regions_bND[components.owners_M].transpose(1, 2)
    images, kinds, width = len(regions_bND), vectors_MVD.shape[1], vectors_MVD.shape[2]
    places_M, most = _places(components.owners_M, images)
    # One product per image, of all its components at once: the regions, which are many, are not copied for each.
    index = (components.owners_M, places_M)
    grouped = torch.index_put(vectors_MVD.new_zeros(images, most, kinds, width), index, vectors_MVD)
    with full_precision(regions_bND):
        sims_bXN = grouped.view(images, most * kinds, width) @ regions_bND.transpose(1, 2)
    return sims_bXN.view(images, most, kinds, regions_bND.shape[1])[index]


def relevance(sims_MN: Tensor, mask_MN: Tensor, temperature: float) -> Tensor:
    """Return each region's relevance to a component: a softmax over regions (UniVSE, equation (2)), 0 for padding.

    The paper's temperature is 1, at which cosine similarities are too close to each other for any region to stand out.
    """
    return (sims_MN / temperature).masked_fill(~mask_MN, -torch.inf).softmax(dim=1)


def region_hinges(relevance_MN: Tensor, own_MN: Tensor, negatives_MVN: Tensor, margin: float) -> Tensor:
    """Hinges (M,) of all regions, weighted by relevance, against each region's hardest negative (UniVSE, equation (3)).

    ``sum_i M_i [margin + max_n s(n, V_i) - s(u, V_i)]+`` for every component u, whose similarities with the regions are
    ``own_MN``, and those of its negatives n ``negatives_MVN``. M, ``relevance_MN``, takes part in the gradient.
    """
    hinges_MN = (margin + negatives_MVN.amax(dim=1) - own_MN).clamp(min=0)
    return (relevance_MN * hinges_MN).sum(dim=1)


@torch.no_grad()
def _places(owners_M: Tensor, images: int) -> tuple[Tensor, int]:
    """Number the components of each image in their order, and return the largest count."""
    counts_b = owners_M.bincount(minlength=images)
    order_M = owners_M.argsort(stable=True)
    ranks_M = torch.arange(len(owners_M), device=owners_M.device)
    ranks_M = ranks_M - (counts_b.cumsum(0) - counts_b)[owners_M[order_M]]
    return torch.empty_like(order_M).scatter_(0, order_M, ranks_M), int(counts_b.max())
