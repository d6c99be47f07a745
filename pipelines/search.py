"""Search a registered model's gallery: a text finds images, an image finds captions or images.

python pipelines/search.py --model flickr8k "a dog running on the beach" --output results.html
python pipelines/search.py --model flickr8k@challenger --image photo.jpg -k 5
"""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":  # run as a file: imports begin at the repository, not in this folder
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import argparse
import logging
import os
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, NoReturn

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from pipelines.contact_sheet import SheetRow
    from pipelines.embedder import Embedder
    from pipelines.gallery import Gallery

Kind = Literal["text", "image"]
Target = Literal["images", "captions"]

SUFFIXES = (".html", ".png")


class SearchError(Exception):
    """A search that cannot be done: one message, printed without a traceback."""


class SearchModel(NamedTuple):
    """What a search needs of a model, and the name to show."""

    name: str
    embedder: Embedder
    gallery: Gallery


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status: 0, or 1 after one message on what was wrong."""
    options = _parse(arguments)
    _quieten()
    try:
        _check_output(options.output)
        _check_image(options.image)
        model = load_search_model(options.model, options.tracking_uri or default_tracking_uri())
        kind: Kind = "image" if options.text is None else "text"
        target: Target = options.target or ("images" if kind == "text" else "captions")
        row = search(model, options.text or options.image, kind, options.k, target)
        Console().print(_table(row, model))
        if options.output is not None:
            _write_sheet(options.output, row, model.name)
            Console().print(f"Contact sheet: {options.output}", soft_wrap=True, highlight=False)
    except SearchError as error:
        Console(stderr=True).print(f"[bold red]error:[/] {escape(str(error))}", soft_wrap=True, highlight=False)
        return 1
    return 0


def search(model: SearchModel, query: str, kind: Kind, k: int, target: Target) -> SheetRow:
    """Find the gallery's items nearest to a query.

    Args:
        model: the model, with its gallery.
        query: a text, or the path or URI of an image.
        kind: which of the two it is.
        k: results.
        target: what to find.

    Returns:
        The query with its results, best first.

    Raises:
        SearchError: the query cannot be embedded.
    """
    from pipelines.contact_sheet import SheetRow, caption_hits, image_hits
    from pipelines.embedder import QueryError

    is_text = kind == "text"
    try:
        query_VD = model.embedder.embed_texts([query]) if is_text else model.embedder.embed_images([query])[0]
    except QueryError as error:
        raise SearchError(f"cannot search with the {kind} {query!r}: {error.reason}") from error
    hits = image_hits(model.gallery, query_VD, k) if target == "images" else caption_hits(model.gallery, query_VD, k)
    return SheetRow(tuple(hits), query_text=query if is_text else None, query_image_uri=None if is_text else query)


def default_tracking_uri() -> str:
    """Return the address that a pipeline run uses where its configuration names none: sqlite in the work directory."""
    work_dir = Path(os.environ.get("VSE_WORK_DIR") or "~/vse-work").expanduser()
    return f"sqlite:///{Path(os.path.abspath(work_dir)) / 'mlflow.db'}"  # noqa: PTH100


def load_search_model(reference: str, tracking_uri: str) -> SearchModel:
    """Load a model with its gallery.

    Args:
        reference: NAME, NAME@ALIAS, NAME/VERSION, a `models:/` URI, or a directory with the parts of a bundle.
        tracking_uri: MLflow server or database that knows the model.

    Raises:
        SearchError: there is no such model, or it cannot be loaded.
    """
    from pipelines.embedder import Embedder
    from pipelines.gallery import Gallery, GalleryError
    from pipelines.registry import RegistryError, find_bundle
    from preprocessing.features import ExtractorError

    try:
        name, bundle = find_bundle(reference, tracking_uri)
        embedder = Embedder(bundle / "model", bundle / "extractor")
        return SearchModel(name, embedder, Gallery.load(bundle / "gallery"))
    except RegistryError as error:
        raise SearchError(str(error)) from error
    except (FileNotFoundError, ValueError, GalleryError, ExtractorError) as error:
        raise SearchError(f"model {reference!r} cannot be loaded: {error}") from error


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line; a mistake in it ends with one message and exit status 1, as every other mistake does."""
    parser = _Parser(prog="search.py", description="Search a registered model's gallery with a text or an image.")
    parser.add_argument("text", nargs="?", help="the text to search with")
    parser.add_argument("--image", metavar="PATH", help="the image to search with, instead of a text")
    models = "NAME, NAME@ALIAS, NAME/VERSION, a models:/ URI, or the output directory of a register stage"
    parser.add_argument("--model", required=True, help=models)
    parser.add_argument("-k", type=int, default=10, help="how many results (default 10)")
    parser.add_argument("--target", choices=("images", "captions"), help="what to find (default: the other kind)")
    parser.add_argument("--output", type=Path, metavar="PATH", help="write a contact sheet: .html or .png")
    parser.add_argument("--tracking-uri", help="MLflow address (default: sqlite in $VSE_WORK_DIR, or ~/vse-work)")
    options = parser.parse_args(arguments)
    if bool(options.text) == bool(options.image):
        parser.error("give either a text or --image PATH")
    if options.k < 1:
        parser.error(f"-k must be at least 1, got {options.k}")
    return options


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Exit with 1, as for every other mistake in what the user has written."""
        self.exit(1, f"error: {message}\n{self.format_usage()}")


def _check_output(output: Path | None) -> None:
    """Refuse an output that could not be written, before any work."""
    if output is None:
        return
    if output.suffix.lower() not in SUFFIXES:
        raise SearchError(f"--output {output} has the suffix {output.suffix!r}; use {' or '.join(SUFFIXES)}")
    if not output.absolute().parent.is_dir():
        raise SearchError(f"--output {output}: there is no directory {output.absolute().parent}")


def _check_image(image: str | None) -> None:
    """Refuse a query image that is not there, before the model is loaded; URIs are left to the extractor."""
    if image is not None and "://" not in image and "#" not in image and not Path(image).is_file():
        raise SearchError(f"--image {image}: there is no such file")


def _table(row: SheetRow, model: SearchModel) -> Table:
    """Lay the results out for the terminal."""
    query = f"“{row.query_text}”" if row.query_text is not None else row.query_image_uri
    table = Table(title=Text(f"{query} in the gallery of {model.name}"))
    table.add_column("rank", justify="right")
    table.add_column("similarity", justify="right")
    table.add_column("caption" if row.has_captions else "image", overflow="fold")
    table.add_column("id", overflow="fold")
    for rank, hit in enumerate(row.hits, start=1):
        shown = hit.caption if row.has_captions else hit.image_uri
        table.add_row(str(rank), f"{hit.similarity:.4f}", Text(shown or ""), Text(hit.item_id))
    return table


def _write_sheet(output: Path, row: SheetRow, name: str) -> None:
    """Write the contact sheet in the format of the suffix."""
    from pipelines.contact_sheet import contact_sheet_html, contact_sheet_png

    title = f"Search in the gallery of {name}"
    try:
        if output.suffix.lower() == ".png":
            contact_sheet_png(title, [row]).save(output)
        else:
            output.write_text(contact_sheet_html(title, [row]), encoding="utf-8")
    except OSError as error:
        raise SearchError(f"--output {output} cannot be written: {error.strerror or error}") from error


def _quieten() -> None:
    """Keep the libraries' notes on their own housekeeping out of a search's output."""
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    # A server that is away: a minute of retries is no answer for somebody who waits.
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
    warnings.filterwarnings("ignore", category=FutureWarning)
    for name in ("mlflow", "alembic", "transformers"):
        logging.getLogger(name).setLevel(logging.ERROR)


if __name__ == "__main__":
    sys.exit(main())
