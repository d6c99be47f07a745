"""Feature extractors: from images to sets of feature vectors, behind one protocol."""

import inspect
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from preprocessing.features.extractor import Extractor, ExtractorError, FeaturesNF, ImageExtractor, RegionFeatures
from preprocessing.features.images import ImageError, decode_image, load_image, read_image_bytes

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

# The embedded default: settings of a small network to be initialised from a seed, sized for scenes: 96 x 96 pixels to
# 6 x 6 cells of width 192. Shallow and with tanh on purpose: each untrained layer loses information, and a ReLU network
# without biases is nearly linear in the image's brightness, which hides shapes.
TINY_RESNET = str(Path(__file__).with_name("tiny_resnet"))

# Modules and classes, imported when asked for: torch and transformers take seconds, and reading images needs neither.
EXTRACTORS = {
    "butd": ("butd.extractor", "ButdExtractor"),
    "grid": ("grid", "GridExtractor"),
    "patches": ("patches", "PatchExtractor"),
    "pyramid": ("pyramid", "PyramidExtractor"),
    "frames": ("frames", "FrameExtractor"),
    "images": ("jpeg", "JpegExtractor"),
    "precomputed": ("precomputed", "PrecomputedExtractor"),
    "imported": ("imported", "ImportedExtractor"),
    "several": ("several", "SeveralExtractor"),
}


def build_extractor(name: str, max_pixels: int | None = None, **options: Any) -> Extractor:
    """Build one of `EXTRACTORS` by name, for images of at most `max_pixels` pixels (None for its default).

    ExtractorError: unknown name or options, or weights that cannot be loaded.
    """
    if name not in EXTRACTORS:
        raise ExtractorError(f"there is no extractor {name!r}; the extractors are {', '.join(EXTRACTORS)}")
    module, class_name = EXTRACTORS[name]
    build = _several if name == "several" else getattr(import_module(f"{__name__}.{module}"), class_name)
    signature = inspect.signature(build)
    try:
        signature.bind(**options)
    except TypeError as error:
        accepted = ", ".join(signature.parameters) or "no options"
        raise ExtractorError(f"extractor {name!r}: {error}; it takes {accepted}") from error
    built: Any = build(**options)
    if max_pixels is not None:
        built.max_pixels = max_pixels
    extractor: Extractor = built
    return extractor


def _several(of: Sequence[Mapping[str, Any]], device: str = "cpu") -> Extractor:
    from preprocessing.features.several import SHARING, SeveralExtractor

    for name in (options["name"] for options in of):
        if name not in SHARING:
            raise ExtractorError(f"{name!r} does not share images with others; those that do are {', '.join(SHARING)}")
    return SeveralExtractor([cast("ImageExtractor", build_extractor(**options, device=device)) for options in of])
