"""Searches with many queries: a file with one query a line in, a table of results out."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from torch import Tensor

from pipelines.inference.embedder import QueryError
from pipelines.retrieval.options import Kind, Target
from pipelines.retrieval.search_model import SearchModel
from pipelines.runtime.progress import progress_bar
from preprocessing.plain_text import csv_cells
from preprocessing.storage.atomic import open_atomic

# Queries embedded at a time; images are decoded, too.
_BATCH: dict[Kind, int] = {"text": 256, "image": 32}
_RESULTS = pa.schema(
    {"line": pa.int64(), "query": pa.string(), "rank": pa.int64(), "similarity": pa.float32()}
    | dict.fromkeys(("item_id", "image_uri", "caption"), pa.string())
)
_SKIPPED = pa.schema({"line": pa.int64(), "query": pa.string(), "reason": pa.string()})


class _Query(NamedTuple):
    """A line of the file, and why it cannot be searched with; "" if it can."""

    line: int
    query: str
    reason: str = ""


def search_batch(model: SearchModel, queries: Path, output: Path, kind: Kind, k: int, target: Target) -> str:
    """Search with every line of a file: a text, or the path or URI of an image; return a message with their number.

    `output` (.parquet, .csv) gets a row for each result: line (from 1), query, rank (from 1), similarity, item_id,
    image_uri (of images), caption. A line that is empty, not UTF-8, or cannot be embedded is skipped, and listed with
    its reason in `OUTPUT.skipped.csv`. Both files get their names when they are complete.
    """
    searched = 0
    skipped: list[_Query] = []
    with queries.open("rb") as file:
        total = sum(1 for _ in file)
    with queries.open("rb") as file, _writing(output, _RESULTS) as write, progress_bar("search", total, "lines") as bar:
        lines = (_decoded(number, line) for number, line in enumerate(file, start=1))
        while batch := list(islice(lines, _BATCH[kind])):
            embedded, refused, queries_QVD = _embedded(model, batch, kind)
            skipped += refused
            searched += len(embedded)
            if queries_QVD is not None:
                write(_table(embedded, model, queries_QVD, k, target))
            bar.update(len(batch))
    reasons = output.with_name(f"{output.name}.skipped.csv")
    message = f"{searched:,} queries searched with: {output}"
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


def _table(queries: Sequence[_Query], model: SearchModel, queries_QVD: Tensor, k: int, target: Target) -> pa.Table:
    rows = [
        {"line": query.line, "query": query.query, "rank": rank, **asdict(hit)}
        for query, hits in zip(queries, model.find(queries_QVD, k, target), strict=True)
        for rank, hit in enumerate(hits, start=1)
    ]
    return pa.Table.from_pylist(rows, _RESULTS)


@contextmanager
def _writing(output: Path, schema: pa.Schema) -> Iterator[Callable[[pa.Table], object]]:
    """Yield a function that writes tables in the format of the suffix; the file gets its name at the end."""
    is_csv = output.suffix.lower() == ".csv"
    open_writer = pa.csv.CSVWriter if is_csv else pa.parquet.ParquetWriter
    with open_atomic(output) as file, open_writer(file, schema) as writer:
        yield lambda table: writer.write_table(csv_cells(table) if is_csv else table)
