"""The learning rate and the loss of each training step, and the check that it has not collapsed onto its plateau."""

from collections.abc import Mapping
from functools import lru_cache

import torch
from torch import nn

from pipelines.config.training import TrainingConfig
from pipelines.kinds import ImageEncoderConfig, LossConfig
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
    """The configured loss at each step; ValueError if one of its options is out of range."""

    def __init__(self, config: LossConfig, steps_per_epoch: int, device: torch.device | None = None) -> None:
        self._config = config
        self._steps_per_epoch = steps_per_epoch
        self._build = lru_cache(lambda items: build_loss(config.name, **dict(items)).to(device))
        self._plateau = config if isinstance(config, MarginLoss) else None
        self._collapse = CollapseDetector(COLLAPSE_PATIENCE)
        self.at(0)  # wrong options are reported before any work

    def at(self, step: int) -> GlobalLoss:
        """Return the loss of a step, counted from 0."""
        return self._build(tuple(self._config.options_at(step, self._steps_per_epoch).items()))

    def parameters(self) -> list[nn.Parameter]:
        """Return what the loss itself learns; a loss that does is the same one at all steps."""
        return list(self.at(0).parameters())

    def state(self) -> dict[str, float]:
        """Return the values of what the loss itself learns, by name."""
        return {name: parameter.item() for name, parameter in self.at(0).named_parameters()}

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
        for name, parameter in self.at(0).named_parameters():
            parameter.fill_(learned[name])
