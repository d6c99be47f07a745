"""Search a registered model's gallery: a text finds images, an image finds captions or images.

python pipelines/search.py --model flickr8k "a dog running on the beach" --output results.html
python pipelines/search.py --model flickr8k@challenger --image photo.jpg -k 5
python pipelines/search.py --model flickr8k --queries queries.txt --output results.parquet

The last one searches with every line of a file. Lines that are no queries are listed beside the results.
"""

from __future__ import annotations

import argparse
import logging
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from pipelines.retrieval.search_model import (
    DEFAULT_TARGETS,
    Kind,
    SearchError,
    SearchModel,
    Target,
    default_tracking_uri,
    load_search_model,
)
from pipelines.runtime.cli import CommandParser

if TYPE_CHECKING:
    from pipelines.retrieval.sheet_rows import SheetRow

SHEET_SUFFIXES = (".html", ".png")
BATCH_SUFFIXES = (".parquet", ".csv", ".jsonl")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status: 0, or 1 after one message on what was wrong."""
    options = _parse(arguments)
    _quieten()
    try:
        _check_output(options.output, BATCH_SUFFIXES if options.queries else SHEET_SUFFIXES)
        _check_file("--image", options.image)
        _check_file("--queries", options.queries)
        model = load_search_model(options.model, options.tracking_uri or default_tracking_uri())
        if not model.has_stored_index:
            Console(stderr=True).print(f"{model.name} has no index of its own; searching exactly", highlight=False)
        if options.queries is not None:
            _search_batch(options, model)
        else:
            _search_one(options, model)
    except SearchError as error:
        Console(stderr=True).print(f"[bold red]error:[/] {escape(str(error))}", soft_wrap=True, highlight=False)
        return 1
    return 0


def _search_one(options: argparse.Namespace, model: SearchModel) -> None:
    """Search with a text or an image, and show what is found."""
    kind: Kind = "image" if options.text is None else "text"
    row = search(model, options.text or options.image, kind, options.k, options.target or DEFAULT_TARGETS[kind])
    Console().print(_table(row, model))
    if options.output is not None:
        _write_sheet(options.output, row, model.name)
        Console().print(f"Contact sheet: {options.output}", soft_wrap=True, highlight=False)


def _search_batch(options: argparse.Namespace, model: SearchModel) -> None:
    """Search with every line of a file, and say how many there were."""
    from pipelines.retrieval.batch_search import search_batch

    target = options.target or DEFAULT_TARGETS[options.kind]
    try:
        report = search_batch(model, Path(options.queries), options.output, options.kind, options.k, target)
    except OSError as error:
        raise SearchError(f"{error.filename or options.output}: {error.strerror or error}") from error
    aside = f"; {report.set_aside:,} lines are no queries: {report.reasons}" if report.set_aside else ""
    message = f"{report.searched:,} queries searched with: {options.output}{aside}"
    Console().print(message, soft_wrap=True, highlight=False)


def search(model: SearchModel, query: str, kind: Kind, k: int, target: Target) -> SheetRow:
    """Find the gallery's items nearest to a query.

    Args:
        model: the model, with its gallery.
        query: a text, or the path or URI of an image.
        kind: which of the two it is.
        k: results.
        target: what to find.

    Returns:
        The query with its results, best first.

    Raises:
        SearchError: the query cannot be embedded.
    """
    from pipelines.inference.embedder import QueryError
    from pipelines.retrieval.sheet_rows import SheetRow

    try:
        (hits,) = model.find(model.embed([query], kind), k, target)
    except QueryError as error:
        raise SearchError(f"cannot search with the {kind} {query!r}: {error.reason}") from error
    is_text = kind == "text"
    return SheetRow(tuple(hits), query_text=query if is_text else None, query_image_uri=None if is_text else query)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line; a mistake in it ends with one message and exit status 1, as every other mistake does."""
    parser = CommandParser(prog="search.py", description="Search a registered model's gallery with a text or an image.")
    parser.add_argument("text", nargs="?", help="the text to search with")
    parser.add_argument("--image", metavar="PATH", help="the image to search with, instead of a text")
    parser.add_argument("--queries", metavar="FILE", help="search with every line of a file; needs --output")
    kinds = "what the lines of --queries are: texts, or paths of images (default: text)"
    parser.add_argument("--kind", choices=("text", "image"), default="text", help=kinds)
    models = "NAME, NAME@ALIAS, NAME/VERSION, a models:/ URI, or the output directory of a register stage"
    parser.add_argument("--model", required=True, help=models)
    parser.add_argument("-k", type=int, default=10, help="how many results (default 10)")
    parser.add_argument("--target", choices=("images", "captions"), help="what to find (default: the other kind)")
    outputs = "write a contact sheet (.html, .png), or the results of --queries (.parquet, .csv, .jsonl)"
    parser.add_argument("--output", type=Path, metavar="PATH", help=outputs)
    parser.add_argument("--tracking-uri", help="MLflow address (default: sqlite in $VSE_WORK_DIR, or ~/vse-work)")
    options = parser.parse_args(arguments)
    if sum(map(bool, (options.text, options.image, options.queries))) != 1:
        parser.error("give one of a text, --image PATH and --queries FILE")
    if options.queries is not None and options.output is None:
        parser.error(f"--queries needs --output FILE with one of {', '.join(BATCH_SUFFIXES)}")
    if options.kind == "image" and options.queries is None:
        parser.error("--kind says what the lines of --queries are; a single image is --image PATH")
    if options.k < 1:
        parser.error(f"-k must be at least 1, got {options.k}")
    return options


def _check_output(output: Path | None, suffixes: Sequence[str]) -> None:
    """Refuse an output that could not be written, before any work."""
    if output is None:
        return
    if output.suffix.lower() not in suffixes:
        raise SearchError(f"--output {output} has the suffix {output.suffix!r}; use {' or '.join(suffixes)}")
    if not output.absolute().parent.is_dir():
        raise SearchError(f"--output {output}: there is no directory {output.absolute().parent}")


def _check_file(option: str, path: str | None) -> None:
    """Refuse a file that is not there, before the model is loaded; URIs are left to the extractor."""
    if path is not None and "://" not in path and "#" not in path and not Path(path).is_file():
        raise SearchError(f"{option} {path}: there is no such file")


def _table(row: SheetRow, model: SearchModel) -> Table:
    """Lay the results out for the terminal."""
    query = f"“{row.query_text}”" if row.query_text is not None else row.query_image_uri
    table = Table(title=Text(f"{query} in the gallery of {model.name}"))
    table.add_column("rank", justify="right")
    table.add_column("similarity", justify="right")
    table.add_column("caption" if row.has_captions else "image", overflow="fold")
    table.add_column("id", overflow="fold")
    for rank, hit in enumerate(row.hits, start=1):
        shown = hit.caption if row.has_captions else hit.image_uri
        table.add_row(str(rank), f"{hit.similarity:.4f}", Text(shown or ""), Text(hit.item_id))
    return table


def _write_sheet(output: Path, row: SheetRow, name: str) -> None:
    """Write the contact sheet in the format of the suffix."""
    from pipelines.retrieval.contact_sheet import contact_sheet_html, contact_sheet_png

    title = f"Search in the gallery of {name}"
    try:
        if output.suffix.lower() == ".png":
            contact_sheet_png(title, [row]).save(output)
        else:
            output.write_text(contact_sheet_html(title, [row]), encoding="utf-8")
    except OSError as error:
        raise SearchError(f"--output {output} cannot be written: {error.strerror or error}") from error


def _quieten() -> None:
    """Keep the libraries' notes on their own housekeeping out of a search's output."""
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    # A server that is away: a minute of retries is no answer for somebody who waits.
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
    warnings.filterwarnings("ignore", category=FutureWarning)
    for name in ("mlflow", "alembic", "transformers"):
        logging.getLogger(name).setLevel(logging.ERROR)
