"""Figures of finished hyperparameter searches: grids, rows of a table, and the views of their models."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pipelines.evaluation.evaluator import GALLERY
from pipelines.paper_figures.of_models import view_summary
from pipelines.retrieval.gallery import Gallery
from pipelines.runtime.stage import StageError
from pipelines.stages.model_evaluation import NamedModel, evaluate_model
from pipelines.stages.runner import plan_stages
from pipelines.tuning.plots import plot_grid, plot_rows
from pipelines.tuning.results import Results, read_results, value_text
from pipelines.tuning.search import TABLE, search_dir
from pipelines.tuning.space import with_settings
from vse_core.evaluation.views import ViewSummary, plot_view_diversity

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from pipelines.config import PipelineConfig
    from pipelines.tuning.space import SearchConfig


def kmax_grid(config: PipelineConfig, search: SearchConfig) -> dict[str, Figure]:
    """Draw the RSUM of every combination of two keys (VSE-infinity, figure 6)."""
    return _drawn(plot_grid, config, search)


def search_rows(config: PipelineConfig, search: SearchConfig) -> dict[str, Figure]:
    """Draw R@1 both ways and RSUM of the rows of a table (VSE-infinity, table 1 and figure 4)."""
    return _drawn(plot_rows, config, search)


def view_diversity(config: PipelineConfig, search: SearchConfig) -> dict[str, Figure]:
    """Draw RSUM, the views' similarity and the captions' choice of views, over lambda and K (MV-VSE, figure 4).

    The models of the search are evaluated first. The choice is drawn of two of them, as in the paper: of the highest
    lambda, and of the best model of several views with another.
    """
    models = [
        _views(config, search, dict(setting.settings))
        for setting in _results(config, search).by_setting()
        if setting.mean is not None
    ]
    several = [model for model in models if model.lam is not None and len(model.shares) > 1]
    alone = max(several, key=lambda model: (model.lam, model.rsum), default=None)
    others = [model for model in several if alone is not None and model.lam != alone.lam]
    shown = [alone, max(others, key=lambda model: model.rsum)] if alone is not None and others else models
    return {search.name: plot_view_diversity(models, shown)}


def _drawn(
    plot: Callable[[Results, SearchConfig], Figure], config: PipelineConfig, search: SearchConfig
) -> dict[str, Figure]:
    try:
        return {search.name: plot(_results(config, search), search)}
    except ValueError as error:
        raise StageError(str(error)) from error


def _results(config: PipelineConfig, search: SearchConfig) -> Results:
    stage = search_dir(config, search)
    if not stage.is_complete():
        raise StageError(
            f"the search {search.name!r} has not finished under this configuration: run "
            "`python pipelines/tune.py` with the same --search and --config first"
        )
    stage.pull()
    return read_results(stage.path / TABLE)


def _views(config: PipelineConfig, search: SearchConfig, drawn: dict[str, object]) -> ViewSummary:
    """Evaluate the model of a setting, the one of the first seed."""
    name = ", ".join(map(value_text, drawn.values()))
    trained = with_settings(config, search.values_of(drawn), config.seed)
    plan = plan_stages(trained, last="train")["train"]
    if not plan.complete:
        raise StageError(f"{name}: its training is not in {plan.directory}: start the search again, which repeats it")
    evaluated = evaluate_model(NamedModel(name, trained, plan.output("best")))
    lam = trained.loss.lam if trained.loss.name == "multi_view" and trained.loss.bound == "joint" else None
    return view_summary(name, Gallery.load(evaluated.directory / GALLERY), lam)
