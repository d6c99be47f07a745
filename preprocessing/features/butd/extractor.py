"""BUTD regions as an extractor; N regions, F feature width."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from preprocessing.features.butd.detector import Detector, Regions, Size, random_detector
from preprocessing.features.butd.resize import Pixels, prepare
from preprocessing.features.butd.weights import SOURCES, load_weights
from preprocessing.features.extractor import ExtractorError, FileExtractor, RegionFeatures, as_features
from preprocessing.features.weights import checked_device

_VERSION = 1


class ButdExtractor(FileExtractor):
    """The regions of an image with their features, boxes, objects and attributes (Anderson et al., 2018).

    An image's regions do not depend on the images that share its batch, but for float rounding.

    Args:
        weights: a file, a folder or a hub id, see :func:`load_weights`; None with a seed.
        variant: "caffe", the original code's way to run the network; models of earlier versions may name another.
        min_regions: of an image; 36 with max_regions 36 is the fixed form, 10 with 100 the adaptive one. There may be
            fewer if fewer boxes are proposed.
        max_regions: of an image.
        dtype: of the convolutions, "float32" or "bfloat16".
        device: as torch names it.
        seed: fills the network with random numbers instead of weights.
        size: of a seeded network, the fields of :class:`Size`; weights have the published size.
    """

    name = "region"

    def __init__(
        self,
        weights: str | None = None,
        variant: str = "caffe",
        min_regions: int = 36,
        max_regions: int = 36,
        dtype: str = "float32",
        device: str = "cpu",
        seed: int | None = None,
        size: Mapping[str, Any] | None = None,
    ) -> None:
        if not 1 <= min_regions <= max_regions:
            raise ExtractorError(f"butd: 1 <= min_regions <= max_regions is needed, got {min_regions}, {max_regions}")
        self._regions = (min_regions, max_regions)
        if variant != "caffe":
            raise ExtractorError(f"butd: the variant {variant!r} is gone: extract the features again, and train again")
        self._dtype, self._seed = dtype, seed
        where = checked_device(device)
        if weights is None:
            if seed is None:
                raise ExtractorError(f"butd: no weights are given; use {SOURCES}. A seed fills a random network")
            self._detector = random_detector(Size(**(size or {})), *self._regions, seed)
        elif seed is not None or size is not None:
            raise ExtractorError("butd: weights were given and a seed or size too; leave out those to use the weights")
        else:
            self._detector = Detector(Size(), *self._regions)
            load_weights(self._detector, weights)
        self._digest = _digest(self._detector)
        self._detector.compute_in(getattr(torch, dtype))
        self._detector.to(where).to(memory_format=torch.channels_last)

    def prepare(self, _data: bytes, image: Image.Image, /) -> Pixels:
        """One image as the network's pixels."""
        return prepare(image)

    def __call__(self, items: Sequence[Pixels]) -> list[RegionFeatures]:
        """Return the regions of each image of a batch."""
        return [self._stored(regions) for regions in self._detector(items)] if items else []

    def identity(self) -> dict[str, Any]:
        """The digest of the weights, and every setting; not the device, which changes features by rounding only."""
        return {
            "extractor": "butd",
            "version": _VERSION,
            "weights_sha256": self._digest,
            "variant": "caffe",
            "regions": list(self._regions),
            "dtype": self._dtype,
            "seed": self._seed,
        }

    def _stored(self, regions: Regions) -> RegionFeatures:
        (features_NF,) = as_features([regions["features"]], "butd")
        companions = {name: _array(values) for name, values in regions.items() if name != "features"}
        return RegionFeatures(features_NF, companions)


def _array(values: torch.Tensor) -> npt.NDArray[np.float32] | npt.NDArray[np.int32]:
    array = values.numpy()
    return array.astype(np.float32) if values.is_floating_point() else array.astype(np.int32)


def _digest(detector: torch.nn.Module) -> str:
    """sha256 over names, shapes and values of all parameters and buffers that the features depend on."""
    digest = hashlib.sha256()
    for name, tensor in sorted(detector.state_dict().items()):
        if name.endswith("num_batches_tracked"):
            continue
        digest.update(f"{name} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.contiguous().numpy().data)
    return digest.hexdigest()
