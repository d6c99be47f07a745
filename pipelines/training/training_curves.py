"""The curve of a training's loss, with the marks that its configuration gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pipelines.config import PipelineConfig
from pipelines.schema.losses import MarginLoss
from vse_core.evaluation.plots import plot_loss_curve

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def loss_curve(config: PipelineConfig, losses: Sequence[Mapping[str, float]], steps_per_epoch: int | None) -> Figure:
    """Plot the losses of a run, at least one; those with a margin with the end of all negatives and the plateau.

    A loss of which only a part has a plateau is drawn without.
    """
    marks: dict[str, Any] = {}
    if isinstance(config.loss, MarginLoss):
        if config.loss.plateau_values == ("loss",):
            marks["plateau"] = config.loss.plateau(config.training.batch_size)
        if steps_per_epoch is not None:
            marks["all_negatives_steps"] = config.loss.all_negatives.steps(steps_per_epoch)
    return plot_loss_curve(losses, **marks)
