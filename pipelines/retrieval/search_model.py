"""A model ready to search with: its embedder, its gallery and the gallery's index, loaded by the model's name."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from torch import Tensor

from pipelines.inference.embedder import Embedder, QueryError
from pipelines.registry.models import find_bundle
from pipelines.retrieval.faiss_index import GalleryIndex, index_origin
from pipelines.retrieval.gallery import Gallery, GalleryError
from pipelines.retrieval.hits import Hit, as_hits
from pipelines.retrieval.image_gallery import load_image_gallery, read_state
from pipelines.retrieval.options import Kind, Target
from pipelines.runtime.commands import command
from pipelines.runtime.stage import StageError
from preprocessing.features.extractor import ExtractorError
from vse_core.digests import DigestError


class SearchError(StageError):
    """A search that cannot be done."""


@dataclass(frozen=True)
class SearchModel:
    """A model with its gallery and index.

    `thumbnails` are small JPEG files of the images by id, which a gallery of somebody's own images has.
    """

    name: str
    embedder: Embedder
    gallery: Gallery
    index: GalleryIndex
    thumbnails: Mapping[str, Path] = field(default_factory=dict)

    def target_of(self, kind: Kind, wanted: Target | None = None) -> Target:
        """Return what a query looks for: what is wanted, else the other kind, or images if there are no captions.

        Raises SearchError if captions are wanted and there are none.
        """
        if self.gallery.captions:
            return wanted or ("images" if kind == "text" else "captions")
        if wanted == "captions":
            raise SearchError("the gallery has no captions: the target can only be images")
        return "images"

    def embed(self, queries: Sequence[str], kind: Kind) -> Tensor:
        """Embed texts, or images by path or URI, into (Q, V, D)."""
        if kind == "image":
            return self.embedder.embed_images(queries)
        return self.embedder.embed_texts(queries).unsqueeze(1)

    def find(self, queries_QVD: Tensor, k: int, target: Target) -> list[list[Hit]]:
        """Return the k items (or all) nearest to each query, best first; hubs are corrected if there is a bank."""
        nearest = getattr(self.index, target).search(queries_QVD, k)
        biases = self.gallery.biases
        if biases is not None:
            bias = (biases.images_B if target == "images" else biases.texts_C).numpy()
            nearest = [found._replace(scores=found.scores + bias[found.indices]) for found in nearest]
        return [as_hits(self.gallery, target, found.scores.tolist(), found.indices.tolist()) for found in nearest]

    def search(self, query: str, kind: Kind, k: int, target: Target) -> list[Hit]:
        """Return the k items (or all) nearest to a text, or to the image of a path or URI, best first."""
        try:
            (hits,) = self.find(self.embed([query], kind), k, target)
        except QueryError as error:
            raise SearchError(f"cannot search with the {kind} {query!r}: {error.reason}") from error
        return hits


def load_search_model(reference: str, tracking_uri: str) -> SearchModel:
    """Load a model with its gallery and index.

    `reference` is NAME, NAME@ALIAS, NAME/VERSION, a `models:/` URI, or a directory with the parts of a bundle or with
    a gallery of images without captions, which names its model.
    """
    own_images = read_state(Path(reference))
    try:
        name, bundle = find_bundle(reference if own_images is None else own_images["model"], tracking_uri)
    except DigestError as error:
        if own_images is None:
            raise
        again = command("index", "--name", Path(reference).name, "--model", own_images["model"].partition("/")[0])
        raise SearchError(f"{error}; then index the images again: {again}") from error
    try:
        embedder = Embedder(bundle / "model", bundle / "extractor")
        if own_images is not None:
            return SearchModel(reference, embedder, *load_image_gallery(Path(reference), own_images, bundle))
        gallery = Gallery.load(bundle / "gallery")
        index = GalleryIndex.load(bundle / "index", index_origin(bundle / "model", bundle / "gallery"))
        return SearchModel(name, embedder, gallery, index)
    except (FileNotFoundError, ValueError, GalleryError, ExtractorError) as error:
        raise SearchError(f"model {reference!r} cannot be loaded: {error}") from error
