"""Galleries: queries with what they find, relevant ones marked; a fair sample, the best and the worst.

Q queries.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from pipelines.evaluation.evaluator import GALLERY
from pipelines.reporting.page import Html, Section, heading, joined, missing, paragraph
from pipelines.reporting.run import Run
from pipelines.retrieval.contact_sheet import THUMBNAIL, sheet_rows_html
from pipelines.retrieval.gallery import Gallery, GalleryError
from pipelines.retrieval.sheet_rows import (
    SheetRow,
    image_to_text_row,
    image_to_text_rows,
    text_to_image_row,
    text_to_image_rows,
)

_TABLE = "retrieval_queries.parquet"
_SAMPLE, _EXTREMES = 4, 3
_DIRECTIONS = {"t2i": "Captions that find images", "i2t": "Images that find captions"}


def galleries(run: Run) -> Section:
    """Both directions of retrieval in pictures."""
    directory = run.directory("evaluate")
    if not run.plans["evaluate"].complete:
        return Section("Galleries", missing("what queries find: the evaluation has not come to its end"))
    try:
        gallery = Gallery.load(directory / GALLERY)
        # Of a model without embeddings of its own (HGR) there is nothing to show.
        samples = {"t2i": text_to_image_rows(gallery, _SAMPLE), "i2t": image_to_text_rows(gallery, _SAMPLE)}
    except GalleryError as error:
        return Section("Galleries", missing(f"what queries find: {error}"))
    legend = "A green frame and ✓ mark a relevant result, an orange ✗ an irrelevant one; the number is the similarity."
    parts = [paragraph(legend)]
    for direction, title in _DIRECTIONS.items():
        parts += [heading(f"{title}: a sample, evenly spread"), _sheet(samples[direction])]
        parts += _extremes(gallery, directory / _TABLE, direction, title)
    return Section("Galleries", joined(*parts))


def _extremes(gallery: Gallery, file: Path, direction: str, title: str) -> list[Html]:
    """The best and the worst queries of a direction."""
    if not file.is_file():
        return [missing(f"{title.lower()}: the best and the worst, for want of the table of queries {file.name}")]
    queries = pa.parquet.read_table(file, filters=[("direction", "=", direction)])
    row: Callable[[Gallery, int], SheetRow] = text_to_image_row if direction == "t2i" else image_to_text_row
    best, worst = best_queries(queries, _EXTREMES), worst_queries(queries, _EXTREMES)
    return [
        heading(f"{title}: the best"),
        _sheet([row(gallery, query) for query in best])
        if best
        else missing("a query that finds the relevant item first"),
        heading(f"{title}: the worst"),
        _sheet([_with_relevant_image(gallery, row(gallery, query), direction, query) for query in worst]),
    ]


def best_queries(queries: pa.Table, count: int) -> list[int]:
    """Of the queries whose true item comes first, those most similar to it.

    Args:
        queries: columns `rank` (from 1) and `similarity` of Q queries.
        count: how many at most.

    Returns:
        Their places in the table.
    """
    ranks_Q, similarities_Q = queries["rank"].to_numpy(), queries["similarity"].to_numpy()
    order = np.argsort(-similarities_Q, kind="stable")
    return [int(place) for place in order[ranks_Q[order] == 1][:count]]


def worst_queries(queries: pa.Table, count: int) -> list[int]:
    """The queries whose best true item stands last; of equal ranks those that are further behind what comes first.

    Args:
        queries: columns `rank`, `similarity` and `first_similarity` of Q queries.
        count: how many at most.

    Returns:
        Their places in the table.
    """
    behind_Q = queries["first_similarity"].to_numpy() - queries["similarity"].to_numpy()
    return [int(place) for place in np.lexsort((-behind_Q, -queries["rank"].to_numpy()))[:count]]


def _with_relevant_image(gallery: Gallery, row: SheetRow, direction: str, query: int) -> SheetRow:
    """Show beside a caption the image that it should have found."""
    if direction != "t2i":
        return row
    image, _ = gallery.captions[query]
    return replace(row, query_image_uri=gallery.records[image].image_uri, note=f"above: the relevant image; {row.note}")


def _sheet(rows: Sequence[SheetRow]) -> Html:
    return Html(sheet_rows_html(rows, pixels=THUMBNAIL))
