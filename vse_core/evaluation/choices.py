"""Choices between similar captions or images, and their accuracies."""

from collections.abc import Sequence

import torch
from torch import Tensor

from vse_core.evaluation.bootstrap import Interval, resampled_means

# I images, C captions; Q choices, G groups, R resamples.


def text_correct(sims_IC: Tensor) -> bool:
    """Return whether each image is more similar to its own caption, that of its number, than to any other.

    A tie is wrong, as is whatever is not a number (Winoground, equation (1)).
    """
    own_I = sims_IC.diagonal()
    return bool((own_I.unsqueeze(1) > sims_IC).fill_diagonal_(fill_value=True).all())


def image_correct(sims_IC: Tensor) -> bool:
    """Return whether each caption is more similar to its own image than to any other (Winoground, equation (2))."""
    return text_correct(sims_IC.T)


def macro_accuracy(correct_Q: Sequence[bool], groups: Sequence[str], images: Sequence[str]) -> tuple[float, Interval]:
    """Return the mean over groups of the shares of correct choices, in per cent, with its interval.

    Choices of the same image are resampled together; a group that a resample lacks is not in its mean.
    """
    group_Q, image_Q = (_numbers(names) for names in (groups, images))
    is_in_QG = torch.nn.functional.one_hot(group_Q).double()
    correct_QG = is_in_QG * torch.tensor(correct_Q, dtype=torch.float64).unsqueeze(1)
    accuracy = (correct_QG.sum(dim=0) / is_in_QG.sum(dim=0)).mean().item()
    shares_RG = resampled_means(correct_QG, image_Q) / resampled_means(is_in_QG, image_Q)
    return 100 * accuracy, Interval.of(100 * shares_RG.nanmean(dim=1))


def _numbers(names: Sequence[str]) -> Tensor:
    places = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return torch.tensor([places[name] for name in names])
