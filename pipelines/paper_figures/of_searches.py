"""Figures of finished hyperparameter searches: grids, rows of a table, and the views of their models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from pipelines.evaluation.evaluator import GALLERY
from pipelines.paper_figures.of_models import view_summary
from pipelines.retrieval.gallery import Gallery
from pipelines.runtime.stage import StageDir, StageError
from pipelines.tuning.plots import plot_grid, plot_rows
from pipelines.tuning.results import Results, read_results
from pipelines.tuning.search import TABLE
from vse_core.evaluation.views import plot_view_diversity

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from pipelines.evaluation.ensemble import EvaluatedModel
    from pipelines.tuning.space import SearchConfig


def results_of(stage: StageDir, search: SearchConfig) -> Results:
    """Return the results of a search; StageError if it has not finished."""
    if not stage.is_complete():
        raise StageError(
            f"the search {search.name!r} has not finished under this configuration: run "
            "`python pipelines/tune.py` with the same --search and --config first"
        )
    stage.pull()
    return read_results(stage.path / TABLE)


def kmax_grid(stage: StageDir, search: SearchConfig) -> dict[str, Figure]:
    """Draw the RSUM of every combination of two keys (VSE-infinity, figure 6)."""
    return _drawn(plot_grid, stage, search)


def search_rows(stage: StageDir, search: SearchConfig) -> dict[str, Figure]:
    """Draw R@1 both ways and RSUM of the rows of a table (VSE-infinity, table 1 and figure 4)."""
    return _drawn(plot_rows, stage, search)


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


def _drawn(plot: Callable[[Results, SearchConfig], Figure], stage: StageDir, search: SearchConfig) -> dict[str, Figure]:
    results = results_of(stage, search)
    try:
        return {search.name: plot(results, search)}
    except ValueError as error:
        raise StageError(str(error)) from error
