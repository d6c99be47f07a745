"""The figures command: the figures of the papers from registered models and searches, as files and in MLflow."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from matplotlib.figure import Figure

from pipelines.config import PipelineConfig, load_config
from pipelines.paper_figures import of_models, of_runs, of_searches
from pipelines.paper_figures.registered_model import RegisteredModel
from pipelines.runtime.cli import CommandParser, add_config_options
from pipelines.runtime.stage import disk_errors, fingerprint
from pipelines.tracking import PipelineRuns
from pipelines.tuning.space import SearchConfig, load_search

NAME = "figures"
Files = Mapping[str, Figure | bytes]
"""The files of a figure by their names: to be drawn, or their content."""


@dataclass(frozen=True)
class Source:
    """What a figure is drawn from, as the command line names it."""

    config: PipelineConfig
    models: Sequence[RegisteredModel]
    search: SearchConfig | None
    queries: Sequence[str]

    @property
    def model(self) -> RegisteredModel:
        """The model, of a figure that takes one."""
        return self.models[0]

    @property
    def searched(self) -> SearchConfig:
        """The search, of a figure that takes one."""
        assert self.search is not None
        return self.search


@dataclass(frozen=True)
class PaperFigure:
    """A figure of a paper: its title, what it takes, and the function that draws it."""

    title: str
    takes: Literal["model", "models", "search", "queries"]
    draw: Callable[[Source], Files]


def _of_search(plot: Callable[[of_searches.Results, SearchConfig], Figure]) -> Callable[[Source], Files]:
    """Return a function that plots the results of a search."""

    def draw(source: Source) -> Files:
        results = of_searches.results_of(source.config, source.searched)
        return {f"{source.searched.name}.png": plot(results, source.searched)}

    return draw


FIGURES = {
    "gpo-coefficients": PaperFigure(
        "pooling weights learned by GPO (VSE-infinity, figure 5)",
        "model",
        lambda source: of_models.gpo_coefficients(source.model),
    ),
    "kmax-grid": PaperFigure(
        "RSUM over K of both poolings, from a finished search (VSE-infinity, figure 6)",
        "search",
        _of_search(of_searches.plot_grid),
    ),
    "search-rows": PaperFigure(
        "R@1 and RSUM of the rows of a finished search (VSE-infinity, table 1 and figure 4)",
        "search",
        _of_search(of_searches.plot_rows),
    ),
    "caption-similarity": PaperFigure(
        "similarity of the captions of one image (MV-VSE, figure 2)",
        "model",
        lambda source: of_models.caption_similarity(source.model),
    ),
    "view-diversity": PaperFigure(
        "choice and similarity of views, over lambda and K (MV-VSE, figure 4)",
        "search",
        lambda source: {
            f"{source.searched.name}.png": of_searches.view_diversity(source.config, source.searched),
        },
    ),
    "view-attention": PaperFigure(
        "where two views of an image look (MV-VSE, figure 5)",
        "model",
        lambda source: of_models.view_attention(source.model),
    ),
    "top-5": PaperFigure(
        "the first five retrievals, relevant ones marked (VSE+2AD, figure 4)",
        "model",
        lambda source: of_models.top_5(source.model, source.config.dataset),
    ),
    "convergence": PaperFigure(
        "RSUM by epoch of several trainings (VSE+2AD, appendix, figure 1)",
        "models",
        lambda source: of_runs.convergence(source.models),
    ),
    "negatives": PaperFigure(
        "number of negatives over time (VSE+2AD, appendix, figure 2)",
        "models",
        lambda source: of_runs.negatives(source.models),
    ),
    "alpha-sweep": PaperFigure(
        "recalls over alpha, without and under attack (UniVSE, figure 5)",
        "model",
        lambda source: of_runs.alpha_sweep(source.model, source.config),
    ),
    "relevance": PaperFigure(
        "regions of the retrieved images that a query names (UniVSE, figure 6)",
        "queries",
        lambda source: of_models.relevance_maps(source.model, source.queries),
    ),
}


def keep(name: str, config: PipelineConfig, files: Files, folder: Path) -> list[Path]:
    """Write the files of a figure into a folder, and log them to a run of their own in MLflow."""
    paths = [folder / file for file in files]
    with disk_errors(NAME, folder):
        folder.mkdir(parents=True, exist_ok=True)
        for path, content in zip(paths, files.values(), strict=True):
            if isinstance(content, Figure):
                content.savefig(path, bbox_inches="tight", dpi=120)
            else:
                path.write_bytes(content)
    identity = fingerprint([NAME, name, [str(path) for path in paths]])
    with PipelineRuns(config.experiment, identity, f"figure {name}") as runs, runs.parent as tracker:
        tracker.set_tags({"vse.figure": name})
        for path in paths:
            tracker.log_artifact(path, NAME)
    return paths


def main() -> None:
    """Read the command line, draw, and print the files."""
    options = _parser().parse_args()
    config = load_config(options.config, options.set)
    models = [RegisteredModel(reference, config.tracking_uri) for reference in options.model]
    search = None if options.search is None else load_search(options.search)
    files = FIGURES[options.figure].draw(Source(config, models, search, options.query))
    folder = options.output or config.work_dir / NAME / options.figure
    for path in keep(options.figure, config, files, folder):
        sys.stdout.write(f"{path}\n")


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser()
    names = parser.add_subparsers(dest="figure", required=True, metavar="FIGURE")
    known = "NAME, NAME@ALIAS, NAME/VERSION, or the output directory of a register stage"
    for name, figure in FIGURES.items():
        child = names.add_parser(name, help=figure.title, description=f"Draw the {figure.title}.")
        child.set_defaults(model=[], search=None, query=[])
        add_config_options(child)
        child.add_argument("--output", type=Path, metavar="FOLDER", help="where to write (default: in work_dir)")
        if figure.takes == "search":
            child.add_argument("--search", required=True, type=Path, metavar="FILE", help="YAML file of the search")
        elif figure.takes == "models":
            child.add_argument("--model", required=True, action="append", metavar="MODEL", help=f"{known} (repeatable)")
        else:
            child.add_argument("--model", required=True, nargs=1, metavar="MODEL", help=known)
        if figure.takes == "queries":
            queries = "text to search with (repeatable; default: the paper's)"
            child.add_argument("--query", action="append", metavar="TEXT", help=queries)
    return parser
