"""The multi-view hinge losses of MV-VSE: images of K views, of which each caption needs to match one."""

from typing import Literal

import torch
from torch import Tensor

from vse_core.losses.global_pairs import Block, GlobalPairs, PairLoss, Sums, TotalAndParts
from vse_core.losses.hinge import Negatives, active_share, active_sums, hinge_terms

HingeBound = Literal["max", "avg", "up", "up_rough", "joint", "journal", "journal_soft"]

# Scale of the smooth maximum and hinge of the released code.
_SOFTNESS = 0.01


class MultiViewLoss(PairLoss):
    """Hinge losses over the best view, over every view, or bounds between them (MV-VSE, equations (8) to (15)).

    With ``s_k`` the similarity of view k and ``s*`` the largest of them, ``bound`` is

    - ``max``: the triplet loss of ``s*`` (equation (9)); only the best view of each pair learns, and one view may win
      everywhere;
    - ``avg``: the mean of the views' own triplet losses (8);
    - ``up``: the mean over the views of ``[margin - s_k(pair) + s*(negative)]+``, if ``max`` is not 0 already (10);
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

    ``lam``, from 0 to 1, is the weight of ``max`` in ``joint``, of ``up_rough`` in the journal's bounds. The mean is
    their default reduction, as published, else the sum. Other arguments are TripletLoss's.
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
        super().__init__(mask_same_image)
        self.is_journal = bound.startswith("journal")
        self.reduction = reduction or ("mean" if self.is_journal else "sum")
        self.bound = bound
        self.lam = lam
        self.margin = margin
        self.negatives: Negatives = negatives
        self.softness = _SOFTNESS if bound == "journal_soft" else None

    def total_and_parts(self, pairs: GlobalPairs) -> TotalAndParts:
        """The weighted sum of the bounds, its parts; if diagnosed, with the best view's share of active hinges."""
        sums = pairs.sums(self._terms_of_bounds)
        scale = (0.5 if self.is_journal else 1.0) / (len(pairs) if self.reduction == "mean" else 1)
        weights = self._weights()
        parts = {f"bound_{name}": scale * sums[name] for name in weights}
        total = torch.stack([weight * parts[f"bound_{name}"] for name, weight in weights.items()]).sum()
        return total, parts | active_share(sums)

    def _terms_of_bounds(self, block: Block) -> Sums:
        sums = {name: self._bound(name, block) for name in self._weights()}
        if self.is_diagnosed:
            sums |= active_sums(block, hinge_terms(block, block.sims_AC.detach(), self.margin, self.negatives))
        return sums

    def _weights(self) -> dict[str, float]:
        if self.bound == "joint":
            return {"max": self.lam, "up": 1 - self.lam}
        if self.is_journal:
            return {"up_rough": self.lam, "low": 1 - self.lam}
        return {self.bound: 1.0}

    def _bound(self, name: str, block: Block) -> Tensor:
        """One direction of a bound, summed over the anchors, averaged over the views."""
        terms = self._terms(block, name)
        if name == "up":
            terms = terms * (self._terms(block, "max") > 0)
        return terms.sum() / len(terms)

    def _terms(self, block: Block, bound: str) -> Tensor:
        return hinge_terms(block, _view_matrices(block, bound), self.margin, self.negatives, self.softness)


def _view_matrices(block: Block, bound: str) -> Tensor:
    """Return the similarity matrices (M, A, C) that a bound averages over, M = 1 for ``max`` and K otherwise.

    The upper bounds set the pairs of each view against the negatives of the best view (MV-VSE, equation (10)): pairs
    look worse and negatives better than they are. ``low`` does the opposite.
    """
    best_AC = block.sims_AC
    views_KAC = block.sims_AKC.transpose(0, 1)
    if bound == "max":
        return best_AC.unsqueeze(0)
    if bound == "avg":
        return views_KAC
    own_AC = block.own_mask()
    return torch.where(own_AC, best_AC, views_KAC) if bound == "low" else torch.where(own_AC, views_KAC, best_AC)
