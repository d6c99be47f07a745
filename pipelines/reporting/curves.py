"""The curves of a training: its loss, its recalls, its learning rates, and the pooling weights it has learned."""

from pathlib import Path
from typing import Any

from pipelines.reporting.images import ReportImage
from pipelines.reporting.run import Run
from pipelines.training.loss_log import loss_curve, read_losses
from pipelines.training.lr_schedule import build_schedule, rate_factors
from vse_core.evaluation.plots import plot_learning_rates, plot_recall_curves

_POINTS = 400


def curves(run: Run) -> dict[str, Any]:
    """Return the values of `report/curves.html`."""
    return {"loss": _loss(run), "recalls": _recalls(run), "rates": _rates(run), "pooling": _pooling(run)}


def _loss(run: Run) -> ReportImage | None:
    losses, steps = read_losses(run.directory("train")), run.manifest("train").get("steps_per_epoch")
    if not losses:
        return None
    config = run.config
    figure = loss_curve(losses, config.loss, config.training.batch_size, steps)
    return ReportImage.from_figure(figure, f"Training loss; the last is {losses[-1]['loss']:.4g}.")


def _recalls(run: Run) -> ReportImage | None:
    manifest = run.manifest("train")
    history = manifest.get("history")
    if not history:
        return None
    split, training = run.config.dataset.eval_split, run.config.training
    best = max(epoch["rsum"] for epoch in history)
    shown = "after each epoch; the best" if training.epochs else f"{run.config.model.untrained(training.initial)}; the"
    description = f"Recalls on {split} {shown} RSUM is {best:.1f}, chance {manifest['chance']:.1f}."
    return ReportImage.from_figure(plot_recall_curves(history, manifest["chance"]), description)


def _rates(run: Run) -> ReportImage | None:
    steps_per_epoch = run.manifest("train").get("steps_per_epoch")
    training = run.config.training
    if steps_per_epoch is None or not training.epochs:
        return None
    total = training.epochs * steps_per_epoch
    steps = range(0, total, max(1, total // _POINTS))
    schedule = build_schedule(training, run.config.model.image, steps_per_epoch)
    rates = {
        name: [training.learning_rate * factor * schedule(step) for step in steps]
        for name, factor in {"the model": 1.0, **rate_factors(run.config.model)}.items()
    }
    figure = plot_learning_rates([step + 1 for step in steps], rates)
    return ReportImage.from_figure(figure, "Learning rate by optimiser step.")


def _pooling(run: Run) -> list[ReportImage]:
    files = evaluation_images(run, "gpo_coefficients")
    views = [""] if len(files) == 1 else [f", view {view} of {len(files)}" for view in range(1, len(files) + 1)]
    return [
        ReportImage.from_png(file.read_bytes(), f"Pooling weights learned by GPO{view}.")
        for file, view in zip(files, views, strict=True)
    ]


def evaluation_images(run: Run, prefix: str = "") -> list[Path]:
    """Return the image files of the evaluation whose names begin with a prefix."""
    return sorted(run.plans["evaluate"].outputs["pictures"].glob(f"{prefix}*.png"))
