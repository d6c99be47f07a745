"""One optimiser step on one global batch, the same for one process and for many."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from vse_core.losses.global_loss import GlobalLoss


class NonFiniteLossError(RuntimeError):
    """The loss or the gradient became NaN or infinite; raised before the optimiser could write it into the weights."""


@dataclass(frozen=True)
class StepResult:
    """What one step reports; tensors stay on their device so that logging decides when to wait for them.

    Attributes:
        loss: the global batch's loss.
        parts: its named parts.
        gradient_norm: global L2 norm before clipping.
    """

    loss: Tensor
    parts: dict[str, Tensor]
    gradient_norm: Tensor


def training_step(
    model: nn.Module,
    loss: GlobalLoss,
    optimizer: torch.optim.Optimizer,
    inputs: Sequence[Any],
    image_ids_B: Tensor,
    counts: list[int],
    gradient_clip: float,
) -> StepResult:
    """Encode this process's share, take the global batch's loss, and update.

    Args:
        model: called with ``inputs``; wrapped in DistributedDataParallel where there are several processes (it averages
            gradients, which :func:`~vse_core.training.gather.gather_rows` counts on).
        loss: given what the model returns; it gathers the other processes' shares.
        optimizer: the optimiser; its learning rate is already set.
        inputs: of this process's pairs: features, their lengths, tokens and their lengths, and what else the model
            takes.
        image_ids_B: (b,) integer image ids of this process's pairs.
        counts: pairs of each process, in order; their sum is the global batch.
        gradient_clip: largest global L2 norm of the gradient.

    Raises:
        NonFiniteLossError: the loss or the gradient is not finite. The weights are untouched.
    """
    result = loss.over_processes(model(*inputs), image_ids_B, counts)
    # The global batch's loss is the same on every process, so all of them stop together and none waits for the others.
    if not torch.isfinite(result.total):
        raise NonFiniteLossError(f"the loss is {result.total.item()}; {_ADVICE}")
    optimizer.zero_grad(set_to_none=True)
    result.total.backward()
    gradient_norm = nn.utils.clip_grad_norm_(model.parameters(), gradient_clip)
    if not torch.isfinite(gradient_norm):
        raise NonFiniteLossError(
            f"the gradient's norm is {gradient_norm.item()} at a loss of {result.total.item():.4g}; {_ADVICE}"
        )
    optimizer.step()
    return StepResult(result.total.detach(), result.parts, gradient_norm.detach())


_ADVICE = "lower training.learning_rate, lengthen training.warmup, or look for broken features"
