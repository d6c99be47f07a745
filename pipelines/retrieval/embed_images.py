"""Images without captions embedded by Ray actors, part by part; a finished part outlives a killed process.

B images, K views, D embedding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import ray
import torch

from pipelines.inference.embedder import Embedder
from pipelines.registry.models import CORRECTION
from pipelines.retrieval.correction import Correction
from pipelines.retrieval.image_gallery import Embedded, write_part
from pipelines.runtime import cluster
from pipelines.runtime.actor_pool import ActorPool
from pipelines.runtime.logs import configure_worker
from pipelines.runtime.progress import progress_bar
from preprocessing.extraction.image_loader import load_images
from preprocessing.features.images import ImageError, TemporaryImageError, inside, read_image_bytes, thumbnail

if TYPE_CHECKING:
    import pyarrow as pa

    from pipelines.retrieval.image_files import ImageFile

# Images of a part, which is what a killed process loses at most of each actor.
_PART = 256
_BATCH = 32
_TIMEOUT = 60.0  # seconds for an image


class Skipped(NamedTuple):
    """An image that cannot be embedded; one with a version is not tried again until it has another."""

    image: str
    version: str
    reason: str

    @classmethod
    def of(cls, file: ImageFile, reason: str, version: str = "") -> Skipped:
        """Skip a file; of a name that is not UTF-8 the odd bytes are spelt out."""
        return cls(file.image_id.encode(errors="backslashreplace").decode(), version, reason)


def embed_images(
    todo: Sequence[ImageFile], bundle: Path, images: str, folder: Path, parts: Path, actors: int
) -> tuple[list[pa.Table], list[Skipped]]:
    """Embed images with the model of a bundle in Ray actors; return the rows of the finished parts, and the others."""
    if not todo:
        return [], []
    cluster.connect(None)
    gpus = 1 if ray.cluster_resources().get("GPU") else 0
    actor = ray.remote(_Embedding).options(num_cpus=1, num_gpus=gpus)
    root = images if Path(images).is_dir() else ""
    chunks = [todo[start : start + _PART] for start in range(0, len(todo), _PART)]
    done = ActorPool(
        start=lambda: actor.remote(bundle, root),
        size=min(actors, len(chunks)),
        items=chunks,
        describe=lambda chunk: f"the images from {chunk[0].image_id} to {chunk[-1].image_id}",
    ).results()
    tables, skipped = [], []
    with progress_bar("embed", len(todo), "images") as bar:
        for embedded, refused in done:
            skipped += refused
            if embedded is not None:
                tables.append(write_part(folder, parts, embedded))
            bar.update((len(embedded.files) if embedded is not None else 0) + len(refused))
    return tables, skipped


class _Embedding:
    """An actor of the pool: embeds images with a model of its own."""

    def __init__(self, bundle: Path, root: str) -> None:
        self._bundle, self._root = bundle, root
        self._embedder: Embedder
        self._correction: Correction | None

    def prepare(self) -> None:
        """Load the model, and its correction if it has one."""
        configure_worker("index", "")
        self._embedder = Embedder(self._bundle / "model", self._bundle / "extractor")
        self._correction = Correction.load(self._bundle / CORRECTION)

    def work(self, files: Sequence[ImageFile]) -> tuple[Embedded | None, list[Skipped]]:
        """Return the images that can be embedded, and the others with their reasons."""
        return embed_files(self._embedder, files, self._root, self._correction)


def embed_files(
    embedder: Embedder, files: Sequence[ImageFile], root: str, correction: Correction | None = None
) -> tuple[Embedded | None, list[Skipped]]:
    """Embed images batch by batch while a thread decodes the next; links that lead out of `root` are skipped."""
    skipped: list[Skipped] = []

    def readable() -> Iterator[tuple[ImageFile, Any]]:
        for file, image in loaded:
            if isinstance(image, ImageError):
                version = "" if isinstance(image, TemporaryImageError) else file.version
                skipped.append(Skipped.of(file, str(image), version))
            else:
                yield file, image

    def load(uri: str) -> tuple[Any, bytes]:
        small: list[bytes] = []
        image = embedder.decode(read_image_bytes(inside(root, uri)), lambda decoded: small.append(thumbnail(decoded)))
        return image, small[0]

    embedded, vectors, thumbnails = [], [], []
    with closing(load_images(load, files, lambda each: each.image_uri, 1, 2 * _BATCH, _TIMEOUT)) as loaded:
        images = readable()
        while batch := list(islice(images, _BATCH)):
            embedded += [file for file, _ in batch]
            vectors.append(embedder.embed_decoded([image for _, (image, _) in batch]))
            thumbnails += [small for _, (_, small) in batch]
    if not vectors:
        return None, skipped
    images_BKD = torch.cat(vectors)
    bias_B = None if correction is None else correction.images_bias(images_BKD).numpy()
    return Embedded(embedded, images_BKD.numpy(), bias_B, thumbnails), skipped
