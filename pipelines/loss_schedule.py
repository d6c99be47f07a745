"""Which loss a step is trained with, and whether it has stood still on its plateau."""

from torch import nn

from pipelines.config.training import HingeLoss, LossConfig
from vse_core.losses import build_loss
from vse_core.training.collapse import CollapseDetector

# Steps on the collapse plateau before a run is given up: a healthy start may touch it for a few hundred.
COLLAPSE_PATIENCE = 500


class LossSchedule:
    """The configured loss; hinge losses begin with all negatives and go on with the hardest.

    Args:
        config: the configured objective.
        steps_per_epoch: length of an epoch.
    """

    def __init__(self, config: LossConfig, steps_per_epoch: int) -> None:
        self._hinge = config if isinstance(config, HingeLoss) else None
        if self._hinge is None:
            self.all_negatives_steps = 0
            self._losses = [build_loss(config.name, **config.options())]
        else:
            self.all_negatives_steps = self._hinge.all_negatives.steps(steps_per_epoch)
            self._losses = [
                build_loss(config.name, negatives=which, **config.options()) for which in ("all", "hardest")
            ]
            self._collapse = CollapseDetector(self._hinge.pair_plateau, COLLAPSE_PATIENCE)

    def at(self, step: int) -> nn.Module:
        """The loss of a step, counted from 0."""
        return self._losses[0 if step < self.all_negatives_steps else -1]

    def check(self, step: int, loss: float, pairs: int) -> int:
        """Look at the loss of a step (from 0) of so many pairs; returns the steps it has stood on the plateau so far.

        The plateau is that of the hardest negatives; losses without a margin have none.

        Raises:
            CollapseError: it has stood there for too long.
        """
        if self._hinge is None or step < self.all_negatives_steps:
            return 0
        self._collapse.update(loss / (pairs if self._hinge.reduction == "sum" else 1))
        return self._collapse.steps_on_plateau

    def resume(self, plateau_steps: int) -> None:
        """Go on with the count of an interrupted run."""
        if self._hinge is not None:
            self._collapse.steps_on_plateau = plateau_steps
