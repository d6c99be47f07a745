"""A model in Python: what it embeds, and what it finds in its gallery.

B images, N texts or images, K views, D embedding.
"""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL.Image import Image

from pipelines.inference.embedder import Embedder, QueryError
from pipelines.registry.models import find_bundle
from pipelines.retrieval.gallery_storage import GALLERIES
from pipelines.retrieval.hits import Hit
from pipelines.retrieval.image_gallery import read_state
from pipelines.retrieval.index import main as index_command
from pipelines.retrieval.options import Target, default_tracking_uri, gallery_folder
from pipelines.retrieval.search_model import SearchError, SearchModel, load_search_model
from pipelines.runtime import cluster
from pipelines.runtime.commands import Caller
from pipelines.schema.fields import default_work_dir
from preprocessing.datasets.table import is_table
from preprocessing.storage.address import is_s3

_BATCH = 32  # images that are decoded and embedded together


def load(reference: str | Path, tracking_uri: str | None = None) -> Model:
    """Load a model, with its gallery if it has one.

    Args:
        reference: the name of a gallery of your own images, or else of a registered model (NAME, NAME@ALIAS or
            NAME/VERSION); or `hf:` and a folder, or a name on the hub, of a CLIP, SigLIP or other dual encoder of
            transformers or open_clip; or the folder of a gallery, of an exported model, or of a register stage.
        tracking_uri: MLflow's address for registered models; by default the database of the work directory.

    Raises:
        pipelines.runtime.stage.StageError: the model does not exist, or cannot be loaded; the message says why.
    """
    name, uri = str(reference), tracking_uri or default_tracking_uri()
    named = default_work_dir() / GALLERIES / name
    gallery = named if Path(name).name == name and read_state(named) else Path(name).expanduser().absolute()
    if state := read_state(gallery):
        found = load_search_model(str(gallery), uri)
        return Model(state["model"], found.embedder, found, uri)
    pinned, bundle = find_bundle(name, uri)
    if (bundle / "gallery").is_dir():
        found = load_search_model(pinned, uri)
        return Model(pinned, found.embedder, found, uri)
    try:
        return Model(pinned, Embedder(bundle / "model", bundle / "extractor"), None, uri)
    except (FileNotFoundError, ValueError) as error:
        raise SearchError(f"model {name!r} cannot be loaded: {error}") from error


class Model:
    """A model that embeds texts and images, and searches its gallery; made by `load` and `Model.index`.

    `name` is NAME/VERSION of a registered model, `hf:NAME@DIGITS` of a pretrained one, or a folder.
    """

    def __init__(self, name: str, embedder: Embedder, searcher: SearchModel | None, tracking_uri: str) -> None:
        self.name = name
        self._embedder, self._searcher, self._tracking_uri = embedder, searcher, tracking_uri

    def embed(
        self,
        texts: str | Sequence[str] | None = None,
        images: str | Path | Image | Sequence[str | Path | Image] | None = None,
    ) -> npt.NDArray[np.float32]:
        """Embed texts, or images, into unit vectors (N, D); a model with K views of an image gives (N, K, D).

        Args:
            texts: N texts, or one; or
            images: N images, all as paths or addresses, or all as PIL images; or one.

        Raises:
            ValueError: not one of the two is given, or one of them cannot be embedded; the message says which, and why.
        """
        if (texts is None) == (images is None):
            raise ValueError("embed takes texts or images: give one of the two")
        given: Any = images if texts is None else texts
        given = [given] if isinstance(given, (str, Path, Image)) else list(given)
        if not given:
            raise ValueError("embed was given an empty list")
        if texts is not None:
            if not all(isinstance(text, str) for text in given):
                raise ValueError("embed takes texts that are strings")
            return self._embedder.embed_texts(given).numpy()
        starts = range(0, len(given), _BATCH)
        images_BKD = np.concatenate([self._embedded(given[start : start + _BATCH], start) for start in starts])
        return images_BKD[:, 0] if images_BKD.shape[1] == 1 else images_BKD

    def index(self, images: str | Path, name: str | None = None) -> Model:
        """Make the gallery of a folder or table of images, or bring it up to date; return this model with it.

        The gallery is kept in the work directory, and any command and `load` find it by its name. Images that cannot be
        used are listed in its `skipped.csv`.

        Args:
            images: a folder, at any depth, or a table with a column `image` (.csv, .tsv, .jsonl, .parquet); also on S3.
            name: of the gallery; by default that of the folder or, without its ending, of the table.

        Raises:
            pipelines.runtime.stage.StageError: no image can be used, or the gallery is of other images.
            ValueError: a gallery cannot have this name.
        """
        path = Path(str(images).rstrip("/")).absolute()  # "." has no name of its own
        try:
            folder = gallery_folder(name or (path.stem if is_table(str(path)) else path.name))
        except ArgumentTypeError as error:
            raise ValueError(f"{error}; name it by index(..., name=NAME)") from error
        was_connected = cluster.is_connected()
        options = ["--model", self.name, "--tracking-uri", self._tracking_uri]
        # Messages name the command `vse`: who imports it has installed it.
        called, Caller.is_vse = Caller.is_vse, True
        try:
            index_command([*options, "--images", str(images), "--name", folder.name])
        finally:
            Caller.is_vse = called
            if not was_connected:
                cluster.disconnect()
        return load(folder, self._tracking_uri)

    def search(
        self,
        text: str | None = None,
        k: int = 10,
        *,
        image: str | Path | Image | None = None,
        target: Target | None = None,
        min_confidence: float = 0,
        where: str = "",
    ) -> list[Hit]:
        """Return what the gallery has nearest to a text or an image, best first.

        Args:
            text: what to search with; or
            image: an image, as a path or a PIL image.
            k: number of hits.
            target: what to find; by default the other kind, or images if the gallery has no captions.
            min_confidence: leave out hits that are less sure, from 0 to 1.
            where: a condition on the columns of a table of images, such as `year >= 2020`.

        Raises:
            pipelines.runtime.stage.StageError: the model has no gallery, or the query or condition does not fit it.
            ValueError: not one of text and image is given, the image cannot be read, or a number is out of its range.
        """
        if (text is None) == (image is None):
            raise ValueError("search takes a text or an image: give one of the two")
        if k < 1 or not 0 <= min_confidence <= 1:
            raise ValueError("search takes a k of 1 or more, and a min_confidence from 0 to 1")
        if target not in (None, "images", "captions"):
            raise ValueError(f"the target of a search is 'images' or 'captions', not {target!r}")
        if self._searcher is None:
            raise SearchError(f"{self.name} has no gallery: make one of a folder of images by index(FOLDER)")
        if text is not None:
            wanted = self._searcher.target_of("text", target)
            return self._searcher.answer(text, "text", k, wanted, min_confidence, where).hits
        query_1VD = torch.from_numpy(self._embedded([image]))
        wanted = self._searcher.target_of("image", target)
        return self._searcher.find(query_1VD, "image", k, wanted, min_confidence, where)[0]

    def _embedded(self, images: Sequence[Any], start: int = 0) -> npt.NDArray[np.float32]:
        """Embed a batch of images (B, K, D), of which the first has the number `start`."""
        try:
            if all(isinstance(image, (str, Path)) for image in images):
                uris = [str(image) if is_s3(str(image)) else str(Path(image).expanduser()) for image in images]
                return self._embedder.embed_images(uris).numpy()
            if not all(isinstance(image, Image) for image in images):
                raise ValueError("images are all paths or addresses, or all PIL images")
            return self._embedder.embed_pil(images).numpy()
        except QueryError as error:
            image = images[error.position]
            name = "" if isinstance(image, Image) else f"{image}: "
            raise QueryError(start + error.position, f"{name}{error.reason}") from error
