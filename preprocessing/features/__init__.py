"""Feature extractors: from images to sets of feature vectors, behind one protocol."""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from preprocessing.features.extractor import Extractor, ExtractorError

# The embedded default: settings of a small network to be initialised from a seed, sized for scenes: 96 x 96 pixels to
# 6 x 6 cells of width 192. Shallow and with tanh on purpose: each untrained layer loses information, and a ReLU network
# without biases is nearly linear in the image's brightness, which hides shapes.
TINY_RESNET = str(Path(__file__).with_name("tiny_resnet"))

# Modules and classes, imported when asked for: torch and transformers take seconds, and reading images needs neither.
# Plugins add builders.
EXTRACTORS: dict[str, tuple[str, str] | Callable[..., Extractor]] = {
    "butd": ("butd.extractor", "ButdExtractor"),
    "grid": ("grid", "GridExtractor"),
    "patches": ("grid", "PatchExtractor"),
    "pyramid": ("grid", "PyramidExtractor"),
    "frames": ("frames", "FrameExtractor"),
    "images": ("jpeg", "JpegExtractor"),
    "precomputed": ("precomputed", "PrecomputedExtractor"),
}


def build_extractor(name: str, max_pixels: int | None = None, **options: Any) -> Extractor:
    """Build one of `EXTRACTORS` by name, for images of at most `max_pixels` pixels (None for its default).

    ExtractorError: no extractor of the name, weights that cannot be loaded, or options that do not fit together.
    """
    if name not in EXTRACTORS:
        raise ExtractorError(
            f"this version has no extractor {name!r} ({', '.join(EXTRACTORS)}): extract and train again"
        )
    entry = EXTRACTORS[name]
    build = entry if callable(entry) else getattr(import_module(f"{__name__}.{entry[0]}"), entry[1])
    extractor: Any = build(**options)
    if max_pixels is not None:
        extractor.max_pixels = max_pixels
    return cast("Extractor", extractor)
