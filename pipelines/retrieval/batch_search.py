"""Searches with many queries: a file with one on each line in, a table of results out, what is no query set aside."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from pipelines.inference.embedder import QueryError
from pipelines.retrieval.search_model import Kind, SearchModel, Target
from pipelines.runtime.progress import progress_bar

if TYPE_CHECKING:
    from torch import Tensor

# Images are decoded at once as well as embedded.
_AT_ONCE: dict[Kind, int] = {"text": 256, "image": 32}
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
_REFUSALS = pa.schema({"line": pa.int64(), "query": pa.string(), "reason": pa.string()})


@dataclass(frozen=True)
class BatchReport:
    """What a batch came to.

    Attributes:
        searched: queries with results.
        set_aside: lines that are no queries.
        reasons: the file that lists these lines; None where there are none.
    """

    searched: int
    set_aside: int
    reasons: Path | None


@dataclass(frozen=True)
class _Query:
    line: int
    query: str


@dataclass(frozen=True)
class _Refusal:
    line: int
    query: str
    reason: str


def search_batch(model: SearchModel, queries: Path, output: Path, kind: Kind, k: int, target: Target) -> BatchReport:
    """Search with every line of a file.

    A line that is empty, not UTF-8, or cannot be embedded is listed with its reason in `OUTPUT.set_aside.csv`; the
    others are searched with. Both files are written aside and renamed when they are whole.

    Args:
        model: to search with.
        queries: the file: a text, or the path or URI of an image, on each line.
        output: `.parquet`, `.csv` or `.jsonl`, with a row for each result: line (from 1), query, rank (from 1),
            similarity, item_id, image_uri (of images), caption.
        kind: of the queries.
        k: results of each.
        target: what to find.

    Raises:
        OSError: a file cannot be read or written.
    """
    searched = 0
    refused: list[_Refusal] = []
    with queries.open("rb") as file:
        total = sum(1 for _ in file)
    with (
        queries.open("rb") as file,
        _writing(output, _RESULTS) as writer,
        progress_bar("search", total, "lines") as bar,
    ):
        numbered = enumerate(file, start=1)
        while lines := list(islice(numbered, _AT_ONCE[kind])):
            good, bad = _decoded(lines)
            good, worse, queries_QVD = _embedded(model, good, kind)
            refused += sorted(bad + worse, key=lambda each: each.line)
            searched += len(good)
            if queries_QVD is not None:
                writer.write_table(_table(good, model, queries_QVD, k, target))
            bar.update(len(lines))
    reasons = output.with_name(f"{output.name}.set_aside.csv")
    if not refused:
        reasons.unlink(missing_ok=True)  # of an earlier batch
        return BatchReport(searched, 0, None)
    with _writing(reasons, _REFUSALS) as writer:
        writer.write_table(pa.Table.from_pylist([vars(each) for each in refused], _REFUSALS))
    return BatchReport(searched, len(refused), reasons)


def _decoded(lines: Sequence[tuple[int, bytes]]) -> tuple[list[_Query], list[_Refusal]]:
    """Lines as texts, and those that are none."""
    good, bad = [], []
    for number, line in lines:
        try:
            # Files from Windows begin with a mark.
            text = line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
        except UnicodeDecodeError as error:
            shown = line.decode("utf-8", errors="replace").strip()
            bad.append(_Refusal(number, shown, f"not UTF-8: {error.reason} at byte {error.start}"))
            continue
        if text:
            good.append(_Query(number, text))
        else:
            bad.append(_Refusal(number, "", "the line is empty"))
    return good, bad


def _embedded(
    model: SearchModel, queries: Sequence[_Query], kind: Kind
) -> tuple[list[_Query], list[_Refusal], Tensor | None]:
    """The queries that can be embedded, those that cannot, and the vectors (Q, V, D) of the first; None for none."""
    good = list(queries)
    bad: list[_Refusal] = []
    while good:
        try:
            return good, bad, model.embed([each.query for each in good], kind)
        except QueryError as error:
            refused = good.pop(error.position)
            bad.append(_Refusal(refused.line, refused.query, error.reason))
    return good, bad, None


def _table(queries: Sequence[_Query], model: SearchModel, queries_QVD: Tensor, k: int, target: Target) -> pa.Table:
    """A row for each result of each query."""
    rows = [
        {
            "line": query.line,
            "query": query.query,
            "rank": rank,
            "similarity": hit.similarity,
            "item_id": hit.item_id,
            "image_uri": hit.image_uri,
            "caption": hit.caption,
        }
        for query, hits in zip(queries, model.find(queries_QVD, k, target), strict=True)
        for rank, hit in enumerate(hits, start=1)
    ]
    return pa.Table.from_pylist(rows, _RESULTS)


class _Writer(Protocol):
    def __enter__(self) -> _Writer: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...

    def write_table(self, table: pa.Table) -> None: ...


class _JsonLines:
    """Writes a JSON object for each row, behind the methods of pyarrow's writers."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w", encoding="utf-8")

    def __enter__(self) -> _JsonLines:
        return self

    def __exit__(self, *_error: object) -> None:
        self._file.close()

    def write_table(self, table: pa.Table) -> None:
        for row in table.to_pylist():
            self._file.write(json.dumps(row, ensure_ascii=False) + "\n")


@contextmanager
def _writing(output: Path, schema: pa.Schema) -> Iterator[_Writer]:
    """A writer of tables in the format of the suffix; the file has its name when all are written."""
    part = output.with_name(f".{output.name}.part")
    open_writer = {
        ".parquet": lambda: pa.parquet.ParquetWriter(part, schema),
        ".csv": lambda: pa.csv.CSVWriter(part, schema),
        ".jsonl": lambda: _JsonLines(part),
    }[output.suffix.lower()]
    try:
        with open_writer() as writer:
            yield writer
        part.replace(output)
    finally:
        part.unlink(missing_ok=True)
