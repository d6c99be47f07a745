"""From raw texts and image files to embeddings: a model with the caption encoder and extractor it was trained with.

B images, C captions, K views, D embedding.
"""

import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import Tensor

from pipelines.config import load_plugins
from pipelines.inference.image_inputs import model_inputs, set_size
from pipelines.inference.text_embedder import TextEmbedder
from preprocessing.features import build_extractor
from preprocessing.features.extractor import Extractor, ExtractorError, FileExtractor, RegionFeatures
from preprocessing.features.images import ImageError, image_bytes, plain_image
from preprocessing.reading import damage_as, parse_json
from preprocessing.storage.address import require_inner_name
from preprocessing.storage.base import StorageError
from vse_core import registry
from vse_core.digests import check_digests, write_digests
from vse_core.models import Model, load_model, load_text_side
from vse_core.outputs import embed
from vse_core.precision import use_tf32

EXTRACTOR = "extractor.json"
WEIGHTS = "weights"

_IMAGES_AT_ONCE = 32


@dataclass(frozen=True)
class ImageRegions:
    """An image's K views and its N regions or cells, by each of P projections, as unit vectors in the joint space.

    The places are rows and columns of the grid, or boxes (N, 4) of left, top, right and bottom in pixels.
    """

    image_KD: Tensor
    regions_PND: Tensor
    places: tuple[int, int] | npt.NDArray[np.float32]

    def of_view(self, view: int) -> Tensor:
        """Return the regions (N, D) as a view sees them."""
        return self.regions_PND[view if len(self.regions_PND) > 1 else 0]


class QueryError(ValueError):
    """One text or image that cannot be embedded: its position in the given sequence, from 0, and the reason."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(f"input {position}: {reason}")
        self.position = position
        self.reason = reason


class Embedder:
    """Embeds texts and images with a saved model and its extractor (see `write_extractor`), on a GPU by default.

    Texts alone need neither the extractor nor the image side of a pretrained dual encoder, and do not load them. Raises
    FileNotFoundError if a directory lacks a file, and ValueError if the files do not fit each other. The first image
    raises ExtractorError if the extractor's network cannot be loaded.
    """

    def __init__(self, model: Path, extractor: Path, device: str | None = None) -> None:
        load_plugins()
        self.device = device or default_device()
        use_tf32(False)  # which cuDNN may take otherwise
        self._folder = model
        if (text_side := load_text_side(model, self.device)) is None:
            _ = self.model
        else:
            self.texts = TextEmbedder(text_side, model)
        self._options = _extractor_options(extractor, self.device)

    @cached_property
    def model(self) -> Model:
        """The complete model, which texts are embedded with from now on."""
        model = load_model(self._folder, self.device)
        self.texts = TextEmbedder(model, self._folder)
        return model

    @cached_property
    def _extractor(self) -> Extractor:
        """The extractor, built when an image is asked for: its networks take seconds to import, and texts need none."""
        return build_extractor(**self._options)

    def embed_texts(self, texts: Sequence[str]) -> Tensor:
        """Embed texts into (C, D) unit vectors, float32, on the CPU; QueryError for one that is empty or too long."""
        encoder = self.texts.caption_encoder
        for position, text in enumerate(texts):
            if not text.strip():
                raise QueryError(position, "the text is empty")
            if encoder.truncates(text):
                read = len(encoder.encode(text))
                raise QueryError(position, f"the text has more than the {read} tokens that the model reads; shorten it")
        return self.texts.embed(texts)

    def embed_images(self, uris: Sequence[str]) -> Tensor:
        """Embed images by path or URI: (B, K, D) unit vectors, float32, on the CPU; QueryError if one is unreadable."""
        return self._embed(self._read(uris))

    def decode(self, data: bytes, seen: Callable[[Image.Image], object] = id) -> Any:
        """Decode an image file for `embed_decoded`, and let `seen` see it; raises ImageError; for any thread."""
        if not isinstance(self._extractor, FileExtractor):
            raise ImageError("the model needs features that were computed elsewhere")
        return self._extractor.decode(data, seen)

    def embed_decoded(self, images: Sequence[Any]) -> Tensor:
        """Embed a batch of images that `decode` has returned, as `embed_images` does."""
        return self._embed([self._extractor(images)])

    def embed_pil(self, images: Sequence[Image.Image]) -> Tensor:
        """Embed decoded images, as `embed_images` does their lossless files."""
        return self.embed_decoded([self._decoded(position, image) for position, image in enumerate(images)])

    @property
    def takes_images(self) -> bool:
        """Return whether the extractor reads image files, rather than rows of published features or videos."""
        return isinstance(self._extractor, FileExtractor)

    @property
    def finds_regions(self) -> bool:
        """Return whether the model embeds regions and components of captions (UniVSE), and reads image files."""
        return self.texts.components is not None and self.takes_images

    def set_size(self, uri: str) -> int:
        """Return N, the vectors that are pooled of an image; QueryError for an unreadable one."""
        _, lengths_or_mask = model_inputs(self.model, next(self._read([uri])))
        return set_size(self.model, lengths_or_mask)

    def embed_with_regions(self, uri: str) -> ImageRegions:
        """Embed an image and each of its regions, grid cells or patches by itself; a class token is none of them.

        Raises QueryError for an unreadable image, ValueError if the model takes images, or places are unknown.
        """
        embed_regions = getattr(self.model.image_encoder, "regions", None)
        if embed_regions is None:
            raise ValueError("the model takes images, not features of regions: its regions cannot be embedded")
        (stored,) = next(self._read([uri]))
        features_1NF, lengths_1 = model_inputs(self.model, [stored])
        (image_KD,) = self._embed([[stored]])
        with torch.inference_mode():
            regions, _ = embed_regions(features_1NF.to(self.device), lengths_1.to(self.device))
        regions_PND = regions.cpu().reshape(-1, *regions.shape[-2:])
        if isinstance(stored, RegionFeatures) and stored.grid is not None:
            rows, columns, others = stored.grid
            return ImageRegions(image_KD, regions_PND[:, others:], (rows, columns))
        if isinstance(stored, RegionFeatures) and "boxes" in stored.companions:
            return ImageRegions(image_KD, regions_PND, np.asarray(stored.companions["boxes"], dtype=np.float32))
        raise ValueError(
            f"where the {regions_PND.shape[1]} features of an image lie is not known: they have no boxes, and the "
            f"extractor ({self._extractor.name}) gives no grid"
        )

    def _embed(self, batches: Iterable[Sequence[Any]]) -> Tensor:
        inputs = (model_inputs(self.model, stored) for stored in batches)
        images_BKD: Tensor = embed(self.model, self.model.encode_images, inputs)
        return images_BKD

    def _read(self, uris: Sequence[str]) -> Iterator[Sequence[Any]]:
        """Yield what the extractor gives for images, batch by batch."""
        for start in range(0, len(uris), _IMAGES_AT_ONCE):
            batch = enumerate(uris[start : start + _IMAGES_AT_ONCE], start)
            yield self._extractor([self._load(position, uri) for position, uri in batch])

    def _decoded(self, position: int, image: Image.Image) -> Any:
        try:
            return self.decode(image_bytes(plain_image(image), "PNG"))
        except ImageError as error:
            raise QueryError(position, str(error)) from error

    def _load(self, position: int, uri: str) -> Any:
        try:
            return self._extractor.load(uri)
        except (ImageError, StorageError) as error:
            raise QueryError(position, str(error)) from error


def default_device() -> str:
    """Return "cuda" if there is a GPU, else "cpu"."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def write_extractor(directory: Path, name: str, options: dict[str, Any]) -> None:
    """Write what rebuilds an extractor from options of `build_extractor`: `extractor.json`, and weights if local."""
    directory.mkdir(parents=True, exist_ok=True)
    weights = options.get("weights")
    if weights is not None and Path(weights).exists():
        _write_weights(directory / WEIGHTS, name, options.get("network"), Path(weights))
        options = {**options, "weights": {"folder": WEIGHTS}}
    content = {"name": name, "options": options}
    if plugins := registry.origins(content):
        content["plugins"] = plugins
    (directory / EXTRACTOR).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    write_digests(directory)


def _write_weights(target: Path, name: str, network: str | None, weights: Path) -> None:
    """Copy local weights as safetensors: files of weights are mostly released as pickles, which could run code."""
    target.mkdir(exist_ok=True)
    if name == "butd":
        from preprocessing.features.butd.weights import read_detector

        state = read_detector(str(weights))
    elif network is not None:
        from preprocessing.features.networks import read_state

        state = read_state(weights)
    else:
        for file in sorted([*weights.glob("*.json"), *weights.glob("*.safetensors")]):
            shutil.copyfile(file, target / file.name)
        return
    save_file({key: tensor.contiguous() for key, tensor in state.items()}, target / "model.safetensors")


def _extractor_options(directory: Path, device: str) -> dict[str, Any]:
    """Read `extractor.json` into keyword arguments of `build_extractor`."""
    path = directory / EXTRACTOR
    if not path.is_file():
        raise FileNotFoundError(f"{directory} holds no extractor: {EXTRACTOR} is missing")
    check_digests(directory, EXTRACTOR)
    check_digests(directory)
    with damage_as(ExtractorError, f"{path} describes no extractor", "restore the folder"):
        content = parse_json(path.read_bytes())
        options = {"name": content["name"], **content["options"]}
        registry.require(f"the extractor in {directory}", content.get("plugins", {}))
        folder = options["weights"]["folder"] if isinstance(options.get("weights"), dict) else None
    if folder is not None:
        options["weights"] = str(directory / require_inner_name(folder, str(path), ExtractorError))
    if "weights" in options:
        # An extractor without weights computes nothing, and so has no device.
        options["device"] = device
    return options
