"""The curves of a training: its loss, its recalls, its learning rates, and the pooling weights it has learned."""

from __future__ import annotations

from pathlib import Path

from pipelines.evaluation.evaluator import PICTURES
from pipelines.reporting.page import Html, Section, joined, missing, picture, plot
from pipelines.reporting.run import Run
from pipelines.training.loss_log import read_losses
from pipelines.training.lr_schedule import build_schedule, rate_factors
from pipelines.training.training_curves import loss_curve
from vse_core.evaluation.plots import plot_learning_rates, plot_recall_curves

_POINTS = 400


def curves(run: Run) -> Section:
    """All curves there are; what is missing is said."""
    return Section("Curves", joined(_loss(run), _recalls(run), _rates(run), _pooling(run)))


def _loss(run: Run) -> Html:
    losses, steps = read_losses(run.directory("train")), run.manifest("train").get("steps_per_epoch")
    if not losses:
        return missing("the loss: no step has been logged")
    return plot(loss_curve(run.config, losses, steps), f"Training loss; the last is {losses[-1]['loss']:.4g}.")


def _recalls(run: Run) -> Html:
    manifest = run.manifest("train")
    history = manifest.get("history")
    if not history:
        return missing("the recalls of the epochs: the training has not come to its end")
    split = run.config.dataset.eval_split
    best = max(epoch["rsum"] for epoch in history)
    description = f"Recalls on {split} after each epoch; the best RSUM is {best:.1f}, chance {manifest['chance']:.1f}."
    return plot(plot_recall_curves(history, manifest["chance"]), description)


def _rates(run: Run) -> Html:
    steps_per_epoch = run.manifest("train").get("steps_per_epoch")
    if steps_per_epoch is None:
        return missing("the learning rate: how many steps an epoch has is known when training has ended")
    training = run.config.training
    total = training.epochs * steps_per_epoch
    steps = range(0, total, max(1, total // _POINTS))
    schedule = build_schedule(run.config, steps_per_epoch)
    rates = {
        name: [training.learning_rate * factor * schedule(step) for step in steps]
        for name, factor in {"the model": 1.0, **rate_factors(run.config.model)}.items()
    }
    return plot(plot_learning_rates([step + 1 for step in steps], rates), "Learning rate by optimiser step.")


def _pooling(run: Run) -> Html:
    files = evaluation_pictures(run, "gpo_coefficients")
    if not files:
        return missing("pooling weights: the evaluation has drawn none, as it does for models that pool by GPO")
    views = [""] if len(files) == 1 else [f", view {view} of {len(files)}" for view in range(1, len(files) + 1)]
    return joined(
        *(
            picture(file.read_bytes(), f"Pooling weights learned by GPO{view}.")
            for file, view in zip(files, views, strict=True)
        )
    )


def evaluation_pictures(run: Run, beginning: str = "") -> list[Path]:
    """The pictures that the evaluation has drawn, by the beginning of their names."""
    return sorted((run.directory("evaluate") / PICTURES).glob(f"{beginning}*.png"))
