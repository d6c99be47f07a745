"""Galleries: queries with their results, relevant ones marked; an evenly spread sample, the best and the worst.

Q queries.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from markupsafe import Markup

from pipelines.reporting.run import Run
from pipelines.retrieval.gallery import Gallery, GalleryError, with_photographs
from pipelines.retrieval.hits import SheetRow, own_queries, own_query, sheet_rows_html
from pipelines.retrieval.options import Target

_SAMPLE, _EXTREMES = 4, 3
_TABLE = "retrieval_queries.parquet"
_DIRECTIONS: tuple[tuple[str, Target, list[tuple[str, str, str]]], ...] = (
    ("Captions that find images", "images", [("direction", "=", "t2i")]),
    ("Images that find captions", "captions", [("direction", "=", "i2t")]),
)


def galleries(run: Run) -> dict[str, Any]:
    """Return the values of `report/galleries.html`: both directions of retrieval, or the reason why there are none."""
    evaluated = run.plans["evaluate"]
    if not evaluated.complete:
        return {"reason": "the evaluation has not finished"}
    try:
        gallery = with_photographs(Gallery.load(evaluated.outputs["gallery"]), run.config.dataset)
        directions = {
            title: _sheets(gallery, target, pa.parquet.read_table(evaluated.directory / _TABLE, filters=of_direction))
            for title, target, of_direction in _DIRECTIONS
        }
    except GalleryError as error:
        return {"reason": str(error)}
    return {"reason": "", "directions": directions}


def _sheets(gallery: Gallery, target: Target, queries: pa.Table) -> dict[str, Markup]:
    """Return the sheets of a sample, of the best queries and of the worst ones."""
    sheets = {
        "sample": own_queries(gallery, target, _SAMPLE),
        "best": [own_query(gallery, target, query) for query in best_queries(queries, _EXTREMES)],
        "worst": [_missed(gallery, target, query) for query in worst_queries(queries, _EXTREMES)],
    }
    return {name: sheet_rows_html(rows) for name, rows in sheets.items()}


def _missed(gallery: Gallery, target: Target, query: int) -> SheetRow:
    """Return a query with its hits, a caption next to the image that it should have found."""
    row = own_query(gallery, target, query)
    if target == "captions":
        return row
    uri = gallery.records[gallery.captions[query][0]].image_uri
    return replace(row, query_image_uri=uri, note=f"above: the relevant image; {row.note}")


def best_queries(queries: pa.Table, count: int) -> list[int]:
    """Return the indices of up to `count` queries of `rank` 1, those of the highest `similarity` first."""
    ranks_Q, similarities_Q = queries["rank"].to_numpy(), queries["similarity"].to_numpy()
    order_Q = np.argsort(-similarities_Q, kind="stable")
    return [int(index) for index in order_Q[ranks_Q[order_Q] == 1][:count]]


def worst_queries(queries: pa.Table, count: int) -> list[int]:
    """Return the indices of up to `count` queries of the worst `rank`, then furthest behind the first result."""
    behind_Q = queries["first_similarity"].to_numpy() - queries["similarity"].to_numpy()
    return [int(index) for index in np.lexsort((-behind_Q, -queries["rank"].to_numpy()))[:count]]
