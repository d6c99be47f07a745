"""The figures command: the figures of the papers from registered models, as files and in MLflow."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pipelines.config import PipelineConfig, load_config
from pipelines.runtime.cli import CommandParser, add_config_options
from pipelines.runtime.stage import StageDir, StageError, disk_errors, fingerprint
from pipelines.tuning.results import value_text
from pipelines.tuning.space import SearchConfig, load_search, with_settings

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from PIL.Image import Image

    from pipelines.evaluation.ensemble import EvaluatedModel
    from pipelines.paper_figures.registered_model import RegisteredModel
    from pipelines.schema.experiment import Experiment

NAME = "figures"
# Of UniVSE's figure 6.
_QUERIES = ("black dog", "white dog", "player swing bat")


@dataclass(frozen=True)
class PaperFigure:
    """A figure of a paper, and what it is drawn from: a model, several, a search, or a model and queries."""

    title: str
    takes: Literal["model", "models", "search", "models or search", "queries"]


FIGURES = {
    "gpo-coefficients": PaperFigure("pooling weights learned by GPO (VSE-infinity, figure 5)", "model"),
    "kmax-grid": PaperFigure("RSUM over K of both poolings, from a finished search (VSE-infinity, figure 6)", "search"),
    "search-rows": PaperFigure(
        "R@1 and RSUM of the rows of a finished search (VSE-infinity, table 1 and figure 4)", "search"
    ),
    "caption-similarity": PaperFigure("similarity of the captions of one image (MV-VSE, figure 2)", "model"),
    "view-diversity": PaperFigure(
        "choice and similarity of views, over lambda and K (MV-VSE, figure 4)", "models or search"
    ),
    "view-attention": PaperFigure("where two views of an image look (MV-VSE, figure 5)", "model"),
    "top-5": PaperFigure("the first five retrievals, relevant ones marked (VSE+2AD, figure 4)", "model"),
    "convergence": PaperFigure("RSUM by epoch of several trainings (VSE+2AD, appendix, figure 1)", "models"),
    "negatives": PaperFigure("number of negatives over time (VSE+2AD, appendix, figure 2)", "models"),
    "alpha-sweep": PaperFigure("recalls over alpha, without and under attack (UniVSE, figure 5)", "model"),
    "relevance": PaperFigure("regions of the retrieved images that a query names (UniVSE, figure 6)", "queries"),
}


def draw(name: str, config: PipelineConfig, options: argparse.Namespace) -> dict[str, Figure | Image]:
    """Draw a figure; return its images by their names."""
    from pipelines.paper_figures import of_models, of_runs
    from pipelines.paper_figures.registered_model import RegisteredModel
    from pipelines.tuning.plots import plot_grid, plot_rows
    from pipelines.tuning.search import search_dir

    if FIGURES[name].takes.endswith("search") and options.search is not None:
        search = load_search(options.search)
        stage = search_dir(config, search)
        if name == "view-diversity":
            return {**of_runs.view_diversity(_searched(config, search, stage), search.name)}
        return {**of_runs.search_results(plot_grid if name == "kmax-grid" else plot_rows, stage, search)}
    models = [RegisteredModel(reference, config.tracking_uri) for reference in options.model]
    if name == "relevance":
        return {**of_models.relevance_maps(models[0], options.query or _QUERIES)}
    if name == "top-5":
        return {**of_models.top_5(models[0], config.dataset)}
    if name == "alpha-sweep":
        return {**of_runs.alpha_sweep(_attacked(models[0], config))}
    draws: Mapping[str, Callable[..., Mapping[str, Figure | Image]]] = {
        "gpo-coefficients": of_models.gpo_coefficients,
        "caption-similarity": of_models.caption_similarity,
        "view-diversity": of_models.view_diversity,
        "view-attention": of_models.view_attention,
        "convergence": of_runs.convergence,
        "negatives": of_runs.negatives,
    }
    return {**draws[name](models if FIGURES[name].takes.startswith("models") else models[0])}


def _searched(
    config: PipelineConfig, search: SearchConfig, stage: StageDir
) -> list[tuple[EvaluatedModel, float | None]]:
    """Evaluate the models of a search, of each setting that of the first seed, and name their lambdas if any."""
    from pipelines.paper_figures.of_runs import results_of
    from pipelines.stages.model_evaluation import NamedModel, evaluate_model
    from pipelines.stages.runner import plan_stages

    models = []
    for setting in results_of(stage, search).by_setting():
        if setting.mean is None:
            continue
        name = ", ".join(map(value_text, setting.settings.values()))
        trained = with_settings(config, search.values_of(setting.settings), config.seed)
        plan = plan_stages(trained, last="train")["train"]
        if not plan.complete:
            raise StageError(f"{name}: its training is not in {plan.directory}: delete {stage.path}, and search again")
        loss = trained.loss
        lam = loss.lam if loss.name == "multi_view" and loss.bound == "joint" else None
        models.append((evaluate_model(NamedModel(name, trained, plan.output("best"))), lam))
    return models


def _attacked(registered: RegisteredModel, config: PipelineConfig) -> EvaluatedModel:
    """Evaluate a model under attack on the split of the configuration, if it has not been."""
    from pipelines.stages.model_evaluation import NamedModel, evaluate_model

    settings = config.evaluation.model_copy(update={"protocols": ("retrieval", "attack")})
    config = config.model_copy(update={"evaluation": settings})
    return evaluate_model(NamedModel(registered.name, config, registered.bundle[1] / "model"))


def keep(name: str, experiment: Experiment, images: Mapping[str, Figure | Image], folder: Path) -> list[Path]:
    """Write images as PNG into a folder, and log them to a run of their own in MLflow."""
    from matplotlib.figure import Figure

    from pipelines.tracking import PipelineRuns

    files = []
    with disk_errors(NAME, folder):
        folder.mkdir(parents=True, exist_ok=True)
        for each, image in images.items():
            files.append(folder / f"{each}.png")
            if isinstance(image, Figure):
                image.savefig(files[-1], bbox_inches="tight", dpi=120)
            else:
                image.save(files[-1])
    identity = fingerprint([NAME, name, [str(file) for file in files]])
    with PipelineRuns(experiment, identity, f"figure {name}") as runs, runs.parent as tracker:
        tracker.set_tags({"vse.figure": name})
        for file in files:
            tracker.log_artifact(file, NAME)
    return files


def main() -> None:
    """Read the command line, draw, and print the files."""
    options = _parser().parse_args()
    config = load_config(options.config, options.set)
    folder = options.output or config.work_dir / NAME / options.figure
    for file in keep(options.figure, config.experiment, draw(options.figure, config, options), folder):
        sys.stdout.write(f"{file}\n")


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser()
    names = parser.add_subparsers(dest="figure", required=True, metavar="FIGURE")
    for name, figure in FIGURES.items():
        child = names.add_parser(name, help=figure.title, description=f"Draw the {figure.title}.")
        add_config_options(child)
        child.add_argument("--output", type=Path, metavar="FOLDER", help="where to write (default: in work_dir)")
        subject = child.add_mutually_exclusive_group(required=True)
        if figure.takes.endswith("search"):
            subject.add_argument("--search", type=Path, metavar="FILE", help="YAML file of the search")
        if figure.takes == "search":
            continue
        known = "NAME, NAME@ALIAS, NAME/VERSION, or the output directory of a register stage"
        if figure.takes.startswith("models"):
            subject.add_argument("--model", action="append", metavar="MODEL", help=f"{known} (repeatable)")
        else:
            subject.add_argument("--model", nargs=1, metavar="MODEL", help=known)
        if figure.takes == "queries":
            queries = "text to search with (repeatable; default: the paper's)"
            child.add_argument("--query", action="append", metavar="TEXT", help=queries)
    return parser
