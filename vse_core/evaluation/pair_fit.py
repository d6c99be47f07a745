"""How well images and their captions fit, next to pairs that are known to be good.

B images, C captions, image after image, K views, D embedding.
"""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor


def own_similarities(images_BKD: Tensor, texts_CD: Tensor, counts_B: Tensor) -> Tensor:
    """Return the similarity (C,) of every caption to its own image, by the image's best view."""
    images_CKD = images_BKD.float().repeat_interleave(counts_B, dim=0)
    return torch.einsum("ckd,cd->ck", images_CKD, texts_CD.float()).amax(dim=1)


@dataclass(frozen=True)
class PairFit:
    """What pairs that are known to be good look like to a model: the standard that other pairs are measured by.

    The fit of a pair is the share of good captions that are at most as similar to their image, or, if that is smaller,
    the share of good images whose captions are on average at most as similar: one wrong caption among five lies low by
    itself, and images whose captions are all wrong are told apart more sharply by their mean. ``captions_C`` and
    ``images_B`` are these similarities of the good pairs, in ascending order.

    A pair fits badly if its fit is at most ``threshold``.
    """

    captions_C: Tensor
    images_B: Tensor
    threshold: float

    @classmethod
    def of(cls, good_C: Tensor, counts_B: Tensor, loss: float) -> Self:
        """Learn from the similarities of good pairs, of which the threshold is to lose at most a share."""
        means_B = _means(good_C, counts_B)[counts_B > 0]
        standard = cls(good_C.sort().values, means_B.sort().values, 0.0)
        fits_C = standard.fits(good_C, counts_B).sort().values
        lost = int(loss * len(fits_C))
        # Of pairs that fit alike all are lost or none.
        below_C = fits_C[fits_C < fits_C[lost]] if lost < len(fits_C) else fits_C
        return cls(standard.captions_C, standard.images_B, float(below_C[-1]) if len(below_C) else 0.0)

    def fits(self, sims_C: Tensor, counts_B: Tensor) -> Tensor:
        """Return the fit (C,) of pairs, from 0 to 1, by the similarities of the captions to their images."""
        means_C = _means(sims_C, counts_B).repeat_interleave(counts_B)
        return torch.minimum(_shares(sims_C, self.captions_C), _shares(means_C, self.images_B))


def _means(sims_C: Tensor, counts_B: Tensor) -> Tensor:
    """Return the mean similarity (B,) of each image's captions; that of an image without any is 0."""
    owners_C = torch.arange(len(counts_B)).repeat_interleave(counts_B)
    return torch.zeros(len(counts_B)).index_add_(0, owners_C, sims_C) / counts_B.clamp(min=1)


def _shares(values: Tensor, ascending: Tensor) -> Tensor:
    """Return the share of some values that are at most as large as each of others."""
    return torch.searchsorted(ascending, values.contiguous(), side="right") / len(ascending)
