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

    def fits(self, sims_C: Tensor, counts_B: Tensor, is_counted_C: Tensor | None = None) -> Tensor:
        """Return the fit (C,) of pairs, from 0 to 1, by the similarities of the captions to their images.

        The mean of an image is that of its captions that are counted, by default of all.
        """
        means_C = _means(sims_C, counts_B, is_counted_C).repeat_interleave(counts_B)
        return torch.minimum(_shares(sims_C, self.captions_C), _shares(means_C, self.images_B))


@dataclass(frozen=True)
class GoodPairs:
    """Pairs that are known to be good, by the similarities of captions to their images and the images' counts.

    Others are judged by them, and a share of them, ``loss``, may be judged to fit badly.
    """

    sims_C: Tensor
    counts_B: Tensor
    loss: float

    def judge(self, sims_C: Tensor, counts_B: Tensor, is_counted_C: Tensor) -> tuple[Tensor, Tensor]:
        """Return the fit (C,) of pairs, and whether they fit badly (C,), by the standard for their image.

        The mean of few captions scatters more than that of many: an image with n captions that are counted is compared
        with the first n of each good image. If none is counted, all are. What is not a number is least alike.
        """
        sims_C = sims_C.nan_to_num(-1)
        owners_C = _owners(counts_B)
        is_counted_C = is_counted_C | (_sums(is_counted_C.float(), counts_B) == 0)[owners_C]
        numbers_B = _sums(is_counted_C.float(), counts_B).long()
        fits_C, is_misfit_C = torch.ones(len(sims_C)), torch.zeros(len(sims_C), dtype=torch.bool)
        for number in numbers_B[numbers_B > 0].unique():
            is_of_B = numbers_B == number
            is_of_C = is_of_B[owners_C]
            standard = PairFit.of(*self._first(int(number)), self.loss)
            fits_C[is_of_C] = standard.fits(sims_C[is_of_C], counts_B[is_of_B], is_counted_C[is_of_C])
            is_misfit_C[is_of_C] = fits_C[is_of_C] <= standard.threshold
        return fits_C, is_misfit_C

    def _first(self, number: int) -> tuple[Tensor, Tensor]:
        """Return the similarities and counts of the first `number` captions of each image, or all if it has fewer."""
        firsts_B = self.counts_B.cumsum(0) - self.counts_B
        places_C = torch.arange(len(self.sims_C)) - firsts_B.repeat_interleave(self.counts_B)
        return self.sims_C[places_C < number], self.counts_B.clamp(max=number)


def _means(sims_C: Tensor, counts_B: Tensor, is_counted_C: Tensor | None = None) -> Tensor:
    """Return the mean similarity (B,) of each image's captions that are counted; that of an image without any is 0."""
    weights_C = torch.ones(len(sims_C)) if is_counted_C is None else is_counted_C.float()
    return _sums(sims_C * weights_C, counts_B) / _sums(weights_C, counts_B).clamp(min=1)


def _sums(values_C: Tensor, counts_B: Tensor) -> Tensor:
    """Return the sum (B,) of values over each image's captions."""
    return torch.zeros(len(counts_B)).index_add_(0, _owners(counts_B), values_C)


def _owners(counts_B: Tensor) -> Tensor:
    """Return the number (C,) of each caption's image."""
    return torch.arange(len(counts_B)).repeat_interleave(counts_B)


def _shares(values: Tensor, ascending: Tensor) -> Tensor:
    """Return the share of some values that are at most as large as each of others."""
    return torch.searchsorted(ascending, values.contiguous(), side="right") / len(ascending)
