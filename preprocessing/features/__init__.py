"""Feature extractors: from images to sets of feature vectors, behind one protocol."""

import importlib.util
import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, cast

from preprocessing.features.extractor import Extractor, ExtractorError, FeaturesNF, ImageExtractor, RegionFeatures
from preprocessing.features.images import ImageError, decode_image, load_image, read_image_bytes
from preprocessing.features.pictures import PictureExtractor
from preprocessing.features.precomputed import PrecomputedExtractor

__all__ = [
    "EXTRACTORS",
    "TINY_RESNET",
    "Extractor",
    "ExtractorError",
    "FeaturesNF",
    "ImageError",
    "RegionFeatures",
    "build_extractor",
    "decode_image",
    "load_image",
    "read_image_bytes",
]

# As in preprocessing.features.networks, which needs torch.
ImageSize = int | Literal["short_600"]

# The embedded default: settings of a small network to be initialised from a seed, sized for scenes: 96 x 96 pixels to
# 6 x 6 cells of width 192. Shallow and with tanh on purpose: each untrained layer loses information, and a ReLU network
# without biases is nearly linear in the picture's brightness, which hides shapes.
TINY_RESNET = str(Path(__file__).with_name("tiny_resnet"))


def _build_grid(
    weights: str | None = None,
    network: str | None = None,
    image_size: ImageSize | None = None,
    device: str = "cpu",
    seed: int | None = None,
) -> Extractor:
    # Here and below imported when asked for: torch and transformers take seconds, and reading images needs neither.
    from preprocessing.features.grid import GridExtractor

    return GridExtractor(weights, network, image_size, device, seed)


def _build_patches(weights: str, class_token: bool = True, device: str = "cpu", seed: int | None = None) -> Extractor:
    from preprocessing.features.patches import PatchExtractor

    return PatchExtractor(weights, class_token, device, seed)


def _build_pyramid(
    weights: str | None = None,
    network: str | None = None,
    image_size: ImageSize = 224,
    device: str = "cpu",
    seed: int | None = None,
) -> Extractor:
    from preprocessing.features.pyramid import PyramidExtractor

    return PyramidExtractor(weights, network, image_size, device, seed)


def _build_frames(
    weights: str | None = None,
    network: str | None = None,
    image_size: ImageSize | None = None,
    frames: int = 12,
    device: str = "cpu",
    seed: int | None = None,
) -> Extractor:
    if importlib.util.find_spec("av") is None:
        raise ExtractorError("frames are decoded by PyAV, which is not installed: pip install 'vse-pipeline[features]'")
    from preprocessing.features.frames import FrameExtractor

    return FrameExtractor(weights, network, image_size, frames, device, seed)


def _build_imported(source: str, form: str) -> Extractor:
    from preprocessing.features.imported import ImportedExtractor

    return ImportedExtractor(source, form)


def _build_butd(
    weights: str | None = None,
    variant: Literal["caffe", "detectron2"] = "caffe",
    min_regions: int = 36,
    max_regions: int = 36,
    dtype: str = "float32",
    device: str = "cpu",
    seed: int | None = None,
    size: Mapping[str, Any] | None = None,
) -> Extractor:
    from preprocessing.features.butd.extractor import ButdExtractor

    return ButdExtractor(weights, variant, min_regions, max_regions, dtype, device, seed, size)


def _build_several(of: Sequence[Mapping[str, Any]], device: str = "cpu") -> Extractor:
    from preprocessing.features.several import SHARING, SeveralExtractor

    for name in (options["name"] for options in of):
        if name not in SHARING:
            raise ExtractorError(f"{name!r} does not share images with others; those that do are {', '.join(SHARING)}")
    return SeveralExtractor([cast("ImageExtractor", build_extractor(**options, device=device)) for options in of])


EXTRACTORS: dict[str, Callable[..., Extractor]] = {
    "butd": _build_butd,
    "grid": _build_grid,
    "patches": _build_patches,
    "pyramid": _build_pyramid,
    "frames": _build_frames,
    "images": PictureExtractor,
    "precomputed": PrecomputedExtractor,
    "imported": _build_imported,
    "several": _build_several,
}


def build_extractor(name: str, **options: Any) -> Extractor:
    """The extractor of a name, ready to run.

    Args:
        name: one of `EXTRACTORS`.
        options: the arguments of that extractor.

    Raises:
        ExtractorError: unknown name, options that it does not take or lacks, or weights that cannot be loaded.
    """
    if name not in EXTRACTORS:
        raise ExtractorError(f"there is no extractor {name!r}; the extractors are {', '.join(EXTRACTORS)}")
    extractor = EXTRACTORS[name]
    signature = inspect.signature(extractor)
    try:
        signature.bind(**options)
    except TypeError as error:
        accepted = ", ".join(signature.parameters) or "no options"
        raise ExtractorError(f"extractor {name!r}: {error}; it takes {accepted}") from error
    return extractor(**options)
