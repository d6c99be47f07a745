"""Confidence of a search's hits: a softmax of their scores at a temperature that makes it right as often as it says.

Q queries, N items of the gallery.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

_BINS = 15
# The temperatures that one is chosen from.
_LOWEST, _HIGHEST, _STEPS = 0.005, 0.5, 70


class Calibration(NamedTuple):
    """The temperature of the softmax, and the expected calibration error of the first hits that it leaves (0 to 1)."""

    temperature: float
    error: float


def hit_confidence(scores_Q: Tensor, log_total_Q: Tensor, temperature: float, relevant: float) -> Tensor:
    """Return the probability that an item is relevant (Q,): ``1 - (1 - exp(s / T - log_total))^relevant``.

    ``log_total_Q`` is the logarithm of the sum of ``exp(s / T)`` over the gallery. The softmax shares one among the
    items; an item is relevant if it is any of the `relevant` ones that a query has on average.
    """
    share_Q = (scores_Q / temperature - log_total_Q).exp().clamp(0, 1)
    return 1 - (1 - share_Q) ** relevant


def calibrate(scores_QN: Tensor, is_relevant_QN: Tensor, group_Q: Tensor, relevant: float) -> Calibration:
    """Choose the temperature by the likelihood of whether first hits are relevant (Guo et al., ICML 2017).

    The error is of either half of the groups, every second one, by the temperature that was chosen on the other half;
    of a single group by that of its own.
    """
    top = scores_QN.max(dim=1)
    is_right_Q = is_relevant_QN.gather(1, top.indices.unsqueeze(1))[:, 0].float()
    temperatures = torch.logspace(math.log10(_LOWEST), math.log10(_HIGHEST), _STEPS).tolist()
    confidence_TQ = torch.stack(
        [hit_confidence(top.values, (scores_QN / t).logsumexp(dim=1), t, relevant) for t in temperatures]
    )
    loss_TQ = torch.nn.functional.binary_cross_entropy(
        confidence_TQ.clamp(1e-6, 1 - 1e-6), is_right_Q.expand_as(confidence_TQ), reduction="none"
    )
    best = int(loss_TQ.mean(dim=1).argmin())
    # Some of the groups may be left out, as every second one of many.
    is_even_Q = group_Q.unique(return_inverse=True)[1] % 2 == 0
    of_even, of_odd = (
        int(loss_TQ[:, half].mean(dim=1).argmin()) if half.any() else best for half in (is_even_Q, ~is_even_Q)
    )
    held_out_Q = torch.where(is_even_Q, confidence_TQ[of_odd], confidence_TQ[of_even])
    return Calibration(temperatures[best], calibration_error(held_out_Q, is_right_Q))


def calibration_error(confidence_Q: Tensor, is_right_Q: Tensor) -> float:
    """Return the mean difference of confidence and share that is right, over 15 equally wide bins by their sizes."""
    bin_Q = (confidence_Q * _BINS).long().clamp(0, _BINS - 1)
    differences = torch.zeros(_BINS).index_add(0, bin_Q, confidence_Q - is_right_Q)
    return float(differences.abs().sum() / len(confidence_Q))
