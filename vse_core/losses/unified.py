"""The loss of UniVSE: sentences, all components and relations against images, objects and attributes against regions.

b pairs of this process and B of all; O objects, A pairs of an adjective and a noun, T triples; of this process where
they are lower case in the text, of all processes in the normalisation.
"""

from dataclasses import replace

import torch
from torch import Tensor

from vse_core.distributed import all_reduce_sums, gather_counts, gather_rows, rank
from vse_core.losses.components import ComponentVectors, UnifiedOutput, region_hinges, region_similarities, relevance
from vse_core.losses.global_pairs import (
    Block,
    GlobalLoss,
    GlobalPairs,
    LossResult,
    Sums,
    detached,
    pair_similarities,
)
from vse_core.losses.hinge import Negatives, active_share, active_sums, hinge_terms
from vse_core.precision import at_least_float32, full_precision
from vse_core.similarity import best_view, similarity_matrix


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
        component_weight: c, not negative, like the next two.
        object_weight: o.
        attribute_weight: a.
        relation_weight: r, which is 0 for the paper's first two epochs.
        negatives: of sentences and composed components, ``hardest``, or ``all`` to begin with: the mean hinge of those
            that violate the margin takes the place of the hardest one's, so that the weights of the terms hold as well.
        mask_same_image: as in the triplet loss; relations never take captions of the same image.
        relevance_temperature: divisor of the similarities in equation (2). At 1, as published, the map of an image of
            49 regions is nearly even; the paper draws its maps at 0.1.
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
        self.margin = margin
        self.weights = {
            "sent": 1.0,
            "comp": component_weight,
            "obj": object_weight,
            "attr": attribute_weight,
            "rel": relation_weight,
        }
        self.relevance_temperature = relevance_temperature
        self.negatives: Negatives = negatives
        self.mask_same_image = mask_same_image

    def from_local_batch(self, output: UnifiedOutput, image_ids_b: Tensor, counts: list[int]) -> LossResult:
        """The global batch's loss of what :class:`~vse_core.models.unified.UnifiedModel` gave, negatives included.

        Each pair has as many negatives of another adjective as of another noun. The loss's parts are the unweighted
        terms, both halves of ``l_rel``, the mean entropy of the objects' relevance maps in nats, the numbers of
        components, and of sentences and images the similarities and the share of active hinges.
        """
        kinds = (output.objects, output.pairs, output.triples)
        terms, parts = self._captions(output, image_ids_b, counts)
        held = gather_counts([len(kind) for kind in kinds], image_ids_b.device)
        objects, pairs, triples = (sum(numbers) for numbers in zip(*held, strict=True))
        in_batch = self._in_batch(output, [numbers[2] for numbers in held])
        sums = all_reduce_sums([*self._regions(output), self._exchanged(output), in_batch])
        obj, adjectives, nouns, entropy, exchanged, in_batch = sums
        terms["obj"] = obj / max(objects, 1)
        terms["attr"] = (adjectives + nouns) / 2 / max(pairs, 1)
        terms["rel"] = (in_batch + exchanged) / 2 / max(triples, 1)
        parts |= terms | {
            "rel_in_batch": in_batch / max(triples, 1),
            "rel_exchanged": exchanged / max(triples, 1),
            "relevance_entropy": entropy / max(objects, 1),
        }
        numbers = {"objects": objects, "pairs": pairs, "triples": triples}
        parts |= {name: obj.new_full((), float(number)) for name, number in numbers.items()}
        total = torch.stack([weight * terms[name] for name, weight in self.weights.items()]).sum()
        return LossResult(total, detached(parts))

    def _captions(self, output: UnifiedOutput, image_ids_b: Tensor, counts: list[int]) -> tuple[Sums, Sums]:
        """Return the terms of captions, ``sent`` and ``comp``, and what to log of them."""
        has_B = gather_rows(output.has_components_b, counts)
        sentences, composed = (
            GlobalPairs(output.images_bKD, texts_bD, image_ids_b, counts, self.mask_same_image)
            for texts_bD in (output.sentences_bD, output.composed_bD)
        )
        sums = sentences.sums(self._sentence_terms)
        sums |= composed.sums(lambda block: {"comp": self._by_anchor(self._hinges(_of_some(block, has_B))).sum()})
        parts = {"captions_with_components": has_B.sum().float()} | active_share(sums)
        if self.is_diagnosed:
            parts |= pair_similarities(sentences)
        return {name: sums[name] / len(sentences) for name in ("sent", "comp")}, parts

    def _sentence_terms(self, block: Block) -> Sums:
        terms = self._hinges(block)
        return {"sent": self._by_anchor(terms).sum()} | (active_sums(block, terms) if self.is_diagnosed else {})

    def _hinges(self, block: Block) -> Tensor:
        return hinge_terms(block, block.sims_AC, self.margin, self.negatives)

    def _by_anchor(self, hinges: Tensor) -> Tensor:
        """One hinge (A,) for each anchor; of all negatives' the mean of those that violate the margin, 0 for none."""
        if self.negatives == "hardest":
            return hinges
        return hinges.sum(dim=1) / (hinges > 0).sum(dim=1).clamp(min=1)

    def _regions(self, output: UnifiedOutput) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Sums over this process's objects, over its pairs with each half of the negatives, and of the entropies."""
        relevance_ON, objects_OVN = self._relevant(output.objects, output)
        relevance_AN, pairs_AVN = self._relevant(output.pairs, output)
        halves = [
            region_hinges(relevance_AN, pairs_AVN[:, 0], half_AVN, self.margin).sum()
            for half_AVN in pairs_AVN[:, 1:].chunk(2, dim=1)
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

    def _in_batch(self, output: UnifiedOutput, triple_counts: list[int]) -> Tensor:
        """Sum over this process's triples of the hinge against the hardest of all that is not true of the image."""
        if not sum(triple_counts):
            return at_least_float32(output.images_bKD).new_zeros(())
        triples_TD = gather_rows(output.triples.own, triple_counts)
        numbers_T = gather_rows(output.triple_numbers_T, triple_counts)
        sims_bT = similarity_matrix(output.images_bKD, triples_TD)
        is_true_bT = (output.true_triples_bX.unsqueeze(2) == numbers_T).any(dim=1)
        hardest_b = sims_bT.masked_fill(is_true_bT, -torch.inf).amax(dim=1)
        owners_t, first = output.triples.owners_M, sum(triple_counts[: rank()])
        own_t = sims_bT[owners_t, torch.arange(first, first + len(owners_t), device=owners_t.device)]
        return (self.margin + hardest_b[owners_t] - own_t).clamp(min=0).sum()


def _of_some(block: Block, takes_part_B: Tensor) -> Block:
    """Leave out captions that take no part: they are nobody's negatives and look for none, as does their image."""
    takes_part_AC = takes_part_B[block.first : block.first + len(block.sims_AC)].unsqueeze(1)
    if block.of_images:
        takes_part_AC = takes_part_AC & takes_part_B
    return replace(block, negative_AC=block.negative_AC & takes_part_AC)
