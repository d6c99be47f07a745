"""A model ready to search with: its embedder, its gallery and the gallery's index, found by the model's name."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from torch import Tensor

    from pipelines.inference.embedder import Embedder
    from pipelines.retrieval.faiss_index import GalleryIndex
    from pipelines.retrieval.gallery import Gallery
    from pipelines.retrieval.hits import Hit

Kind = Literal["text", "image"]
Target = Literal["images", "captions"]

# What is looked for where nobody says: the other kind.
DEFAULT_TARGETS: dict[Kind, Target] = {"text": "images", "image": "captions"}


class SearchError(Exception):
    """A search that cannot be done: one message, printed without a traceback."""


@dataclass(frozen=True)
class SearchModel:
    """What a search needs of a model.

    Attributes:
        name: to show.
        embedder: of queries.
        gallery: what is searched.
        index: of the gallery.
        has_stored_index: whether the index came with the model; else it was built when the model was loaded.
    """

    name: str
    embedder: Embedder
    gallery: Gallery
    index: GalleryIndex
    has_stored_index: bool

    def embed(self, queries: Sequence[str], kind: Kind) -> Tensor:
        """Embed texts, or images by path or URI, into (Q, V, D).

        Raises:
            QueryError: one of them cannot be embedded.
        """
        return (
            self.embedder.embed_texts(queries).unsqueeze(1) if kind == "text" else self.embedder.embed_images(queries)
        )

    def find(self, queries_QVD: Tensor, k: int, target: Target) -> list[list[Hit]]:
        """What is nearest to each query, best first; all there is where that is less than k."""
        from pipelines.retrieval.hits import as_caption_hits, as_image_hits

        index, hits = {
            "images": (self.index.images, as_image_hits),
            "captions": (self.index.captions, as_caption_hits),
        }[target]
        return [
            hits(self.gallery, found.similarities.tolist(), found.places.tolist())
            for found in index.search(queries_QVD, k)
        ]


def default_tracking_uri() -> str:
    """Return the address that a pipeline run uses where its configuration names none: sqlite in the work directory."""
    work_dir = Path(os.environ.get("VSE_WORK_DIR") or "~/vse-work").expanduser()
    return f"sqlite:///{Path(os.path.abspath(work_dir)) / 'mlflow.db'}"  # noqa: PTH100


def load_search_model(reference: str, tracking_uri: str) -> SearchModel:
    """Load a model with its gallery and index; a version from before there were indices is searched exactly.

    Args:
        reference: NAME, NAME@ALIAS, NAME/VERSION, a `models:/` URI, or a directory with the parts of a bundle.
        tracking_uri: MLflow server or database that knows the model.

    Raises:
        SearchError: there is no such model, or it cannot be loaded.
    """
    from pipelines.inference.embedder import Embedder
    from pipelines.registry.models import RegistryError, find_bundle
    from pipelines.retrieval.faiss_index import GalleryIndex, GalleryIndexError, index_origin
    from pipelines.retrieval.gallery import Gallery, GalleryError
    from preprocessing.features import ExtractorError

    try:
        name, bundle = find_bundle(reference, tracking_uri)
        embedder = Embedder(bundle / "model", bundle / "extractor")
        gallery = Gallery.load(bundle / "gallery")
        has_stored_index = (bundle / "index").is_dir()
        if has_stored_index:
            index = GalleryIndex.load(bundle / "index", index_origin(bundle / "model", bundle / "gallery"))
        else:
            index = GalleryIndex.build(gallery.images_BKD, gallery.texts_CD, "exact")
        return SearchModel(name, embedder, gallery, index, has_stored_index)
    except RegistryError as error:
        raise SearchError(str(error)) from error
    except (FileNotFoundError, ValueError, GalleryError, GalleryIndexError, ExtractorError) as error:
        raise SearchError(f"model {reference!r} cannot be loaded: {error}") from error
