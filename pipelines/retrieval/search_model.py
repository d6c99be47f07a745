"""A model ready to search with: its embedder, its gallery and the gallery's index, loaded by the model's name."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pipelines.runtime.stage import StageError
from preprocessing.storage.redaction import SecretAddress

if TYPE_CHECKING:
    from torch import Tensor

    from pipelines.inference.embedder import Embedder
    from pipelines.retrieval.faiss_index import GalleryIndex
    from pipelines.retrieval.gallery import Gallery
    from pipelines.retrieval.hits import Hit

Kind = Literal["text", "image"]
Target = Literal["images", "captions"]

DEFAULT_TARGETS: dict[Kind, Target] = {"text": "images", "image": "captions"}


class SearchError(StageError):
    """A search that cannot be done."""


@dataclass(frozen=True)
class SearchModel:
    """A model with its gallery and index; `has_stored_index` is False if the index was built on loading."""

    name: str
    embedder: Embedder
    gallery: Gallery
    index: GalleryIndex
    has_stored_index: bool

    def embed(self, queries: Sequence[str], kind: Kind) -> Tensor:
        """Embed texts, or images by path or URI, into (Q, V, D)."""
        if kind == "image":
            return self.embedder.embed_images(queries)
        return self.embedder.embed_texts(queries).unsqueeze(1)

    def find(self, queries_QVD: Tensor, k: int, target: Target) -> list[list[Hit]]:
        """Return the k items (or all) nearest to each query, best first."""
        from pipelines.retrieval.hits import as_caption_hits, as_image_hits

        index, hits = getattr(self.index, target), as_image_hits if target == "images" else as_caption_hits
        nearest = index.search(queries_QVD, k)
        return [hits(self.gallery, found.similarities.tolist(), found.places.tolist()) for found in nearest]

    def search(self, query: str, kind: Kind, k: int, target: Target) -> list[Hit]:
        """Return the k items (or all) nearest to a text, or to the image of a path or URI, best first."""
        from pipelines.inference.embedder import QueryError

        try:
            (hits,) = self.find(self.embed([query], kind), k, target)
        except QueryError as error:
            raise SearchError(f"cannot search with the {kind} {query!r}: {error.reason}") from error
        return hits


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that name a registered model."""
    models = "NAME, NAME@ALIAS, NAME/VERSION, a models:/ URI, or the output directory of a register stage"
    parser.add_argument("--model", required=True, help=models)
    default = "sqlite in $VSE_WORK_DIR, or ~/vse-work"
    parser.add_argument("--tracking-uri", type=SecretAddress, help=f"MLflow address (default: {default})")


def default_tracking_uri() -> str:
    """Return the tracking address of a configuration that names none: sqlite in the work directory."""
    work_dir = Path(os.environ.get("VSE_WORK_DIR") or "~/vse-work").expanduser()
    return f"sqlite:///{Path(os.path.abspath(work_dir)) / 'mlflow.db'}"  # noqa: PTH100


def load_search_model(reference: str, tracking_uri: str) -> SearchModel:
    """Load a model with its gallery and index; a model registered without an index is searched exactly.

    `reference` is NAME, NAME@ALIAS, NAME/VERSION, a `models:/` URI, or a directory with the parts of a bundle.
    """
    from pipelines.inference.embedder import Embedder
    from pipelines.registry.models import find_bundle
    from pipelines.retrieval.faiss_index import GalleryIndex, GalleryIndexError, index_origin
    from pipelines.retrieval.gallery import Gallery, GalleryError
    from preprocessing.features import ExtractorError

    name, bundle = find_bundle(reference, tracking_uri)
    try:
        embedder = Embedder(bundle / "model", bundle / "extractor")
        gallery = Gallery.load(bundle / "gallery")
        has_stored_index = (bundle / "index").is_dir()
        if has_stored_index:
            index = GalleryIndex.load(bundle / "index", index_origin(bundle / "model", bundle / "gallery"))
        else:
            index = GalleryIndex.build(gallery.images_BKD, gallery.texts_CD, "exact")
        return SearchModel(name, embedder, gallery, index, has_stored_index)
    except (FileNotFoundError, ValueError, GalleryError, GalleryIndexError, ExtractorError) as error:
        raise SearchError(f"model {reference!r} cannot be loaded: {error}") from error
