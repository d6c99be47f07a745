"""Searches with many queries: a file with one query a line in, a table of results out."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from pipelines.inference.embedder import QueryError
from pipelines.retrieval.search_model import Kind, SearchModel, Target
from pipelines.runtime.progress import progress_bar
from preprocessing.plain_text import csv_cells

if TYPE_CHECKING:
    from torch import Tensor

# Queries embedded at a time; images are decoded, too.
_BATCH: dict[Kind, int] = {"text": 256, "image": 32}
_RESULTS = pa.schema(
    {
        "line": pa.int64(),
        "query": pa.string(),
        "rank": pa.int64(),
        "similarity": pa.float32(),
        "item_id": pa.string(),
        "image_uri": pa.string(),
        "caption": pa.string(),
    }
)
_SKIPPED = pa.schema({"line": pa.int64(), "query": pa.string(), "reason": pa.string()})


class BatchReport(NamedTuple):
    """The numbers of queries and of skipped lines, and the file that lists these lines; None if there are none."""

    searched: int
    skipped: int
    reasons: Path | None


class _Query(NamedTuple):
    line: int
    query: str


class _Skipped(NamedTuple):
    line: int
    query: str
    reason: str


def search_batch(model: SearchModel, queries: Path, output: Path, kind: Kind, k: int, target: Target) -> BatchReport:
    """Search with every line of a file: a text, or the path or URI of an image.

    `output` (.parquet, .csv or .jsonl) gets a row for each result: line (from 1), query, rank (from 1), similarity,
    item_id, image_uri (of images), caption. A line that is empty, not UTF-8, or cannot be embedded is skipped, and
    listed with its reason in `OUTPUT.skipped.csv`. Both files get their names when they are complete.
    """
    searched = 0
    skipped: list[_Skipped] = []
    with queries.open("rb") as file:
        total = sum(1 for _ in file)
    with queries.open("rb") as file, _writing(output, _RESULTS) as write, progress_bar("search", total, "lines") as bar:
        numbered = enumerate(file, start=1)
        while lines := list(islice(numbered, _BATCH[kind])):
            decoded, undecodable = _decoded(lines)
            embedded, refused, queries_QVD = _embedded(model, decoded, kind)
            skipped += sorted(undecodable + refused)
            searched += len(embedded)
            if queries_QVD is not None:
                write(_table(embedded, model, queries_QVD, k, target))
            bar.update(len(lines))
    reasons = output.with_name(f"{output.name}.skipped.csv")
    if not skipped:
        reasons.unlink(missing_ok=True)  # of an earlier batch
        return BatchReport(searched, 0, None)
    with _writing(reasons, _SKIPPED) as write:
        write(pa.Table.from_pylist([line._asdict() for line in skipped], _SKIPPED))
    return BatchReport(searched, len(skipped), reasons)


def _decoded(lines: Sequence[tuple[int, bytes]]) -> tuple[list[_Query], list[_Skipped]]:
    """Return the lines that are texts, and the others with the reason."""
    decoded, skipped = [], []
    for number, line in lines:
        try:
            # Files from Windows begin with a byte order mark.
            text = line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
        except UnicodeDecodeError as error:
            shown = line.decode("utf-8", errors="replace").strip()
            skipped.append(_Skipped(number, shown, f"not UTF-8: {error.reason} at byte {error.start}"))
            continue
        if text:
            decoded.append(_Query(number, text))
        else:
            skipped.append(_Skipped(number, "", "the line is empty"))
    return decoded, skipped


def _embedded(
    model: SearchModel, queries: Sequence[_Query], kind: Kind
) -> tuple[list[_Query], list[_Skipped], Tensor | None]:
    """Return the queries that can be embedded, the others with the reason, and the former's vectors (Q, V, D)."""
    embedded = list(queries)
    skipped: list[_Skipped] = []
    while embedded:
        try:
            return embedded, skipped, model.embed([each.query for each in embedded], kind)
        except QueryError as error:
            skipped.append(_Skipped(*embedded.pop(error.position), error.reason))
    return embedded, skipped, None


def _table(queries: Sequence[_Query], model: SearchModel, queries_QVD: Tensor, k: int, target: Target) -> pa.Table:
    rows = [
        {**query._asdict(), "rank": rank, **asdict(hit)}
        for query, hits in zip(queries, model.find(queries_QVD, k, target), strict=True)
        for rank, hit in enumerate(hits, start=1)
    ]
    return pa.Table.from_pylist(rows, _RESULTS)


@contextmanager
def _writing(output: Path, schema: pa.Schema) -> Iterator[Callable[[pa.Table], object]]:
    """Yield a function that writes tables in the format of the suffix; the file gets its name at the end."""
    part = output.with_name(f".{output.name}.part")
    try:
        if output.suffix.lower() == ".jsonl":
            with part.open("w", encoding="utf-8") as file:
                yield lambda table: file.writelines(
                    json.dumps(row, ensure_ascii=False) + "\n" for row in table.to_pylist()
                )
        else:
            is_csv = output.suffix.lower() == ".csv"
            with (pa.csv.CSVWriter if is_csv else pa.parquet.ParquetWriter)(part, schema) as writer:
                yield lambda table: writer.write_table(csv_cells(table) if is_csv else table)
        part.replace(output)
    finally:
        part.unlink(missing_ok=True)
