"""The learning rate and the loss of each training step, and the check that it has not collapsed onto its plateau."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import torch
from torch import nn

from pipelines.config.training import TrainingConfig
from pipelines.kinds import ImageEncoderConfig, LossConfig
from pipelines.schema.fields import Duration
from pipelines.schema.losses import MarginLoss
from vse_core.losses import GlobalLoss, build_loss
from vse_core.training.collapse import CollapseDetector
from vse_core.training.optim import Schedule, cosine_decay, step_decay, with_warmup
from vse_core.training.state import Progress

# Steps on the collapse plateau before a run is stopped: a healthy start may touch it for a few hundred.
COLLAPSE_PATIENCE = 500


def build_schedule(training: TrainingConfig, image: ImageEncoderConfig, steps_per_epoch: int) -> Schedule:
    """Return the configured learning-rate schedule, in steps."""
    decay = training.decay
    if decay.name == "step":
        schedule = step_decay([point.steps(steps_per_epoch) for point in decay.at], decay.factor)
    elif decay.name == "cosine":
        schedule = cosine_decay(max(1, training.epochs) * steps_per_epoch, decay.floor)
    else:
        schedule = step_decay([], factor=1.0)
    schedule = with_warmup(schedule, training.warmup.steps(steps_per_epoch))
    return with_warmup(schedule, *image.release(steps_per_epoch))


class LossSchedule:
    """The configured loss at each step; ValueError if one of its options is out of range.

    What a loss learns are single numbers, by the same names at all steps; ValueError if it learns something else.
    """

    def __init__(self, config: LossConfig, steps_per_epoch: int, device: torch.device | None = None) -> None:
        self._config = config
        self._steps_per_epoch = steps_per_epoch
        self._learned = _single_numbers(config.name, self._built(config.options_at(0, steps_per_epoch)).to(device))
        self._cached = lru_cache(lambda options: _sharing(self._built(dict(options)).to(device), self._learned))
        self._plateau = config if isinstance(config, MarginLoss) else None
        self._collapse = CollapseDetector(COLLAPSE_PATIENCE)
        for duration in (value for _, value in config if isinstance(value, Duration)):
            self.at(duration.steps(steps_per_epoch))  # wrong options are reported before any work

    def _built(self, options: Mapping[str, Any]) -> GlobalLoss:
        return build_loss(self._config.name, **options)

    def at(self, step: int) -> GlobalLoss:
        """Return the loss of a step, counted from 0."""
        return self._cached(tuple(self._config.options_at(step, self._steps_per_epoch).items()))

    def parameters(self) -> list[nn.Parameter]:
        """Return what the loss itself learns."""
        return list(self._learned.values())

    def state(self) -> dict[str, float]:
        """Return the values of what the loss itself learns, by name."""
        return {name: parameter.item() for name, parameter in self._learned.items()}

    def check(self, step: int, values: Mapping[str, float], pairs: float) -> int:
        """Return the number of steps that the loss has stayed on its plateau; CollapseError if it has for too long.

        The plateau is that of the hardest negatives; losses without a margin have none. `step` counts from 0, `values`
        are the loss and its parts, `pairs` the number of pairs that they were summed over.
        """
        if self._plateau is None or step < self._plateau.all_negatives.steps(self._steps_per_epoch):
            return 0
        loss = sum(values[name] for name in self._plateau.plateau_values)
        pair_plateau = self._plateau.pair_plateau(pairs)
        self._collapse.update(loss * pair_plateau / self._plateau.plateau(pairs), pair_plateau)
        return self._collapse.steps_on_plateau

    def start_from(self, learned: Mapping[str, float]) -> None:
        """Begin with the values that a loss has learned before; a loss of other parameters keeps its own values.

        They are as `state` gives them, of the parameters themselves: a temperature is a logarithm there.
        """
        if learned.keys() == self.state().keys():
            self._fill(learned)

    def resume(self, progress: Progress) -> None:
        """Resume the count of an interrupted run, and what the loss had learned."""
        self._collapse.steps_on_plateau = progress.plateau_steps
        self._fill(progress.learned)

    @torch.no_grad()
    def _fill(self, learned: Mapping[str, float]) -> None:
        for name, parameter in self._learned.items():
            parameter.fill_(learned[name])


def _single_numbers(name: str, loss: GlobalLoss) -> dict[str, nn.Parameter]:
    """Return a loss's parameters by name; ValueError if one has several numbers, which checkpoints do not save."""
    parameters = dict(loss.named_parameters())
    for key, parameter in parameters.items():
        if parameter.numel() != 1:
            raise ValueError(
                f"the loss {name!r} learns {key!r} of {parameter.numel()} numbers; a loss may learn single numbers: "
                "make each of them an nn.Parameter of its own, or let the model learn them"
            )
    return parameters


def _sharing(loss: GlobalLoss, parameters: Mapping[str, nn.Parameter]) -> GlobalLoss:
    """Give a loss the parameters that the optimiser updates, and return it; ValueError if it has others."""
    own = [name for name, _ in loss.named_parameters()]
    if sorted(own) != sorted(parameters):
        raise ValueError(
            f"{type(loss).__name__} learns {', '.join(parameters) or 'nothing'} at the first step and "
            f"{', '.join(own) or 'nothing'} later; it must have the same parameters with all of its options"
        )
    for name, parameter in parameters.items():
        module, _, attribute = name.rpartition(".")
        setattr(loss.get_submodule(module), attribute, parameter)
    return loss
