"""One optimiser step on one global batch or on several, the same for one process and for many.

The host does not wait for the device: whether all is finite is decided there, and read afterwards.
"""

import math
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from vse_core.distributed import average_gradients
from vse_core.losses.global_pairs import GlobalLoss, LossResult
from vse_core.torch_internals import step_if_finite
from vse_core.training.mixed_precision import MixedPrecision
from vse_core.training.sharding import clip_gradients


class NonFiniteLossError(RuntimeError):
    """The loss or the gradient became NaN or infinite; the step that met it has left the weights as they were."""


@dataclass(frozen=True)
class LocalBatch:
    """The arguments of the model, integer image ids, and the pairs of each process of a global batch, in order."""

    inputs: Sequence[Any]
    image_ids_b: Tensor
    counts: list[int]


@dataclass(frozen=True)
class StepResult:
    """Losses and norms of one step; tensors stay on their device so that logging decides when to wait for them.

    ``loss`` and ``parts`` are the global batch's, averaged over the batches of the step; ``gradient_norm`` is the L2
    norm before clipping, ``scale`` the factor of the loss against underflow of gradients, 1 but in fp16.
    """

    loss: Tensor
    parts: dict[str, Tensor]
    gradient_norm: Tensor
    scale: Tensor

    def check(self) -> bool:
        """Wait for the step, and return whether it has changed the weights (:func:`check_finite`)."""
        return check_finite(self.loss.item(), self.gradient_norm.item(), self.scale.item())


def check_finite(loss: float, gradient_norm: float, scale: float) -> bool:
    """Return whether a step has changed the weights: in fp16 one whose scaled gradient overflows is left out.

    NonFiniteLossError if the loss, or the gradient itself and not only its scaling, is not finite.
    """
    if not math.isfinite(loss):
        raise NonFiniteLossError(f"the loss is {loss}; {_ADVICE}")
    if math.isfinite(gradient_norm):
        return True
    if scale <= 1:
        raise NonFiniteLossError(f"the gradient's norm is {gradient_norm} at a loss of {loss:.4g}; {_ADVICE}")
    return False


def training_step(
    model: nn.Module,
    loss: GlobalLoss,
    optimizer: torch.optim.Optimizer,
    local_batches: Sequence[LocalBatch],
    gradient_clip: float,
    precision: MixedPrecision | None = None,
    diagnosed: bool = True,
) -> StepResult:
    """Encode this process's local batches, take the loss of each global batch, and update by their mean gradient.

    Several batches are gradient accumulation, in which every pair has the negatives of its own batch.

    A loss or a gradient that is not finite leaves the weights and the optimiser as they are;
    :meth:`StepResult.check`, or :func:`check_finite` later, tells of it. Among several processes the model is wrapped
    in DistributedDataParallel, or sharded (:mod:`~vse_core.training.sharding`), which average gradients; those of the
    loss's own parameters are averaged here. The gradient's global L2 norm is at most ``gradient_clip``. If the step is
    not ``diagnosed``, the parts that the loss measures for a reader alone are left out.
    """
    loss.diagnose(diagnosed)
    precision = precision or MixedPrecision()
    optimizer.zero_grad(set_to_none=True)
    results = []
    for number, local in enumerate(local_batches, start=1):
        # Processes exchange gradients once, after the last batch; sharded ones after each, of which none has them all.
        waits = isinstance(model, DistributedDataParallel) and number < len(local_batches)
        with cast(DistributedDataParallel, model).no_sync() if waits else nullcontext():
            with precision.autocast():
                output = model(*local.inputs)
            result = loss.from_local_batch(output, local.image_ids_b, local.counts)
            share = result.total / len(local_batches) if len(local_batches) > 1 else result.total
            precision.scaler.scale(share).backward()
        results.append(result)
    total, parts = _mean(results)
    precision.scaler.unscale_(optimizer)
    average_gradients(loss)
    learned = [*model.parameters(), *loss.parameters()]
    gradient_norm = clip_gradients(learned, gradient_clip)
    scale = precision.scale(total)
    step_if_finite(optimizer, total + gradient_norm)
    precision.scaler.update()
    return StepResult(total, parts, gradient_norm, scale)


def _mean(results: Sequence[LossResult]) -> tuple[Tensor, dict[str, Tensor]]:
    """The mean loss, and the mean of those parts that all batches have."""
    if len(results) == 1:
        return results[0].total.detach(), results[0].parts
    names = [name for name in results[0].parts if all(name in result.parts for result in results)]
    total = torch.stack([result.total.detach() for result in results]).mean()
    return total, {name: torch.stack([result.parts[name] for result in results]).mean() for name in names}


_ADVICE = "lower training.learning_rate, lengthen training.warmup, or look for broken features"
