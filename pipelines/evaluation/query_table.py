"""Tables of single queries, for the study of errors.

Q queries, N items of the gallery.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from torch import Tensor

from preprocessing.datasets.record import Record
from vse_core.evaluation.ranks import Ranks


@dataclass(frozen=True)
class Items:
    """Queries or the items of a gallery: their ids, and names for people, an image's address or a caption's text."""

    ids: Sequence[str]
    names: Sequence[str]

    @classmethod
    def images(cls, records: Sequence[Record]) -> Self:
        """Return the images of records."""
        return cls([record.image_id for record in records], [record.image_uri for record in records])

    @classmethod
    def captions(cls, records: Sequence[Record]) -> Self:
        """Return the captions of records, image after image."""
        captions = [caption for record in records for caption in record.captions]
        return cls([caption.caption_id for caption in captions], [caption.text for caption in captions])

    def take(self, indices: Tensor) -> Self:
        """Return the items with these indices; both columns are empty for -1."""
        columns = (self.ids, self.names)
        return type(self)(*([column[index] if index >= 0 else "" for index in indices.tolist()] for column in columns))


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


def write_query_table(directory: Path, name: str, directions: Sequence[pa.Table]) -> Path:
    """Write all queries as `NAME_queries.parquet`."""
    path = directory / f"{name}_queries.parquet"
    pa.parquet.write_table(pa.concat_tables(directions), path)
    return path
