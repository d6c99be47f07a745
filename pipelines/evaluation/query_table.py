"""Tables of single queries, for the study of errors.

Q queries, N items of the gallery.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet
from torch import Tensor

from preprocessing.plain_text import csv_cells

if TYPE_CHECKING:
    from preprocessing.datasets.record import Record
    from vse_core.evaluation.ranks import Ranks

# Rows of a direction in the table of the worst.
_WORST = 100
# Column of a model's table -> its name, behind the model's, in a comparison.
_COMPARED = {
    "rank": "rank",
    "true": "true",
    "similarity": "similarity",
    "first": "top",
    "first_similarity": "top_similarity",
}


@dataclass(frozen=True)
class Items:
    """Queries or the items of a gallery: their ids, and the names that people read, an image's address or a caption's
    text.
    """

    ids: Sequence[str]
    names: Sequence[str]

    @classmethod
    def images(cls, records: Sequence[Record]) -> Items:
        """Return the images of records."""
        return cls([record.image_id for record in records], [record.image_uri for record in records])

    @classmethod
    def captions(cls, records: Sequence[Record]) -> Items:
        """Return the captions of records, image after image."""
        captions = [caption for record in records for caption in record.captions]
        return cls([caption.caption_id for caption in captions], [caption.text for caption in captions])

    def take(self, places: Tensor) -> Items:
        """Return the items at these places; both columns are empty where the place is -1."""
        found = places.tolist()
        return Items(*([column[place] if place >= 0 else "" for place in found] for column in (self.ids, self.names)))


def query_rows(direction: str, ranks: Ranks, queries: Items, gallery: Items) -> pa.Table:
    """Return a row for each of Q queries of a direction, such as "i2t", in a gallery of N items.

    The columns are `direction`, `query_id`, `query`, `rank` (from 1), `tied`; `true_id`, `true` and `similarity` of the
    best relevant item; `first_id`, `first` and `first_similarity` of the item that comes first.
    """
    true, first = gallery.take(ranks.relevant_Q), gallery.take(ranks.top_Q)
    return pa.table(
        {
            "direction": [direction] * len(ranks),
            "query_id": list(queries.ids),
            "query": list(queries.names),
            "rank": (ranks.ranks_Q + 1).numpy(),
            "tied": ranks.tied_Q.numpy(),
            "true_id": true.ids,
            "true": true.names,
            "similarity": ranks.similarity_Q.numpy().astype(np.float32),
            "first_id": first.ids,
            "first": first.names,
            "first_similarity": ranks.top_similarity_Q.numpy().astype(np.float32),
        }
    )


def write_query_tables(directory: Path, name: str, directions: Sequence[pa.Table]) -> tuple[Path, Path]:
    """Write all queries as `NAME_queries.parquet`, and the worst of each direction as CSV, as MLflow shows tables."""
    every, worst = directory / f"{name}_queries.parquet", directory / f"{name}_worst_queries.csv"
    pa.parquet.write_table(pa.concat_tables(directions), every)
    pa.csv.write_csv(csv_cells(pa.concat_tables([_worst(table) for table in directions])), worst)
    return every, worst


def write_comparison(directory: Path, first: Sequence[pa.Table], second: Sequence[pa.Table]) -> tuple[Path, ...]:
    """Write two models' `query_rows`, row for row of the same queries, and those that each is furthest ahead in.

    The files are `queries.parquet`, and `won.csv` and `lost.csv` as the first model sees them.
    """
    tables = [pa.concat_tables(tables) for tables in (first, second)]
    shared = tables[0].select(["direction", "query_id", "query"])
    for table, name in zip(tables, ("first", "second"), strict=True):
        for column, label in _COMPARED.items():
            shared = shared.append_column(f"{name}_model_{label}", table[column])
    files = directory / "queries.parquet", directory / "won.csv", directory / "lost.csv"
    pa.parquet.write_table(shared, files[0])
    # From rank 10 to 1 is further than from 1,000 to 900.
    ranks = [table["rank"].to_numpy() for table in tables]
    lead = np.log(ranks[1] / ranks[0])
    for file, gain in ((files[1], lead), (files[2], -lead)):
        order = np.argsort(-gain, kind="stable")
        pa.csv.write_csv(csv_cells(shared.take(order[gain[order] > 0][:_WORST])), file)
    return files


def _worst(table: pa.Table) -> pa.Table:
    """Return the queries whose relevant item stands last; of equal ranks those with the largest gap to the first."""
    gap = pa.compute.subtract(table["first_similarity"], table["similarity"])
    order = pa.compute.sort_indices(
        table.append_column("gap", gap), sort_keys=[("rank", "descending"), ("gap", "descending")]
    )
    return table.take(order[:_WORST])
