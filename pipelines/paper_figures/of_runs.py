"""Figures of recorded runs: trainings, evaluations under attack, and hyperparameter searches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from PIL import Image

from pipelines.evaluation.evaluator import GALLERY, PICTURES
from pipelines.paper_figures.of_models import view_summary
from pipelines.paper_figures.registered_model import RegisteredModel
from pipelines.retrieval.gallery import Gallery
from pipelines.runtime.commands import command
from pipelines.runtime.stage import StageDir, StageError, check_output
from pipelines.tuning.results import Results
from pipelines.tuning.search import finished_results
from vse_core.evaluation.training_plots import plot_convergence, plot_negatives
from vse_core.evaluation.views import plot_view_diversity

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from pipelines.evaluation.ensemble import EvaluatedModel
    from pipelines.reporting.recorded import Point
    from pipelines.tuning.space import SearchConfig


def convergence(models: Sequence[RegisteredModel]) -> dict[str, Figure]:
    """Draw the RSUM after each epoch of several trainings (VSE+2AD, appendix, figure 1: with ADOPT and without)."""
    splits = list(dict.fromkeys(registered.training.tags.get("vse.split", "") for registered in models))
    if len(splits) > 1:
        raise StageError(f"the trainings were evaluated on different splits: {' and '.join(splits)}")
    rsums = {}
    for registered in models:
        points = _last_of_each_step(registered.training.metrics.get(f"{splits[0]}/rsum", ()))
        if not points:
            raise StageError(f"{registered.name}: MLflow has no RSUM of the epochs of its training")
        loss = registered.training.params.get("loss.name", "unknown")
        rsums[f"{registered.name} (loss {loss})"] = [point.value for point in points]
    return {"convergence": plot_convergence(rsums, splits[0])}


def negatives(models: Sequence[RegisteredModel]) -> dict[str, Figure]:
    """Draw the number of negatives that ADOPT chooses, by training step (VSE+2AD, appendix, figure 2)."""
    numbers = {}
    for registered in models:
        points = _last_of_each_step(registered.training.metrics.get("train/negatives", ()))
        if not points:
            loss = registered.training.params.get("loss.name", "unknown")
            raise StageError(
                f"{registered.name}: its training has logged no number of negatives, as it does with loss.name adopt; "
                f"this one is {loss}"
            )
        numbers[registered.name] = [point.step for point in points], [point.value for point in points]
    return {"negatives": plot_negatives(numbers)}


def alpha_sweep(evaluated: EvaluatedModel) -> dict[str, Image.Image]:
    """Draw recalls over the sentence's weight in a caption's vector, without and under attack (UniVSE, figure 5).

    The evaluation protocol `attack` draws it.
    """
    path = evaluated.directory / PICTURES / "alpha_sweep.png"
    if not path.is_file():
        raise StageError(f"{evaluated.reference} has no alpha: its captions are sentences without components")
    check_output(evaluated.directory, f"{PICTURES}/{path.name}")
    with Image.open(path) as image:
        return {"alpha_sweep": image.convert("RGB")}


def results_of(stage: StageDir, search: SearchConfig) -> Results:
    """Return the results of a search; StageError if it has not finished."""
    if not stage.is_complete():
        raise StageError(
            f"the search {search.name!r} has not finished under this configuration: run "
            f"`{command('tune')}` with the same --search and --config first"
        )
    return finished_results(stage)


def search_results(
    plot: Callable[[Results, SearchConfig], Figure], stage: StageDir, search: SearchConfig
) -> dict[str, Figure]:
    """Draw the results of a search, which have to fit the plot."""
    results = results_of(stage, search)
    try:
        return {search.name: plot(results, search)}
    except ValueError as error:
        raise StageError(str(error)) from error


def view_diversity(models: Sequence[tuple[EvaluatedModel, float | None]], name: str) -> dict[str, Figure]:
    """Draw RSUM, the views' similarity and the captions' choice of views, over lambda and K (MV-VSE, figure 4).

    The choice is drawn of two models with the same number of views, as in the paper: of the highest lambda, and of the
    best one with another.

    `models` are those of a search, each with the lambda it was trained with.
    """
    summaries = [view_summary(model.reference, Gallery.load(model.directory / GALLERY), lam) for model, lam in models]
    several = [summary for summary in summaries if summary.lam is not None and len(summary.shares) > 1]
    alone = max(several, key=lambda summary: (summary.lam, summary.rsum), default=None)
    others = [
        summary
        for summary in several
        if alone is not None and summary.lam != alone.lam and len(summary.shares) == len(alone.shares)
    ]
    shown = [alone, max(others, key=lambda summary: summary.rsum)] if alone is not None and others else summaries
    return {name: plot_view_diversity(summaries, shown)}


def _last_of_each_step(points: Sequence[Point]) -> list[Point]:
    """Return the last value of each step, in the order of the steps; steps are repeated after a restart."""
    last = {point.step: point for point in points}
    return [last[step] for step in sorted(last)]
