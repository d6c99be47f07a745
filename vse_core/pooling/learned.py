"""Aggregators with a few learned weights, and their like without: GeM, FSPool, SoftPool, AdaPool, LIP, attention."""

import torch
from torch import Tensor, nn

from vse_core.pooling.base import Pooling
from vse_core.pooling.masks import softmax_weighted_sum
from vse_core.pooling.sorting import rank_weighted_sum
from vse_core.precision import at_least_float32


class GeMPooling(Pooling):
    """Generalized mean ``(mean of x**p) ** (1/p)`` with a trainable p: mean at 1, maximum at infinity.

    Radenovic, Tolias and Chum, "Fine-tuning CNN image retrieval with no human annotation", TPAMI 2019, equation (3).
    Values below 1e-6 are raised to it, as in their code.

    Differs from their code: the powers are taken in logarithms, so that none overflows, however large p grows.
    """

    def __init__(self, power: float = 3.0) -> None:
        super().__init__()
        self.power = nn.Parameter(torch.tensor(float(power)))

    def _pool(self, features_BND: Tensor, lengths_B: Tensor, valid_BN1: Tensor) -> Tensor:
        logarithms_BND = at_least_float32(features_BND).clamp(min=1e-6).log()
        powers_BND = (self.power * logarithms_BND).masked_fill(~valid_BN1, -float("inf"))
        mean_BD = powers_BND.logsumexp(dim=1) - lengths_B.unsqueeze(-1).to(powers_BND.dtype).log()
        return (mean_BD / self.power).exp()


class FSPooling(Pooling):
    """Weight the ranks of every dimension by a learned piecewise linear function of rank / size.

    Zhang, Hare and Prügel-Bennett, "FSPool: Learning set representations with featurewise sort pooling", ICLR 2020,
    section 3, with 20 pieces in its experiments. The result is a sum, as in the paper: its scale grows with the set.
    """

    def __init__(self, dim: int, pieces: int = 20) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(dim, pieces + 1))

    def _pool(self, features_BND: Tensor, lengths_B: Tensor, valid_BN1: Tensor) -> Tensor:
        # The function is linear in its values at the P + 1 points, so the ranks are first summed around each point:
        # no weight per element and dimension is ever made.
        weights_BPN = interpolation_weights(lengths_B, features_BND.shape[1], self.weight.shape[1] - 1)
        around_BPD = rank_weighted_sum(features_BND, lengths_B, weights_BPN)
        return (around_BPD * self.weight.t()).sum(dim=1)


def interpolation_weights(lengths_B: Tensor, size: int, pieces: int) -> Tensor:
    """Return the weight of each of P + 1 points, evenly spread over a set's ranks, at each rank: (B, P + 1, size).

    Linear interpolation between the two nearest points, in float64; the first rank is the first point, the last rank
    the last.
    """
    ranks_N = torch.arange(size, device=lengths_B.device, dtype=torch.float64)
    places_BN = pieces * ranks_N / (lengths_B.unsqueeze(-1) - 1).clamp(min=1)
    points_P1 = torch.arange(pieces + 1, device=lengths_B.device).unsqueeze(-1)
    return (1 - (places_BN.unsqueeze(1) - points_P1).abs()).clamp(min=0)


class SoftPooling(Pooling):
    """Weight every value by the softmax of the values of its dimension: a soft maximum without parameters.

    Stergiou, Poppe and Kalliatakis, "Refining activation downsampling with SoftPool", ICCV 2021, equations (1), (2);
    also the embedding level of VSE+2AD's ADPOOL (its equation (4)).
    """

    def _pool(self, features_BND: Tensor, lengths_B: Tensor, valid_BN1: Tensor) -> Tensor:
        return softmax_weighted_sum(features_BND, features_BND, valid_BN1)


class AdaPooling(Pooling):
    """A learned mixture of SoftPool with weights by likeness to the mean.

    Stergiou and Poppe, "AdaPool: Exponential adaptive pooling for information-retaining downsampling", TIP 2023:
    ``beta * eDSCW + (1 - beta) * eM``, where eM is SoftPool, and eDSCW weights an element by the softmax over the set
    of its Dice-Sørensen coefficient ``2 |x . m| / (|x|**2 + |m|**2)`` with the mean m. (Their code compares every
    dimension by itself, with its sign, and cuts off negative results.)

    Differs from the paper: there is one region, the complete set, and so one beta; a sigmoid instead of clipping keeps
    it between 0 and 1. It starts at one half.
    """

    def __init__(self) -> None:
        super().__init__()
        self.beta = nn.Parameter(torch.zeros(()))

    def _pool(self, features_BND: Tensor, lengths_B: Tensor, valid_BN1: Tensor) -> Tensor:
        values_BND = at_least_float32(features_BND).masked_fill(~valid_BN1, 0.0)
        alike_BD = softmax_weighted_sum(_likeness_to_mean(values_BND, lengths_B), values_BND, valid_BN1)
        largest_BD = softmax_weighted_sum(values_BND, values_BND, valid_BN1)
        return torch.lerp(largest_BD, alike_BD, self.beta.sigmoid())


def _likeness_to_mean(values_BND: Tensor, lengths_B: Tensor) -> Tensor:
    """Dice-Sørensen coefficient (B, N, 1) of every element with the mean of its set; padding must be zeros."""
    # The coefficient is the same at any scale, and squares of values around 1 do not overflow.
    scale_B11 = values_BND.detach().abs().amax(dim=(1, 2), keepdim=True)
    values_BND = values_BND / scale_B11.clamp(min=torch.finfo(values_BND.dtype).tiny)
    mean_B1D = values_BND.sum(dim=1, keepdim=True) / lengths_B[:, None, None]
    overlap_BN1 = 2 * (values_BND * mean_B1D).sum(dim=-1, keepdim=True).abs()
    squares_BN1 = values_BND.square().sum(dim=-1, keepdim=True) + mean_B1D.square().sum(dim=-1, keepdim=True)
    return overlap_BN1 / squares_BN1.clamp(min=torch.finfo(values_BND.dtype).tiny)


class AttentionPooling(Pooling):
    """Weight every element by the softmax over the set of a linear function of it: one weight for all dimensions.

    The aggregator of HGR's global branch, of frames and of words (Chen et al., CVPR 2020, sections 3.1 and 3.2), in
    whose place HGR-infinity has GPO.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.linear = nn.Linear(dim, 1)

    def _pool(self, features_BND: Tensor, lengths_B: Tensor, valid_BN1: Tensor) -> Tensor:
        logits_BN1 = self.linear(at_least_float32(features_BND))
        return softmax_weighted_sum(logits_BN1, features_BND, valid_BN1)


class LocalImportancePooling(Pooling):
    """Weight every value by the exponential of an importance that a small network reads from the element.

    Gao, Wang and Wu, "LIP: Local importance-based pooling", ICCV 2019, equation (4), with the projection form of the
    importance: linear layer, instance norm over the set, sigmoid times 12. The window is the complete set. The norm's
    scale starts at 0, so that training starts from mean pooling; in their code the layer's weights do, to the same end.
    """

    HIGHEST = 12.0
    """Largest logit of an importance (section 3.3 of the paper)."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.linear = nn.Linear(dim, dim, bias=False)
        self.scale = nn.Parameter(torch.zeros(dim))
        self.shift = nn.Parameter(torch.zeros(dim))

    def _pool(self, features_BND: Tensor, lengths_B: Tensor, valid_BN1: Tensor) -> Tensor:
        projected_BND = at_least_float32(self.linear(at_least_float32(features_BND))).masked_fill(~valid_BN1, 0.0)
        count_B11 = lengths_B[:, None, None]
        mean_B1D = projected_BND.sum(dim=1, keepdim=True) / count_B11
        centred_BND = (projected_BND - mean_B1D).masked_fill(~valid_BN1, 0.0)
        variance_B1D = centred_BND.square().sum(dim=1, keepdim=True) / count_B11
        normed_BND = centred_BND * (variance_B1D + 1e-5).rsqrt() * self.scale + self.shift
        logits_BND = self.HIGHEST * normed_BND.sigmoid()
        return softmax_weighted_sum(logits_BND, features_BND, valid_BN1)
