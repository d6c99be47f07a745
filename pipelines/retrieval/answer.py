"""The answer to a search command: hits on the screen and in a contact sheet, or a table of the results of a batch."""

import argparse
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from rich.table import Table
from torch import Tensor

from pipelines.inference.embedder import QueryError
from pipelines.retrieval.hits import SheetRow, contact_sheet
from pipelines.retrieval.image_gallery import newer_model
from pipelines.retrieval.options import Kind, Target, default_tracking_uri
from pipelines.retrieval.search_model import SearchError, SearchModel, load_search_model
from pipelines.runtime.cli import console
from pipelines.runtime.commands import command
from pipelines.runtime.progress import progress_bar
from preprocessing.plain_text import csv_cells
from preprocessing.storage.address import is_s3
from preprocessing.storage.atomic import open_atomic

# Queries embedded at a time; images are decoded, too.
_BATCH: dict[Kind, int] = {"text": 256, "image": 32}
_RESULTS = pa.schema(
    {"line": pa.int64(), "query": pa.string(), "rank": pa.int64(), "similarity": pa.float32()}
    | {"confidence": pa.float32()}
    | dict.fromkeys(("item_id", "image_uri", "caption", "warning"), pa.string())
)
_SKIPPED = pa.schema({"line": pa.int64(), "query": pa.string(), "reason": pa.string()})


def answer(options: argparse.Namespace) -> None:
    """Search as the options of the command say, and show or write the results."""
    tracking_uri = options.tracking_uri or default_tracking_uri()
    model = load_search_model(options.model, tracking_uri)
    if newer := newer_model(Path(options.model), tracking_uri):
        console(stderr=True).print(newer, soft_wrap=True)
    try:
        if options.queries is None:
            message = _search_one(options, model)
        else:
            target = model.target_of(options.kind, options.target)
            wanted = Wanted(options.kind, options.k, target, options.min_confidence, options.where)
            if options.where:
                model.matching(options.where)  # a wrong condition is refused before any work
            message = search_batch(model, Path(options.queries), options.output, wanted)
    except OSError as error:
        raise SearchError(f"{error.filename or options.output}: {error.strerror or error}") from error
    if message:
        console().print(message, soft_wrap=True)


def _search_one(options: argparse.Namespace, model: SearchModel) -> str:
    """Search, print the hits, and write the contact sheet if one is wanted; return a message."""
    kind: Kind = "image" if options.text is None else "text"
    query = options.image if options.text is None else options.text
    target = model.target_of(kind, options.target)
    hits, warning = model.answer(query, kind, options.k, target, options.min_confidence, options.where)
    asked = {"query_text": query} if kind == "text" else {"query_image_uri": query}
    row = SheetRow(tuple(hits), **asked, note=warning)
    name = Path(model.name).name if Path(model.name).is_absolute() else model.name  # a gallery of one's own images
    console().print(_shown(row, name, target))
    if warning:
        console(stderr=True).print(warning, soft_wrap=True)
    paths = [hit.image_uri or "" for hit in hits] if model.thumbnails else []
    if not all(is_s3(path) or Path(path).exists() for path in paths):
        told = "some images are only on the machine that indexed them, or gone; small copies are shown by"
        console(stderr=True).print(told, command("serve", "--gallery", name), soft_wrap=True)
    if not hits:
        least = f" with a confidence of {options.min_confidence:.0%} or more" if options.min_confidence else ""
        console().print(
            f"Nothing was found{least}{f' where {options.where}' if options.where else ''}.", soft_wrap=True
        )
    if options.output is None:
        return ""
    options.output.write_bytes(contact_sheet(f"Search in the gallery of {name}", [row]))
    return f"Contact sheet: {options.output}"


def _shown(row: SheetRow, name: str, target: Target) -> Table:
    query = row.query_image_uri if row.query_text is None else f"“{row.query_text}”"
    table = Table(title=f"{query} in the gallery of {name}")
    table.add_column("rank", justify="right")
    table.add_column("similarity", justify="right")
    if any(hit.confidence is not None for hit in row.hits):
        table.add_column("confidence", justify="right")
    table.add_column("caption" if target == "captions" else "image", overflow="fold")
    table.add_column("id", overflow="fold")
    further = list(dict.fromkeys(name for hit in row.hits for name in hit.columns))
    for name in further:
        table.add_column(name, overflow="fold")
    for rank, hit in enumerate(row.hits, start=1):
        shown = hit.caption if target == "captions" else hit.image_uri
        confidence = [f"{hit.confidence:.0%}"] if hit.confidence is not None else []
        columns = [str(hit.columns.get(name, "")) for name in further]
        table.add_row(str(rank), f"{hit.similarity:.4f}", *confidence, shown or "", hit.item_id, *columns)
    return table


class _Query(NamedTuple):
    """A line of the file, and why it cannot be searched with; "" if it can."""

    line: int
    query: str
    reason: str = ""


class Wanted(NamedTuple):
    """What is asked of every query of a file."""

    kind: Kind
    k: int
    target: Target
    min_confidence: float = 0
    where: str = ""


def search_batch(model: SearchModel, queries: Path, output: Path, wanted: Wanted) -> str:
    """Search with every line of a file: a text, or the path or URI of an image; return a message with their number.

    `output` (.parquet, .csv) gets a row for each result: line (from 1), query, rank (from 1), similarity, confidence,
    item_id, image_uri (of images), caption, and the warning about its query, if any. A query without a hit has one row,
    without rank and item. A line that is empty, not UTF-8, or cannot be embedded is skipped, and listed with its reason
    in `OUTPUT.skipped.csv`. Both files get their names when they are complete.
    """
    searched = without = 0
    skipped: list[_Query] = []
    with queries.open("rb") as file:
        total = sum(1 for _ in file)
    with queries.open("rb") as file, _writing(output, _RESULTS) as write, progress_bar("search", total, "lines") as bar:
        lines = (_decoded(number, line) for number, line in enumerate(file, start=1))
        while batch := list(islice(lines, _BATCH[wanted.kind])):
            embedded, refused, queries_QVD = _embedded(model, batch, wanted.kind)
            skipped += refused
            searched += len(embedded)
            if queries_QVD is not None:
                write(hits := _table(embedded, model, queries_QVD, wanted))
                without += hits["item_id"].null_count
            bar.update(len(batch))
    reasons = output.with_name(f"{output.name}.skipped.csv")
    message = f"{searched:,} queries searched with{f', {without:,} of them without a hit' if without else ''}: {output}"
    if not skipped:
        reasons.unlink(missing_ok=True)  # of an earlier batch
        return message
    with _writing(reasons, _SKIPPED) as write:
        write(pa.Table.from_pylist([line._asdict() for line in skipped], _SKIPPED))
    return f"{message}; {len(skipped):,} lines were skipped: {reasons}"


def _decoded(number: int, line: bytes) -> _Query:
    """Return a line as text, with the reason if it is not a query."""
    try:
        # Files from Windows begin with a byte order mark.
        text = line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
    except UnicodeDecodeError as error:
        shown = line.decode("utf-8", errors="replace").strip()
        return _Query(number, shown, f"not UTF-8: {error.reason} at byte {error.start}")
    return _Query(number, text, "" if text else "the line is empty")


def _embedded(
    model: SearchModel, batch: Sequence[_Query], kind: Kind
) -> tuple[list[_Query], list[_Query], Tensor | None]:
    """Return the queries that can be embedded, the others with the reason, and the former's vectors (Q, V, D)."""
    embedded = [query for query in batch if not query.reason]
    skipped = [query for query in batch if query.reason]
    queries_QVD = None
    while embedded and queries_QVD is None:
        try:
            queries_QVD = model.embed([each.query for each in embedded], kind)
        except QueryError as error:
            skipped.append(embedded.pop(error.position)._replace(reason=error.reason))
    return embedded, sorted(skipped), queries_QVD


def _table(queries: Sequence[_Query], model: SearchModel, queries_QVD: Tensor, wanted: Wanted) -> pa.Table:
    warnings = model.warnings([each.query for each in queries], queries_QVD, wanted.kind)
    found = zip(queries, model.find(queries_QVD, *wanted), warnings, strict=True)
    rows = [
        {"line": query.line, "query": query.query, "warning": warning, **hit}
        for query, hits, warning in found
        for hit in [{"rank": rank, **asdict(hit)} for rank, hit in enumerate(hits, start=1)] or [{}]
    ]
    return pa.Table.from_pylist(rows, _RESULTS)


@contextmanager
def _writing(output: Path, schema: pa.Schema) -> Iterator[Callable[[pa.Table], object]]:
    """Yield a function that writes tables in the format of the suffix; the file gets its name at the end."""
    is_csv = output.suffix.lower() == ".csv"
    open_writer = pa.csv.CSVWriter if is_csv else pa.parquet.ParquetWriter
    with open_atomic(output) as file, open_writer(file, schema) as writer:
        yield lambda table: writer.write_table(csv_cells(table) if is_csv else table)
