"""The search command: a text or an image finds images or captions in the gallery of a registered model."""

from __future__ import annotations

import argparse
import logging
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from pipelines.retrieval.search_model import (
    Kind,
    SearchError,
    SearchModel,
    add_model_options,
    default_tracking_uri,
    load_search_model,
)
from pipelines.runtime.cli import CommandParser, console, number_in

if TYPE_CHECKING:
    from pipelines.retrieval.hits import SheetRow

SHEET_SUFFIXES = (".html",)
BATCH_SUFFIXES = (".parquet", ".csv", ".jsonl")


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line, search, and show or write the results."""
    from pipelines.retrieval.image_gallery import newer_model

    options = _parse(arguments)
    _quieten()
    _check_output(options.output, BATCH_SUFFIXES if options.queries else SHEET_SUFFIXES)
    _check_file("--image", options.image)
    _check_file("--queries", options.queries)
    tracking_uri = options.tracking_uri or default_tracking_uri()
    model = load_search_model(options.model, tracking_uri)
    if newer := newer_model(Path(options.model), tracking_uri):
        console(stderr=True).print(newer, soft_wrap=True)
    try:
        message = _search_one(options, model) if options.queries is None else _search_batch(options, model)
    except OSError as error:
        raise SearchError(f"{error.filename or options.output}: {error.strerror or error}") from error
    if message:
        console().print(message, soft_wrap=True)


def _search_one(options: argparse.Namespace, model: SearchModel) -> str:
    """Search, print the hits, and write the contact sheet if one is wanted; return a message."""
    from pipelines.retrieval.contact_sheet import contact_sheet
    from pipelines.retrieval.hits import SheetRow

    kind: Kind = "image" if options.text is None else "text"
    query = options.text or options.image
    hits = tuple(model.search(query, kind, options.k, model.target_of(kind, options.target)))
    row = SheetRow(hits, query_text=query) if kind == "text" else SheetRow(hits, query_image_uri=query)
    console().print(_table(row, model.name))
    if options.output is None:
        return ""
    options.output.write_bytes(contact_sheet(f"Search in the gallery of {model.name}", [row]))
    return f"Contact sheet: {options.output}"


def _search_batch(options: argparse.Namespace, model: SearchModel) -> str:
    """Search with every line of a file; return a message with the number of queries."""
    from pipelines.retrieval.batch_search import search_batch

    target = model.target_of(options.kind, options.target)
    report = search_batch(model, Path(options.queries), options.output, options.kind, options.k, target)
    skipped = f"; {report.skipped:,} lines were skipped: {report.reasons}" if report.skipped else ""
    return f"{report.searched:,} queries searched with: {options.output}{skipped}"


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
    outputs = "write a contact sheet (.html), or the results of --queries (.parquet, .csv, .jsonl)"
    parser.add_argument("--output", type=Path, metavar="PATH", help=outputs)
    options = parser.parse_args(arguments)
    if sum(map(bool, (options.text, options.image, options.queries))) != 1:
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
        raise SearchError(f"--output {output} has the suffix {output.suffix!r}; use {' or '.join(suffixes)}")
    if not output.absolute().parent.is_dir():
        raise SearchError(f"--output {output}: there is no directory {output.absolute().parent}")


def _check_file(option: str, path: str | None) -> None:
    """Refuse a file that is not there, before the model is loaded; URIs are left to the extractor."""
    if path is not None and "://" not in path and "#" not in path and not Path(path).is_file():
        raise SearchError(f"{option} {path}: there is no such file")


def _table(row: SheetRow, name: str) -> Table:
    query = row.query_image_uri if row.query_text is None else f"“{row.query_text}”"
    table = Table(title=f"{query} in the gallery of {name}")
    table.add_column("rank", justify="right")
    table.add_column("similarity", justify="right")
    table.add_column("caption" if row.has_captions else "image", overflow="fold")
    table.add_column("id", overflow="fold")
    for rank, hit in enumerate(row.hits, start=1):
        shown = hit.caption if row.has_captions else hit.image_uri
        table.add_row(str(rank), f"{hit.similarity:.4f}", shown or "", hit.item_id)
    return table


def _quieten() -> None:
    """Keep the libraries' messages about themselves out of a search's output."""
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    # A user who waits for results is told soon that the server does not answer.
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
    warnings.filterwarnings("ignore", category=FutureWarning)
    for name in ("mlflow", "alembic", "transformers"):
        logging.getLogger(name).setLevel(logging.ERROR)
