"""The search command: a text or an image finds images or captions in the gallery of a registered model."""

import argparse
import gc
import logging
import os
import warnings
from collections.abc import Sequence
from pathlib import Path

from pipelines.retrieval.options import add_model_options
from pipelines.runtime.cli import CommandParser, number_in
from pipelines.runtime.stage import StageError

SHEET_SUFFIXES = (".html",)
BATCH_SUFFIXES = (".parquet", ".csv")


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line, search, and show or write the results."""
    options = _parse(arguments)
    _quieten()
    _check_output(options.output, BATCH_SUFFIXES if options.queries else SHEET_SUFFIXES)
    _check_file("--image", options.image)
    _check_file("--queries", options.queries)
    from pipelines.retrieval.answer import answer  # torch, transformers and FAISS: the command line is right

    if not gc.isenabled():  # the script's doing: what is imported is never garbage
        gc.freeze()
        gc.enable()
    answer(options)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = CommandParser(prog="search.py")
    parser.add_argument("text", nargs="?", help="the text to search with")
    parser.add_argument("--image", metavar="PATH", help="the image to search with, instead of a text")
    parser.add_argument("--queries", metavar="FILE", help="search with every line of a file; needs --output")
    kinds = "kind of the lines of --queries: texts, or paths of images (default: text)"
    parser.add_argument("--kind", choices=("text", "image"), default="text", help=kinds)
    add_model_options(parser)
    parser.add_argument("-k", type=number_in(int, 1), default=10, help="how many results (default 10)")
    parser.add_argument("--target", choices=("images", "captions"), help="what to find (default: the other kind)")
    sure = "leave out hits of a lower confidence, 0 to 1 (default: none is left out)"
    parser.add_argument("--min-confidence", type=number_in(float, 0, 1), default=0, metavar="SHARE", help=sure)
    where = "only images for which this holds, such as \"year >= 2020 and tags contains 'dog'\" (docs/search.md)"
    parser.add_argument("--where", default="", metavar="CONDITION", help=where)
    outputs = "write a contact sheet (.html), or the results of --queries (.parquet, .csv)"
    parser.add_argument("--output", type=Path, metavar="PATH", help=outputs)
    options = parser.parse_args(arguments)
    if [options.text, options.image, options.queries].count(None) != 2:  # an empty text is one, and told as such
        parser.error("give one of a text, --image PATH and --queries FILE")
    if options.queries is not None and options.output is None:
        parser.error(f"--queries needs --output FILE with one of {', '.join(BATCH_SUFFIXES)}")
    if options.kind == "image" and options.queries is None:
        parser.error("--kind is the kind of the lines of --queries; a single image is --image PATH")
    return options


def _check_output(output: Path | None, suffixes: Sequence[str]) -> None:
    """Refuse an output that cannot be written, before any work."""
    if output is None:
        return
    if output.suffix.lower() not in suffixes:
        raise StageError(f"--output {output} has the suffix {output.suffix!r}; use {' or '.join(suffixes)}")
    if not output.absolute().parent.is_dir():
        raise StageError(f"--output {output}: there is no directory {output.absolute().parent}")


def _check_file(option: str, path: str | None) -> None:
    """Refuse a file that is not there, before the model is loaded; URIs are left to the extractor."""
    if path is not None and "://" not in path and "#" not in path and not Path(path).is_file():
        raise StageError(f"{option} {path}: there is no such file")


def _quieten() -> None:
    """Keep the libraries' messages about themselves out of a search's output."""
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    # A user who waits for results is told soon that the server does not answer.
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
    warnings.filterwarnings("ignore", category=FutureWarning)
    for name in ("mlflow", "alembic", "transformers"):
        logging.getLogger(name).setLevel(logging.ERROR)
