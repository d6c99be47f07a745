"""PCME++ as a plugin (Chun, ICLR 2024): images and captions are normal distributions in one space.

The mean is the embedding that search, index and service use; the variances, of which an ambiguous image or caption has
large ones, enter the distance of the loss, and are told by `distributions`. A configuration says

    plugins: [pcmepp.py]
    model: {image: {pooling: {name: probabilistic}}, text: {pooling: {name: probabilistic}}}
    loss: {name: pcmepp, mask_same_image: false}

Differs from the paper: both aggregators read the same projected set, where the paper gives the variances a last layer
of CLIP's own; mixed images and captions (its MSDA) are left out. The released code, at
https://github.com/naver-ai/pcmepp, has the MIT licence.

A anchors, B images and captions, C candidates, N set elements, D embedding.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from pipelines.config.model import ModelConfig
from pipelines.kinds.behaviour import Behaviour
from pipelines.kinds.kind import ModelKind
from pipelines.schema.fields import Float, Strict
from pipelines.schema.losses import Loss
from vse_core.distributed import all_reduce_sum
from vse_core.losses.global_pairs import (
    Block,
    GlobalLoss,
    GlobalPairs,
    LossResult,
    Sums,
    detached,
    pair_similarities,
)
from vse_core.models import Model
from vse_core.outputs import ComparedImages
from vse_core.pooling.base import Pooling
from vse_core.pooling.gpo import GeneralizedPooling
from vse_core.precision import at_least_float32, full_precision


class PoolingSettings(Strict):
    """GPO of a set into the mean, and of a linear layer over it into the logarithms of the variances."""

    name: Literal["probabilistic"]
    bias: Float = Field(-9.0, description="first logarithm of every variance: exp(-9) in 512 dimensions add up to 0.06")


class ProbabilisticPooling(Pooling):
    """Pool the mean; the logarithms of the variances (B, D) of the last call are `log_variances_BD`."""

    def __init__(self, dim: int, bias: float = -9.0) -> None:
        super().__init__()
        self.mean, self.variance = GeneralizedPooling(), GeneralizedPooling()
        self.linear = nn.Linear(dim, dim)
        nn.init.xavier_uniform_(self.linear.weight)
        nn.init.constant_(self.linear.bias, bias)
        self.log_variances_BD = torch.empty(0, dim)

    def _pool(self, features_BND: Tensor, lengths_B: Tensor, valid_BN1: Tensor) -> Tensor:
        raw_BND = self.linear(features_BND).masked_fill(~valid_BN1, 0.0)
        self.log_variances_BD = at_least_float32(self.variance(raw_BND, lengths_B))
        pooled_BD: Tensor = self.mean(features_BND, lengths_B)
        return pooled_BD


@dataclass(frozen=True, slots=True)
class Normals(ComparedImages):
    """Normal distributions: means of unit length, and the logarithms of the variances of every dimension."""

    means_bD: Tensor
    log_variances_bD: Tensor

    @property
    def uncertainties_b(self) -> Tensor:
        """Return the sum of the variances."""
        return self.log_variances_bD.exp().sum(dim=1)

    def similarities(self, texts: Normals) -> Tensor:
        """Return the closed-form sampled distances (b, C), negated: ``|m - m'|^2 + sum(v + v')`` (equation (1))."""
        with full_precision(self.means_bD):
            products_bC = self.means_bD @ texts.means_bD.T
        squares = self.means_bD.square().sum(dim=1, keepdim=True) + texts.means_bD.square().sum(dim=1)
        return 2 * products_bC - squares - self.uncertainties_b.unsqueeze(1) - texts.uncertainties_b

    def numbers_per_pair(self, texts: Normals) -> int:
        """Return the numbers of a pair: its distance."""
        return 1


class LossSettings(Loss):
    """A binary decision for every image and caption by their distance (PCME++, equation (2))."""

    name: Literal["pcmepp"]
    scale: Float = Field(5.0, gt=0, description="factor of the distances, learned from this value on (released: 5)")
    shift: Float = Field(5.0, description="added to them, learned from this value on (released: 5)")
    pseudo_positives: Float = Field(
        0.1, ge=0, description="weight of those as near as the pair itself (paper: 0.1; 0 if weights are random)"
    )
    bottleneck: Float = Field(1e-4, ge=0, description="weight of the divergence from N(0, 1) (paper: 0.0001)")


class ClosedFormLoss(GlobalLoss):
    """Cross-entropy of ``shift - scale distance`` for every image and caption, with pseudo-positives (section 2.3)."""

    def __init__(
        self, scale: float, shift: float, pseudo_positives: float, bottleneck: float, mask_same_image: bool
    ) -> None:
        super().__init__()
        self.scale, self.shift = (nn.Parameter(torch.tensor(float(value))) for value in (scale, shift))
        self.pseudo_positives, self.bottleneck = pseudo_positives, bottleneck
        self.mask_same_image = mask_same_image

    def from_local_batch(self, output: tuple[Normals, Normals], image_ids_b: Tensor, counts: list[int]) -> LossResult:
        """Mean over all decisions, of both directions; its parts are the terms, scale, shift and mean uncertainties."""
        pairs = GlobalPairs(*output, image_ids_b, counts, self.mask_same_image, lambda a, b: a.similarities(b)[:, None])
        terms = {name: value / len(pairs) ** 2 for name, value in pairs.sums(self._terms).items()}
        sums = [torch.stack([_divergence(side).sum(), side.uncertainties_b.sum()]) for side in output]
        divergences, uncertainties = (all_reduce_sum(torch.stack(sums)) / len(pairs)).T
        total = terms["match"] + self.pseudo_positives * terms["pseudo"] + self.bottleneck * divergences.sum()
        parts = terms | {"scale": self.scale, "shift": self.shift} | pair_similarities(pairs)
        parts |= {"image_uncertainty": uncertainties[0], "caption_uncertainty": uncertainties[1]}
        return LossResult(total, detached(parts))

    def _terms(self, block: Block) -> Sums:
        logits_AC, own_AC = self.scale * block.sims_AC + self.shift, block.own_mask()
        is_near_AC = block.sims_AC >= block.own(block.sims_AC).unsqueeze(1)
        decided_AC = (own_AC | block.negative_AC).to(logits_AC)
        matches = {"match": own_AC, "pseudo": own_AC | is_near_AC}
        losses = {
            name: binary_cross_entropy_with_logits(logits_AC, match_AC.to(logits_AC), reduction="none")
            for name, match_AC in matches.items()
        }
        return {name: (losses_AC * decided_AC).sum() for name, losses_AC in losses.items()}


def _divergence(normals: Normals) -> Tensor:
    """Return the divergence (b,) from the standard normal distribution, the mean over the dimensions."""
    logs_bD = normals.log_variances_bD
    return -0.5 * (1 + logs_bD - normals.means_bD.square() - logs_bD.exp()).mean(dim=1)


class ProbabilisticModel(nn.Module):
    """Two towers whose aggregators tell the variances."""

    def __init__(self, towers: Any) -> None:
        super().__init__()
        self.towers = towers

    def forward(self, *inputs: Tensor) -> tuple[Normals, Normals]:
        """Encode a batch of pairs."""
        images_BKD, texts_BD = self.towers(*inputs)
        sides = (self.towers.image_encoder, images_BKD.squeeze(1)), (self.towers.text_encoder, texts_BD)
        images, texts = (Normals(means_BD, encoder.pooling.log_variances_BD) for encoder, means_BD in sides)
        return images, texts


@torch.inference_mode()
def distributions(model: Model, side: Literal["image", "text"], batches: Iterable[tuple[Any, ...]]) -> Normals:
    """Encode images, or captions, from batches of the arguments of `encode_images` or `encode_texts`."""
    encoder, encode = (
        (model.image_encoder, model.encode_images) if side == "image" else (model.text_encoder, model.encode_texts)
    )
    parts = []
    for batch in batches:
        means = encode(*batch).flatten(1)
        parts.append(Normals(means, encoder.pooling.log_variances_BD))  # type: ignore[union-attr, arg-type]
    return Normals.join(parts)


def misfits(model: ModelConfig) -> Iterator[str]:
    """Yield what keeps a model from having one distribution an image and a caption."""
    for side, settings in (("image", model.image), ("text", model.text)):
        pooling = getattr(settings, "pooling", None)
        if pooling is None or pooling.name != "probabilistic":
            yield (
                f"model.{side}.pooling: PCME++ learns a distribution of both sides, got "
                f"{'none' if pooling is None else pooling.name}; set it to {{name: probabilistic}}"
            )
    views = getattr(model.image, "views", 1)
    if views > 1:
        yield f"model.image.views: PCME++ learns one distribution an image, got {views} views; set it to 1"


BEHAVIOUR = Behaviour(trained=ProbabilisticModel)


def register(vse: Any) -> None:
    """Add the aggregator, the loss and the kind."""
    vse.pooling(PoolingSettings, ProbabilisticPooling)
    vse.kind(LossSettings, ClosedFormLoss, ModelKind("PCME++", __name__, loss="pcmepp", misfits=misfits))
