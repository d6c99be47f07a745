"""Which loss a step is trained with, and whether it has stood still on its plateau."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from pipelines.config.training import HingeLoss, LossConfig, UnifiedLoss, VseCLoss
from vse_core.losses import GlobalLoss, build_loss
from vse_core.training.collapse import CollapseDetector

# Steps on the collapse plateau before a run is given up: a healthy start may touch it for a few hundred.
COLLAPSE_PATIENCE = 500


class LossSchedule:
    """The configured loss; hinge losses begin with all negatives and go on with the hardest, UniVSE adds relations.

    Args:
        config: the configured objective.
        steps_per_epoch: length of an epoch.
    """

    def __init__(self, config: LossConfig, steps_per_epoch: int) -> None:
        self._config = config
        self._steps_per_epoch = steps_per_epoch
        self._build = lru_cache(lambda items: build_loss(config.name, **config.options(), **dict(items)))
        self._hinge = config if isinstance(config, HingeLoss) else None
        if self._hinge is not None:
            self._collapse = CollapseDetector(self._hinge.pair_plateau, COLLAPSE_PATIENCE)
        self.at(0)  # what is wrong with the options is to be known before any work

    def at(self, step: int) -> GlobalLoss:
        """The loss of a step, counted from 0."""
        options: dict[str, Any] = {}
        if isinstance(self._config, HingeLoss | UnifiedLoss):
            options["negatives"] = "all" if self._has_all_negatives(step) else "hardest"
        if isinstance(self._config, UnifiedLoss):
            begin = self._config.relations_after.steps(self._steps_per_epoch)
            options["relation_weight"] = self._config.relation_weight if step >= begin else 0.0
        loss: GlobalLoss = self._build(tuple(options.items()))
        return loss

    def takes_adversarial(self, step: int) -> bool:
        """Whether a step (from 0) is trained against adversarial captions."""
        config = self._config
        return isinstance(config, VseCLoss) and step >= config.adversarial_after.steps(self._steps_per_epoch)

    def check(self, step: int, loss: float, pairs: float) -> int:
        """Look at the loss of a step (from 0) of so many pairs; returns the steps it has stood on the plateau so far.

        The plateau is that of the hardest negatives; losses without a margin have none.

        Raises:
            CollapseError: it has stood there for too long.
        """
        if self._hinge is None or self._has_all_negatives(step):
            return 0
        self._collapse.update(loss / (pairs if self._hinge.reduction == "sum" else 1))
        return self._collapse.steps_on_plateau

    def resume(self, plateau_steps: int) -> None:
        """Go on with the count of an interrupted run."""
        if self._hinge is not None:
            self._collapse.steps_on_plateau = plateau_steps

    def _has_all_negatives(self, step: int) -> bool:
        config = self._config
        return isinstance(config, HingeLoss | UnifiedLoss) and step < config.all_negatives.steps(self._steps_per_epoch)
