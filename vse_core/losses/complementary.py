"""The active complementary loss of CRCL, for pairs of which many are wrong."""

import torch
from torch import Tensor

from vse_core.losses.contrastive import TemperatureLoss
from vse_core.losses.global_pairs import Block, GlobalPairs, Sums, TotalAndParts

# Weight of the complementary part (released code).
_WEIGHT = 5.0


class ComplementaryLoss(TemperatureLoss):
    """Learn from a pair as far as it is trusted, and from its negatives in any case (CRCL, Qin et al. 2023).

    With p the softmax over an anchor's candidates and y the trust in its pair, each direction costs
    ``-y log p_own + 5 sum_negatives tan(p) / (sum_all tan(p))^(1 - y)``: of a trusted pair it is the cross-entropy and
    more, of others the robust part alone. y is 1 with ``trusting``, as in the first epochs, later the mean of the two
    p_own, without a gradient. Later epochs are those of the released code (https://github.com/QinYang79/CRCL, Apache
    License 2.0) without its option `mc`, the first those with it.

    Differs from the paper: trust is that of the step, not averaged over the epochs, and is not 0 below 0.1 (released
    code), and training does not begin again.

    Other arguments are those of :class:`~vse_core.losses.contrastive.TemperatureLoss`; CRCL's temperature is 0.05.
    """

    def __init__(self, temperature: float = 0.05, trusting: bool = False, mask_same_image: bool = False) -> None:
        super().__init__(temperature, mask_same_image)
        self.trusting = trusting

    def total_and_parts(self, pairs: GlobalPairs) -> TotalAndParts:
        """Mean over the batch; its parts are both terms, ``active`` and ``complementary``, and the mean ``trust``."""
        trusts = self._trusts(pairs)
        sums = pairs.sums(lambda block: self._terms(block, trusts[block.first]))
        parts = {name: sums[name] / len(pairs) for name in ("active", "complementary")}
        return parts["active"] + parts["complementary"], parts | {"trust": sums["trust"] / len(pairs) / 2}

    @torch.no_grad()
    def _trusts(self, pairs: GlobalPairs) -> dict[int, Tensor]:
        """Return the trust in the pairs of each block, by its first anchor: the same in both directions."""
        trusts: dict[int, Tensor] = {}

        def add(block: Block) -> Sums:
            half_A = block.own(self._log_shares(block)).exp() / 2
            trusts[block.first] = trusts[block.first] + half_A if block.first in trusts else half_A
            return {"trust": half_A.sum()}

        pairs.sums(add)
        return {first: torch.ones_like(trust_A) if self.trusting else trust_A for first, trust_A in trusts.items()}

    def _terms(self, block: Block, trust_A: Tensor) -> Sums:
        log_shares_AC = self._log_shares(block)
        tangents_AC = log_shares_AC.exp().tan()
        negatives_A = tangents_AC.masked_fill(~block.negative_AC, 0.0).sum(dim=1)
        return {
            "active": -(trust_A * block.own(log_shares_AC)).sum(),
            "complementary": _WEIGHT * (negatives_A / tangents_AC.sum(dim=1) ** (1 - trust_A)).sum(),
            "trust": trust_A.sum(),
        }

    def _log_shares(self, block: Block) -> Tensor:
        """Log softmax (A, C) over the negatives and the own candidate, -inf for others."""
        is_candidate_AC = block.negative_AC | block.own_mask()
        return self.divided(block.sims_AC).masked_fill(~is_candidate_AC, -torch.inf).log_softmax(dim=1)
