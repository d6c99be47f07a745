"""The optimiser of the published systems, AdamW, with learning rates by part of the model, and their schedules.

Schedules are pure functions of the step, so that a resumed run cannot lose its place.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

# Keys of a parameter group: the submodule it belongs to, "" for all that is in no other; its factor of the base rate.
PART, RATE_FACTOR = "part", "rate_factor"

Schedule = Callable[[int], float]


def build_optimizer(
    model: nn.Module,
    learning_rate: float,
    weight_decay: float,
    rate_factors: Mapping[str, float] | None = None,
    of_loss: Sequence[nn.Parameter] = (),
    capturable: bool = False,
) -> torch.optim.AdamW:
    """AdamW over all trainable parameters with PyTorch's default betas, as in all released VSE-infinity configurations.

    It is the fused one, which can skip a step by a flag on the device (:func:`~vse_core.training.step.training_step`).

    Args:
        model: the model.
        learning_rate: base rate, for the global batch; the schedule multiplies it.
        weight_decay: decoupled weight decay (0.01 for region features with a BiGRU, 1e-4 with BERT).
        rate_factors: submodule -> its factor of the base rate (``{"text_encoder.bert": 0.1}`` in VSE-infinity), of
            nested ones the inner one's; 0 freezes it. One without trainable parameters is a ValueError.
        of_loss: what the loss itself learns, at the base rate and without weight decay.
        capturable: keep the rates on the GPU, where a CUDA graph reads them.
    """
    factors = dict(rate_factors or {})
    groups: dict[str, list[nn.Parameter]] = {prefix: [] for prefix in ("", *factors)}
    for name, parameter in model.named_parameters():
        if factors.get(_innermost(name, factors)) == 0:
            parameter.requires_grad_(False)
        elif parameter.requires_grad:
            groups[_innermost(name, factors)].append(parameter)
    for prefix, factor in factors.items():
        if factor and not groups[prefix]:
            raise ValueError(f"rate_factors: the model has no trainable parameters under {prefix!r}")
    settings: list[dict[str, Any]] = [
        {"params": parameters, PART: prefix, RATE_FACTOR: factors.get(prefix, 1.0)}
        for prefix, parameters in groups.items()
        if parameters
    ]
    if of_loss:
        settings.append({"params": list(of_loss), PART: "loss", RATE_FACTOR: 1.0, "weight_decay": 0.0})
    optimizer = torch.optim.AdamW(
        settings, lr=learning_rate, weight_decay=weight_decay, fused=True, capturable=capturable
    )
    if capturable:
        for group in optimizer.param_groups:
            group["lr"] = torch.zeros((), device=group["params"][0].device)
    set_learning_rate(optimizer, learning_rate)
    return optimizer


def set_learning_rate(optimizer: torch.optim.Optimizer, learning_rate: float) -> dict[str, float]:
    """Set the base rate, which every group multiplies by its factor; return the rates by submodule, "" for the rest."""
    rates = {group[PART]: learning_rate * group[RATE_FACTOR] for group in optimizer.param_groups}
    for group in optimizer.param_groups:
        if isinstance(group["lr"], torch.Tensor):
            group["lr"].fill_(rates[group[PART]])
        else:
            group["lr"] = rates[group[PART]]
    return rates


def _innermost(name: str, prefixes: Mapping[str, float]) -> str:
    """Return the innermost submodule that a parameter belongs to, "" for none of them."""
    return max((prefix for prefix in prefixes if name.startswith(f"{prefix}.")), key=len, default="")


def step_decay(milestones: list[int], factor: float) -> Schedule:
    """Multiply the rate by ``factor`` at every milestone (in steps): 0.1 once after 15 of 25 epochs in VSE-infinity."""
    return lambda step: factor ** sum(step >= milestone for milestone in milestones)


def cosine_decay(total_steps: int, floor: float) -> Schedule:
    """Decay by half a cosine from 1 at step 0 down to ``floor`` at ``total_steps``."""
    return lambda step: floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * min(step, total_steps) / total_steps))


def with_warmup(schedule: Schedule, warmup_steps: int, start: int = 0) -> Schedule:
    """Rise linearly over ``warmup_steps`` from step ``start``, on top of ``schedule``, whose steps count on.

    Before ``start`` the rate is that of ``schedule``: VSE-infinity warms up again when its CNN begins to be fine-tuned.
    """
    return lambda step: schedule(step) * (min(1.0, (step - start + 1) / (warmup_steps + 1)) if step >= start else 1.0)
