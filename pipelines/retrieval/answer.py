"""The answer to a search command: hits on the screen and in a contact sheet, or a table of the results of a batch."""

import argparse
from pathlib import Path

from rich.table import Table

from pipelines.retrieval.batch_search import search_batch
from pipelines.retrieval.contact_sheet import contact_sheet
from pipelines.retrieval.hits import SheetRow
from pipelines.retrieval.image_gallery import newer_model
from pipelines.retrieval.options import Kind, default_tracking_uri
from pipelines.retrieval.search_model import SearchError, SearchModel, load_search_model
from pipelines.runtime.cli import console


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
            message = search_batch(model, Path(options.queries), options.output, options.kind, options.k, target)
    except OSError as error:
        raise SearchError(f"{error.filename or options.output}: {error.strerror or error}") from error
    if message:
        console().print(message, soft_wrap=True)


def _search_one(options: argparse.Namespace, model: SearchModel) -> str:
    """Search, print the hits, and write the contact sheet if one is wanted; return a message."""
    kind: Kind = "image" if options.text is None else "text"
    query = options.text or options.image
    hits = tuple(model.search(query, kind, options.k, model.target_of(kind, options.target)))
    row = SheetRow(hits, query_text=query) if kind == "text" else SheetRow(hits, query_image_uri=query)
    console().print(_table(row, model.name))
    if options.output is None:
        return ""
    options.output.write_bytes(contact_sheet(f"Search in the gallery of {model.name}", [row]))
    return f"Contact sheet: {options.output}"


def _table(row: SheetRow, name: str) -> Table:
    query = row.query_image_uri if row.query_text is None else f"“{row.query_text}”"
    table = Table(title=f"{query} in the gallery of {name}")
    table.add_column("rank", justify="right")
    table.add_column("similarity", justify="right")
    table.add_column("caption" if row.has_captions else "image", overflow="fold")
    table.add_column("id", overflow="fold")
    for rank, hit in enumerate(row.hits, start=1):
        shown = hit.caption if row.has_captions else hit.image_uri
        table.add_row(str(rank), f"{hit.similarity:.4f}", shown or "", hit.item_id)
    return table
