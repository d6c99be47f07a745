"""The figures command: the figures of the papers from registered models and searches, as files and in MLflow."""

import argparse
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from matplotlib.figure import Figure

from pipelines.config import PipelineConfig, load_config
from pipelines.paper_figures import of_models, of_runs, of_searches
from pipelines.paper_figures.registered_model import RegisteredModel
from pipelines.runtime.cli import CommandParser, add_config_options, file_or_packaged
from pipelines.runtime.stage import disk_errors, fingerprint
from pipelines.tracking import PipelineRuns
from pipelines.tuning.space import load_search

NAME = "figures"
Files = Mapping[str, Figure | bytes]
"""The files of a figure by their names: to be drawn, or their content."""


@dataclass(frozen=True)
class PaperFigure:
    """A figure of a paper: the function that draws it, whose docstring is its title, and what this function takes.

    These are a model, several, a model and the configuration, a model and queries or a sentence encoder, or the
    configuration and a search. It returns `Files`; of a search one figure.
    """

    draw: Callable[..., Any]
    takes: Literal["model", "models", "config", "queries", "encoder", "search"] = "model"


FIGURES = {
    "gpo-coefficients": PaperFigure(of_models.gpo_coefficients),
    "kmax-grid": PaperFigure(of_searches.grid, "search"),
    "search-rows": PaperFigure(of_searches.rows, "search"),
    "caption-similarity": PaperFigure(of_models.caption_similarity, "encoder"),
    "view-diversity": PaperFigure(of_searches.view_diversity, "search"),
    "view-attention": PaperFigure(of_models.view_attention),
    "top-5": PaperFigure(of_models.top_5, "config"),
    "convergence": PaperFigure(of_runs.convergence, "models"),
    "negatives": PaperFigure(of_runs.negatives, "models"),
    "alpha-sweep": PaperFigure(of_runs.alpha_sweep, "config"),
    "relevance": PaperFigure(of_models.relevance_maps, "queries"),
}


def draw(figure: PaperFigure, config: PipelineConfig, options: argparse.Namespace) -> Files:
    """Draw a figure of what the options of the command name."""
    if figure.takes == "search":
        search = load_search(options.search, options.search_set)
        return {f"{search.name}.png": figure.draw(config, search)}
    models = [RegisteredModel(reference, config.tracking_uri) for reference in options.model]
    if figure.takes == "models":
        files: Files = figure.draw(models)
    elif figure.takes in ("queries", "encoder"):
        files = figure.draw(models[0], getattr(options, figure.takes))
    else:
        files = figure.draw(models[0]) if figure.takes == "model" else figure.draw(models[0], config)
    return files


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
    files = draw(FIGURES[options.figure], config, options)
    folder = options.output or config.work_dir / NAME / options.figure
    for path in keep(options.figure, config, files, folder):
        sys.stdout.write(f"{path}\n")


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser()
    names = parser.add_subparsers(dest="figure", required=True, metavar="FIGURE")
    known = "NAME, NAME@ALIAS, NAME/VERSION, or the output directory of a register stage"
    for name, figure in FIGURES.items():
        title = (figure.draw.__doc__ or "").partition("\n")[0]
        child = names.add_parser(name, help=title, description=title)
        add_config_options(child)
        child.add_argument("--output", type=Path, metavar="FOLDER", help="where to write (default: in work_dir)")
        if figure.takes == "search":
            read = file_or_packaged("searches")
            child.add_argument("--search", required=True, type=read, metavar="FILE", help="search")
            keys = "override a key of the search, as it was overridden in tune"
            child.add_argument("--search-set", action="append", default=[], metavar="KEY=VALUE", help=keys)
        elif figure.takes == "models":
            child.add_argument("--model", required=True, action="append", metavar="MODEL", help=f"{known} (repeatable)")
        else:
            child.add_argument("--model", required=True, nargs=1, metavar="MODEL", help=known)
        if figure.takes == "queries":
            queries = "text to search with (repeatable; default: the paper's)"
            child.add_argument("--query", action="append", default=[], dest="queries", metavar="TEXT", help=queries)
        elif figure.takes == "encoder":
            encoders = "hf: and a folder or name of a sentence encoder (default: the model's own captions)"
            child.add_argument("--encoder", metavar="ENCODER", help=encoders)
    return parser
