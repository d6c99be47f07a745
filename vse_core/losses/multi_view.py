"""The multi-view hinge losses of MV-VSE: images of K views, of which each caption needs to match one."""

from typing import Literal, get_args

from torch import Tensor, nn

from vse_core.losses.hinge import Negatives, check_hinge, hinge_terms
from vse_core.losses.result import LossResult, pair_similarities
from vse_core.losses.similarity import best_view, negative_mask, view_similarities
from vse_core.losses.views import Pairing, check_bound, view_diagnostics, view_matrices

HingeBound = Literal["max", "avg", "up", "up_rough", "joint", "journal", "journal_soft"]

# Scale of the smooth maximum and hinge of the released journal variant.
_SOFTNESS = 0.01


class MultiViewLoss(nn.Module):
    """Hinge losses over the best view, over every view, or bounds between them (MV-VSE, equations (8) to (15)).

    With ``s_k`` the similarity of view k and ``s*`` the largest of them, ``bound`` is

    - ``max``: the triplet loss of ``s*`` (equation (9)); only the best view of each pair learns, and one view may win
      everywhere;
    - ``avg``: the mean of the views' own triplet losses (8);
    - ``up``: the mean over the views of ``[margin - s_k(pair) + s*(negative)]+``, where ``max`` is not 0 already (10);
    - ``up_rough``: the same everywhere (13);
    - ``joint``: ``lam * max + (1 - lam) * up`` (15), the published system;
    - ``journal``: ``lam * up_rough + (1 - lam) * low``, where ``low`` is the mean over the views of
      ``[margin - s*(pair) + s_k(negative)]+`` with each view's own hardest negatives, averaged over both directions:
      the released code, which belongs to a later journal article;
    - ``journal_soft``: the same with log-sum-exp for the hardest negative and softplus for the hinge, at scale 0.01.

    Hardest negatives are those under ``s*`` but in ``avg`` and ``low``. So ``max <= up <= up_rough`` (14), and with one
    view all of them are the triplet loss (the journal's half of it).

    Differs from the paper: equations (11) and (12) demand a violation in every view, which is a violation of ``s*``;
    it is computed as such. The paper leaves open how training begins: with ``negatives="all"`` the equations hold for
    each negative pair instead of the hardest.

    Args:
        bound: see above.
        lam: weight of ``max`` in ``joint``, and of ``up_rough`` in the journal's bounds.
        margin: how far a pair must lie above its negatives, in similarity.
        negatives: ``hardest``, or ``all`` for the beginning of training.
        reduction: ``sum`` over the batch or its ``mean`` (the sum divided by B); as published where it is not given:
            the mean for the journal's bounds, else the sum.
        mask_same_image: do not take other captions of the same image as negatives.

    Raises:
        ValueError: an option has an unknown value.
    """

    def __init__(
        self,
        bound: HingeBound = "joint",
        lam: float = 0.7,
        margin: float = 0.2,
        negatives: Negatives = "hardest",
        reduction: Literal["sum", "mean"] | None = None,
        mask_same_image: bool = False,
    ) -> None:
        super().__init__()
        check_bound(bound, lam, get_args(HingeBound))
        self.is_journal = bound.startswith("journal")
        self.reduction = reduction or ("mean" if self.is_journal else "sum")
        check_hinge(negatives, self.reduction)
        self.bound = bound
        self.lam = lam
        self.margin = margin
        self.negatives: Negatives = negatives
        self.softness = _SOFTNESS if bound == "journal_soft" else None
        self.mask_same_image = mask_same_image

    def forward(self, images_BKD: Tensor, texts_BD: Tensor, image_ids_B: Tensor) -> LossResult:
        """Loss of B pairs; row i of the images and of the texts belong together.

        Args:
            images_BKD: (B, K, D) unit vectors, K views of each image.
            texts_BD: (B, D) unit vectors.
            image_ids_B: (B,) integers, equal where two captions belong to one image.

        Returns:
            The total; as parts the bounds that it is made of, the mean similarity of pairs and of their hardest
            negatives, and the diagnostics of the views.
        """
        sims_BKB = view_similarities(images_BKD, texts_BD)
        negative_BB = negative_mask(image_ids_B, self.mask_same_image)
        scale = (0.5 if self.is_journal else 1.0) / (len(sims_BKB) if self.reduction == "mean" else 1)
        bounds = {name: scale * self._bound(name, sims_BKB, negative_BB) for name in self._weights()}
        total = sum((weight * bounds[name] for name, weight in self._weights().items()), start=sims_BKB.new_zeros(()))
        parts = {f"bound_{name}": bound.detach() for name, bound in bounds.items()}
        parts |= pair_similarities(best_view(sims_BKB), negative_BB) | view_diagnostics(images_BKD, sims_BKB)
        return LossResult(total, parts)

    def _weights(self) -> dict[str, float]:
        if self.bound == "joint":
            return {"max": self.lam, "up": 1 - self.lam}
        if self.is_journal:
            return {"up_rough": self.lam, "low": 1 - self.lam}
        return {self.bound: 1.0}

    def _bound(self, name: str, sims_BKB: Tensor, negative_BB: Tensor) -> Tensor:
        """Both directions of a bound, summed over the batch, averaged over the views."""
        pairings: dict[str, Pairing] = {"max": "max", "avg": "avg", "up": "up", "up_rough": "up", "low": "low"}
        directions = self._terms(sims_BKB, pairings[name], negative_BB)
        if name == "up":
            active = self._terms(sims_BKB, "max", negative_BB)
            directions = tuple(terms * (best > 0) for terms, best in zip(directions, active, strict=True))
        return sum((terms.sum() / len(terms) for terms in directions), start=sims_BKB.new_zeros(()))

    def _terms(self, sims_BKB: Tensor, pairing: Pairing, negative_BB: Tensor) -> tuple[Tensor, ...]:
        sims_MBB = view_matrices(sims_BKB, pairing)
        return hinge_terms(sims_MBB, negative_BB, self.margin, self.negatives, self.softness)
