"""The exponential moving average of the weights of a training run, which is evaluated and kept in their place."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.optim.swa_utils import get_ema_multi_avg_fn

# With the optimiser's state of a parameter, which is saved and restored with a checkpoint.
_KEY = "average"


@torch.no_grad()
def update_average(optimizer: torch.optim.Optimizer, decay: float) -> None:
    """Take a step's weights into the average, ``average = decay * average + (1 - decay) * weights``, after the step.

    It begins with the weights after the first step (Polyak and Juditsky 1992; for contrastive models SLIP, EVA-CLIP).
    """
    trained = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    trained = [parameter for parameter in trained if optimizer.state.get(parameter)]
    for parameter in trained:
        if _KEY not in optimizer.state[parameter]:
            optimizer.state[parameter][_KEY] = parameter.detach().clone()
    averages = [optimizer.state[parameter][_KEY] for parameter in trained]
    if averages:
        get_ema_multi_avg_fn(decay)(averages, trained, 1)


@contextmanager
@torch.no_grad()
def averaged(optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """Give the parameters their averages, where they have one, while the context lasts."""
    pairs: list[tuple[Tensor, Tensor]] = [
        (parameter, state[_KEY]) for parameter, state in optimizer.state.items() if _KEY in state
    ]
    _swap(pairs)
    try:
        yield
    finally:
        _swap(pairs)


def _swap(pairs: list[tuple[Tensor, Tensor]]) -> None:
    for parameter, average in pairs:
        kept = parameter.detach().clone()
        parameter.copy_(average)
        average.copy_(kept)
