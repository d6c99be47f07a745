"""Tables of queries: captions of attackers are plain cells of the CSV files, and as they are in parquet."""

import csv
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.evaluation.query_table import write_comparison, write_query_tables

EVIL = "=HYPERLINK(1)\x1b[2J"


def table(rank: int) -> pa.Table:
    texts = {
        name: [EVIL, "a dog"] for name in ("direction", "query_id", "query", "true_id", "true", "first_id", "first")
    }
    numbers = {name: [0.5, -0.5] for name in ("similarity", "first_similarity")}
    return pa.table({**texts, "rank": [rank, rank], **numbers})


@pytest.mark.parametrize("kind", ["queries", "comparison"])
def test_captions_are_plain_cells(tmp_path: Path, kind: str) -> None:
    if kind == "queries":
        every, *files = write_query_tables(tmp_path, "retrieval", [table(3)])
    else:
        every, *files = write_comparison(tmp_path, [table(1)], [table(3)])
    assert pq.read_table(every)["query"].to_pylist() == [EVIL, "a dog"]
    with files[0].open(newline="", encoding="utf-8") as file:
        rows = sorted(csv.DictReader(file), key=lambda row: row["query"])
    assert [row["query"] for row in rows] == ["'=HYPERLINK(1)\\x1b[2J", "a dog"]
    assert {"-0.5", "0.5"} <= {cell for row in rows for cell in row.values()}
