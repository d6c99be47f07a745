"""Figures of finished hyperparameter searches: a grid of two keys, the rows of a table, and views of images."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from pipelines.config import PipelineConfig
from pipelines.evaluation import GALLERY
from pipelines.evaluation.named_models import NamedModel, evaluate_model
from pipelines.paper_figures.of_models import image_of
from pipelines.retrieval.gallery import Gallery
from pipelines.runtime.commands import command
from pipelines.runtime.stage import StageError
from pipelines.stages.runner import plan_stages
from pipelines.tuning.results import Setting, value_text
from pipelines.tuning.search import finished_settings, search_dir
from pipelines.tuning.space import ROW, SearchConfig, with_settings
from vse_core.evaluation.plots import OKABE_ITO, tidy
from vse_core.evaluation.views import ViewSummary, chosen_views, plot_view_diversity, view_similarity

_COLUMNS = {"image to text R@1 (%)": "i2t_r01", "text to image R@1 (%)": "t2i_r01", "RSUM (%, of 600)": None}


def settings_of(config: PipelineConfig, search: SearchConfig) -> list[Setting]:
    """Return the settings of a search around a configuration; StageError if it has not finished."""
    stage = search_dir(config, search)
    if not stage.is_complete():
        raise StageError(
            f"the search {search.name!r} has not finished under this configuration: run "
            f"`{command('tune')}` with the same --search and --config first"
        )
    return finished_settings(stage)


def grid(config: PipelineConfig, search: SearchConfig) -> Figure:
    """Plot the mean RSUM of every combination of two keys, the best framed (VSE-infinity, figure 6).

    Raises StageError if it is another search or has not finished, or no setting has an RSUM.
    """
    keys = list(search.domains)
    if len(keys) != 2 or any(domain.values is None for domain in search.domains.values()):
        raise StageError(f"a grid is drawn of two keys with values; the search {search.name!r} has {', '.join(keys)}")
    rows, columns = ([value_text(value) for value in search.domains[key].extremes] for key in keys)
    means = np.full((len(rows), len(columns)), np.nan)
    for setting in settings_of(config, search):
        row, column = (value_text(setting.settings[key]) for key in keys)
        means[rows.index(row), columns.index(column)] = np.nan if setting.mean is None else setting.mean
    if np.isnan(means).all():
        raise StageError("there is no setting with an RSUM to plot")
    figure = Figure(figsize=(2.6 + 1.15 * len(columns), 1.8 + 0.62 * len(rows)), layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(means, cmap="viridis", aspect="auto")
    middle = (np.nanmin(means) + np.nanmax(means)) / 2
    for (row, column), mean in np.ndenumerate(means):
        text = "none" if np.isnan(mean) else f"{mean:.1f}"
        axes.text(column, row, text, ha="center", va="center", color="white" if mean <= middle else "black")
    best_row, best_column = np.unravel_index(int(np.nanargmax(means)), means.shape)
    frame = Rectangle((best_column - 0.5, best_row - 0.5), 1, 1, fill=False, edgecolor=OKABE_ITO["vermillion"])
    frame.set(linewidth=4, label=f"best: {np.nanmax(means):.1f}", clip_on=False)
    axes.add_patch(frame)
    axes.set_xticks(range(len(columns)), columns)
    axes.set_yticks(range(len(rows)), rows)
    axes.set(xlabel=keys[1], ylabel=keys[0])
    axes.legend(handles=[frame], frameon=False, loc="lower right", bbox_to_anchor=(1.0, 1.0), fontsize=9)
    figure.colorbar(image, ax=axes, label="RSUM (%, of 600)")
    return figure


def rows(config: PipelineConfig, search: SearchConfig) -> Figure:
    """Plot R@1 both ways and RSUM of every row, in the order of the search (VSE-infinity, table 1 and figure 4).

    Points are means over the seeds. Raises StageError if it is another search or has not finished, or no row has an
    RSUM.
    """
    if not search.rows:
        raise StageError(f"rows are drawn of a search with the method rows; {search.name!r} has {search.method}")
    trained = (setting for setting in settings_of(config, search) if setting.mean is not None)
    settings = {setting.settings[ROW]: setting for setting in trained}
    if not settings:
        raise StageError("there is no row with an RSUM to plot")
    names = list(search.rows)
    figure = Figure(figsize=(11, 1.2 + 0.34 * len(names)), layout="constrained")
    panels = figure.subplots(1, len(_COLUMNS), sharey=True)
    for axes, (title, recall) in zip(panels, _COLUMNS.items(), strict=True):
        for index, name in enumerate(names):
            setting = settings.get(name)
            value = None if setting is None else setting.mean if recall is None else setting.recalls[recall]
            if value is None:
                axes.annotate("failed", (0.02, index), xycoords=("axes fraction", "data"), va="center", fontsize=8)
                continue
            axes.scatter([value], [index], color=OKABE_ITO["blue"])
            label = f"{value:.1f}"
            axes.annotate(label, (value, index), (7, 0), textcoords="offset points", va="center", fontsize=8)
        tidy(axes)
        axes.margins(x=0.25)
        axes.set(xlabel=title, ylim=(len(names) - 0.5, -0.5))
        axes.set_yticks(range(len(names)), names)
    return figure


def view_diversity(config: PipelineConfig, search: SearchConfig) -> Figure:
    """Draw RSUM, the views' similarity and the captions' choice of views, over lambda and K (MV-VSE, figure 4).

    The choice is drawn of two models with the same number of views, as in the paper: of the highest lambda, and of the
    best one with another. The model of a setting is that of its first seed.
    """
    summaries = [
        _summary(config, search, setting.settings)
        for setting in settings_of(config, search)
        if setting.mean is not None
    ]
    several = [summary for summary in summaries if summary.lam is not None and len(summary.shares) > 1]
    alone = max(several, key=lambda summary: (summary.lam, summary.rsum), default=None)
    others = [
        summary
        for summary in several
        if alone is not None and summary.lam != alone.lam and len(summary.shares) == len(alone.shares)
    ]
    shown = [alone, max(others, key=lambda summary: summary.rsum)] if alone is not None and others else summaries
    return plot_view_diversity(summaries, shown)


def _summary(config: PipelineConfig, search: SearchConfig, settings: Mapping[str, Any]) -> ViewSummary:
    """Evaluate the model of a setting, and return its entry in the figure of views."""
    name = ", ".join(map(value_text, settings.values()))
    trained = with_settings(config, search.values_of(settings), config.seed)
    plan = plan_stages(trained, last="train")["train"]
    if not plan.complete:
        raise StageError(f"{name}: its training is not in {plan.directory}: delete it, and search again")
    evaluated = evaluate_model(NamedModel(name, trained, plan.output("best")))
    gallery, loss = Gallery.load(evaluated.directory / GALLERY), trained.loss
    chosen_C = chosen_views(gallery.images_BKD, gallery.texts_CD, image_of(gallery))
    views = gallery.images_BKD.shape[1]
    shares_K = torch.bincount(chosen_C, minlength=views) / max(1, len(chosen_C))
    lam = loss.lam if loss.name == "multi_view" and loss.bound == "joint" else None
    similarity = view_similarity(gallery.images_BKD) if views > 1 else None
    return ViewSummary(name, lam, shares_K.tolist(), similarity, evaluated.metrics["rsum"])
