"""The loss of UniVSE: sentences, all components and relations against images, objects and attributes against regions.

b pairs of this process and B of all; O objects, A pairs of an adjective and a noun, T triples; of this process where
they are lower case in the text, of all processes in the normalisation.
"""

import torch
from torch import Tensor
from typing_extensions import override

from vse_core.distributed import all_reduce_sum, gather_counts, gather_rows, rank
from vse_core.losses.components import ComponentVectors, UnifiedOutput
from vse_core.losses.global_loss import GlobalLoss
from vse_core.losses.hinge import Negatives, active_hinges, check_hinge, hinge_terms
from vse_core.losses.regions import region_hinges, region_similarities, relevance
from vse_core.losses.result import LossResult, pair_similarities
from vse_core.precision import at_least_float32, full_precision
from vse_core.similarity import best_view, negative_mask, similarity_matrix


class UnifiedLoss(GlobalLoss):
    """Contrast every kind of meaning with negatives of its own kind (UniVSE, section 3.4, equations (1) to (4)).

        l = l_sent + c l_comp + o l_obj + a l_attr + r l_rel

    - ``l_sent``, ``l_comp``: the hinge in both directions with the hardest negatives of the batch, of sentences and of
      composed components against images; divided by the number of captions. A caption without components has no part
      in ``l_comp``; its image has, as a negative.
    - ``l_obj``: the relevance-weighted hinge over the regions of the image, with the hardest negative of each region;
      divided by the number of objects.
    - ``l_attr``: the same for pairs, once with another adjective and once with another noun, averaged; divided by the
      number of pairs.
    - ``l_rel``: textual negatives only: the hinge against the hardest triple of the batch that no caption of the image
      has (footnote 2), and against the hardest with one word exchanged, averaged; divided by the number of triples.

    The paper sums without naming normalisations or how many negatives count. Those above follow the appendix as a
    public re-implementation reports it, except that all triples of the batch are compared, not one drawn per caption.

    Args:
        margin: delta, in similarity.
        component_weight: c.
        object_weight: o.
        attribute_weight: a.
        relation_weight: r, in the paper 0 for the first two epochs.
        negatives: of sentences and composed components, ``hardest``, or ``all`` to begin with: the mean hinge of those
            that violate the margin takes the place of the hardest one's, so that the weights of the terms hold as well.
        mask_same_image: do not take other captions of the same image as negatives of sentences and composed components;
            relations never do.
        relevance_temperature: divisor of the similarities in equation (2). At 1, as published, the map of an image of
            49 regions is nearly even; the paper draws its maps at 0.1.

    Raises:
        ValueError: an option has an unknown value.
    """

    def __init__(
        self,
        margin: float = 0.2,
        component_weight: float = 0.5,
        object_weight: float = 0.5,
        attribute_weight: float = 0.5,
        relation_weight: float = 1.0,
        negatives: Negatives = "hardest",
        mask_same_image: bool = False,
        relevance_temperature: float = 1.0,
    ) -> None:
        super().__init__()
        check_hinge(negatives, "mean")
        self.margin = margin
        self.weights = {
            "sent": 1.0,
            "comp": component_weight,
            "obj": object_weight,
            "attr": attribute_weight,
            "rel": relation_weight,
        }
        if min(self.weights.values()) < 0:
            raise ValueError(f"the weights of the loss's terms must not be negative, got {self.weights}")
        if relevance_temperature <= 0:
            raise ValueError(f"relevance_temperature must be positive, got {relevance_temperature}")
        self.relevance_temperature = relevance_temperature
        self.negatives: Negatives = negatives
        self.mask_same_image = mask_same_image

    def forward(self, output: UnifiedOutput, image_ids_B: Tensor) -> LossResult:
        """Loss of a batch that one process holds (:meth:`from_local_batch`)."""
        return self.from_local_batch(output, image_ids_B, [len(image_ids_B)])

    @override
    def from_local_batch(self, output: UnifiedOutput, image_ids_b: Tensor, counts: list[int]) -> LossResult:
        """The global batch's loss of what :class:`~vse_core.models.unified.UnifiedModel` gave, negatives included.

        Its parts are the five terms before they are weighted, both halves of ``l_rel``, the mean entropy of the
        objects' relevance maps in nats, the numbers of captions with components, objects, pairs and triples, and of
        sentences and images the similarities and the share of active hinges. Components without negatives are a
        ValueError.
        """
        kinds = (output.objects, output.pairs, output.triples)
        if any(kind.vectors_MVD.shape[1] < 2 for kind in kinds) or output.pairs.vectors_MVD.shape[1] % 2 == 0:
            raise ValueError(
                "the loss of UniVSE contrasts components with their negatives, and pairs with as many of another "
                f"adjective as of another noun; got {[kind.vectors_MVD.shape[1] - 1 for kind in kinds]} negatives of "
                "objects, pairs and triples"
            )
        images_BKD, image_ids_B = gather_rows(output.images_bKD, counts), gather_rows(image_ids_b, counts)
        terms, parts = self._captions(output, images_BKD, image_ids_B, counts)
        held = gather_counts([len(kind) for kind in kinds], image_ids_b.device)
        objects, pairs, triples = (sum(numbers) for numbers in zip(*held, strict=True))
        sums = all_reduce_sum(torch.stack([*self._regions(output), self._exchanged(output)]))
        obj, adjectives, nouns, entropy, exchanged = sums
        in_batch = self._in_batch(output, images_BKD, counts, [numbers[2] for numbers in held])
        terms["obj"] = obj / max(objects, 1)
        terms["attr"] = (adjectives + nouns) / 2 / max(pairs, 1)
        terms["rel"] = (in_batch + exchanged) / 2 / max(triples, 1)
        parts |= terms | {
            "rel_in_batch": in_batch / max(triples, 1),
            "rel_exchanged": exchanged / max(triples, 1),
            "relevance_entropy": entropy / max(objects, 1),
        }
        parts |= {
            name: sums.new_tensor(float(number))
            for name, number in {"objects": objects, "pairs": pairs, "triples": triples}.items()
        }
        total = torch.stack([weight * terms[name] for name, weight in self.weights.items()]).sum()
        return LossResult(total, {name: part.detach() for name, part in parts.items()})

    def _captions(
        self, output: UnifiedOutput, images_BKD: Tensor, image_ids_B: Tensor, counts: list[int]
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The terms of whole captions, ``sent`` and ``comp``, and what to log of them."""
        has_B = gather_rows(output.has_components_b, counts)
        negative_BB = negative_mask(image_ids_B, self.mask_same_image)
        sentence_sims_BB = similarity_matrix(images_BKD, gather_rows(output.sentences_bD, counts))
        composed_sims_BB = similarity_matrix(images_BKD, gather_rows(output.composed_bD, counts))
        terms = {
            "sent": self._both_directions(sentence_sims_BB, negative_BB, torch.ones_like(has_B)),
            "comp": self._both_directions(composed_sims_BB, negative_BB, has_B),
        }
        hinges = hinge_terms(sentence_sims_BB.detach(), negative_BB, self.margin, self.negatives)
        parts = pair_similarities(sentence_sims_BB, negative_BB) | {
            "captions_with_components": has_B.sum().float(),
            "active_hinges": active_hinges(*hinges, negative_BB),
        }
        return terms, parts

    def _both_directions(self, sims_BB: Tensor, negative_BB: Tensor, takes_part_B: Tensor) -> Tensor:
        """Equation (1) over the captions that take part, divided by the number of all."""
        # A caption that has no part is nobody's negative, and its image does not look for it.
        captions, images = hinge_terms(sims_BB, negative_BB & takes_part_B, self.margin, self.negatives)
        if self.negatives == "all":
            captions, images = _mean_of_active(captions, dim=1), _mean_of_active(images, dim=0)
        return (captions.masked_fill(~takes_part_B, 0.0).sum() + images.sum()) / len(sims_BB)

    def _regions(self, output: UnifiedOutput) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Sums over this process's objects, over its pairs with each half of the negatives, and of the entropies."""
        relevance_ON, objects_OVN = self._relevant(output.objects, output)
        relevance_AN, pairs_AVN = self._relevant(output.pairs, output)
        adjectives_AVN, nouns_AVN = pairs_AVN[:, 1:].chunk(2, dim=1)
        halves = [
            region_hinges(relevance_AN, pairs_AVN[:, 0], half_AVN, self.margin).sum()
            for half_AVN in (adjectives_AVN, nouns_AVN)
        ]
        objects = region_hinges(relevance_ON, objects_OVN[:, 0], objects_OVN[:, 1:], self.margin).sum()
        return objects, *halves, torch.special.entr(relevance_ON.detach()).sum()

    def _relevant(self, components: ComponentVectors, output: UnifiedOutput) -> tuple[Tensor, Tensor]:
        """Relevance (M, N) of the regions to each component, and all similarities (M, V, N)."""
        sims_MVN = region_similarities(components, output.regions_bND)
        mask_MN = output.region_mask_bN[components.owners_M]
        return relevance(sims_MVN[:, 0], mask_MN, self.relevance_temperature), sims_MVN

    def _exchanged(self, output: UnifiedOutput) -> Tensor:
        """Sum over this process's triples of the hinge against the hardest one with a word exchanged."""
        triples_TVD = at_least_float32(output.triples.vectors_MVD)
        images_TKD = at_least_float32(output.images_bKD)[output.triples.owners_M]
        with full_precision(triples_TVD):
            sims_TV = best_view(images_TKD @ triples_TVD.transpose(1, 2))
        return (self.margin + sims_TV[:, 1:].amax(dim=1) - sims_TV[:, 0]).clamp(min=0).sum()

    def _in_batch(
        self, output: UnifiedOutput, images_BKD: Tensor, counts: list[int], triple_counts: list[int]
    ) -> Tensor:
        """Sum over all triples of the hinge against the hardest triple that is not true of the image."""
        if not sum(triple_counts):
            return images_BKD.new_zeros(())
        triples_TD = gather_rows(output.triples.own, triple_counts)
        owners_T = gather_rows(output.triples.owners_M + sum(counts[: rank()]), triple_counts)
        numbers_T = gather_rows(output.triple_numbers_T, triple_counts)
        true_BX = gather_rows(output.true_triples_bX, counts)
        sims_BT = similarity_matrix(images_BKD, triples_TD)
        hardest_B = sims_BT.masked_fill(_contained(numbers_T, true_BX), -torch.inf).amax(dim=1)
        own_T = sims_BT.gather(0, owners_T.unsqueeze(0)).squeeze(0)
        return (self.margin + hardest_B[owners_T] - own_T).clamp(min=0).sum()


@torch.no_grad()
def _contained(numbers_T: Tensor, rows_BX: Tensor) -> Tensor:
    """Whether each number, from 0, is in each row: (B, T)."""
    firsts_B1 = torch.arange(len(rows_BX), device=rows_BX.device).unsqueeze(1) * (numbers_T.max() + 1)
    wanted_BX = rows_BX.where((rows_BX >= 0) & (rows_BX <= numbers_T.max()), -1 - firsts_B1)
    return torch.isin(firsts_B1 + numbers_T, firsts_B1 + wanted_BX)


def _mean_of_active(hinges_BB: Tensor, dim: int) -> Tensor:
    """Mean hinge (B,) over the negatives that violate the margin; 0 where none does."""
    return hinges_BB.sum(dim=dim) / (hinges_BB > 0).sum(dim=dim).clamp(min=1)
