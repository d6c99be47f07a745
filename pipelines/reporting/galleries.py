"""Galleries: queries with their results, relevant ones marked; an evenly spread sample, the best and the worst.

Q queries.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from markupsafe import Markup

from pipelines.reporting.run import Run
from pipelines.retrieval.contact_sheet import THUMBNAIL, sheet_rows_html
from pipelines.retrieval.gallery import Gallery, GalleryError
from pipelines.retrieval.photographs import with_photographs
from pipelines.retrieval.sheet_rows import (
    SheetRow,
    image_to_text_row,
    image_to_text_rows,
    text_to_image_row,
    text_to_image_rows,
)

_TABLE = "retrieval_queries.parquet"
_SAMPLE, _EXTREMES = 4, 3


def galleries(run: Run) -> dict[str, Any]:
    """Return the values of `report/galleries.html`: both directions of retrieval, or the reason why there are none."""
    if not run.plans["evaluate"].complete:
        return {"reason": "the evaluation has not finished"}
    directory = run.directory("evaluate")
    try:
        gallery = with_photographs(Gallery.load(run.plans["evaluate"].outputs["gallery"]), run.config.dataset)
        samples = text_to_image_rows(gallery, _SAMPLE), image_to_text_rows(gallery, _SAMPLE)
    except GalleryError as error:
        return {"reason": str(error)}

    table, captions = directory / _TABLE, partial(image_to_text_row, gallery)
    images, missed = partial(text_to_image_row, gallery), partial(_missed_image, gallery)
    directions = {
        "Captions that find images": {"sample": _sheet(samples[0]), **_extremes(table, "t2i", images, missed)},
        "Images that find captions": {"sample": _sheet(samples[1]), **_extremes(table, "i2t", captions, captions)},
    }
    return {"reason": "", "directions": directions, "table": _TABLE}


def _missed_image(gallery: Gallery, caption: int) -> SheetRow:
    """Show next to a caption the image that it should have found."""
    row = text_to_image_row(gallery, caption)
    uri = gallery.records[gallery.captions[caption][0]].image_uri
    return replace(row, query_image_uri=uri, note=f"above: the relevant image; {row.note}")


def _extremes(
    table: Path, direction: str, best: Callable[[int], SheetRow], worst: Callable[[int], SheetRow]
) -> dict[str, Markup | None]:
    """Return the sheets of the best and of the worst queries of a direction; None without the table of queries."""
    if not table.is_file():
        return {"best": None, "worst": None}
    queries = pa.parquet.read_table(table, filters=[("direction", "=", direction)])
    return {
        "best": _sheet([best(query) for query in best_queries(queries, _EXTREMES)]),
        "worst": _sheet([worst(query) for query in worst_queries(queries, _EXTREMES)]),
    }


def best_queries(queries: pa.Table, count: int) -> list[int]:
    """Return the places of up to `count` queries that rank a relevant item first, most similar ones first.

    `queries` has the columns `rank` (from 1) and `similarity`.
    """
    ranks_Q, similarities_Q = queries["rank"].to_numpy(), queries["similarity"].to_numpy()
    order = np.argsort(-similarities_Q, kind="stable")
    return [int(place) for place in order[ranks_Q[order] == 1][:count]]


def worst_queries(queries: pa.Table, count: int) -> list[int]:
    """Return the places of up to `count` queries that rank their relevant items last.

    `queries` has the columns `rank`, `similarity` and `first_similarity`; of equal ranks those count that are further
    behind the first result.
    """
    behind_Q = queries["first_similarity"].to_numpy() - queries["similarity"].to_numpy()
    return [int(place) for place in np.lexsort((-behind_Q, -queries["rank"].to_numpy()))[:count]]


def _sheet(rows: Sequence[SheetRow]) -> Markup:
    return sheet_rows_html(rows, pixels=THUMBNAIL)
