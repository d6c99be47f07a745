"""Draw published regions on their photographs, with the names of objects and attributes: to check them by eye.

python -m preprocessing.features.draw_regions train2014_obj36.tsv --form butd_tsv --images images --out drawn \
    --objects objects_vocab.txt --attributes attributes_vocab.txt
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

from preprocessing.features.extractor import ExtractorError
from preprocessing.features.images import ImageError, inside, load_image
from preprocessing.features.importers import FORMS, PublishedRegions, by_image_key, entries, image_key, open_source
from preprocessing.plain_text import printable
from preprocessing.reading import damage_as

_HUES = ["#e6194b", "#3cb44b", "#4363d8", "#f58231", "#911eb4", "#008080", "#9a6324", "#800000", "#808000", "#000075"]
_FONT_SHARE = 32  # of the image's long side
_IMAGES = (".jpg", ".jpeg", ".png")


def draw_regions(image: Image.Image, boxes_N4: npt.NDArray[Any], names: Sequence[str]) -> Image.Image:
    """Draw boxes (N, 4) in pixels and their names on a copy of an RGB image, the last on top; "" is a box alone."""
    drawn = image.copy()
    canvas = ImageDraw.Draw(drawn)
    size = max(10, max(image.size) // _FONT_SHARE)
    font = ImageFont.load_default(size)
    colours = [_HUES[number % len(_HUES)] for number in range(len(names))]
    corners = [(round(x1), round(y1), round(x2), round(y2)) for x1, y1, x2, y2 in boxes_N4.tolist()]
    for box, colour in zip(corners, colours, strict=True):
        canvas.rectangle(box, outline=colour, width=max(2, size // 6))
    for (x1, y1, _, _), name, colour in zip(corners, names, colours, strict=True):
        if name:
            left, top, right, bottom = canvas.textbbox((x1 + 2, y1 + 2), name, font=font)
            shift = min(0, image.width - 2 - int(right))  # back into the image
            canvas.rectangle((left + shift - 2, top - 1, right + shift + 2, bottom + 1), fill=colour)
            canvas.text((x1 + 2 + shift, y1 + 2), name, fill="white", font=font)
    return drawn


def region_names(labels: Mapping[str, npt.NDArray[Any]], objects: list[str], attributes: list[str]) -> list[str]:
    """Return the text on each box: attribute, object and the object's confidence, as far as they are known."""
    parts = []
    for label, names in (("attributes", attributes), ("objects", objects)):
        if names and label in labels:
            if int(labels[label].max()) >= len(names):
                raise ExtractorError(f"{label}: class {labels[label].max()}, and a list of {len(names)} names")
            parts.append([names[index] for index in labels[label]])
    if "object_scores" in labels:
        parts.append([f"{score:.2f}" for score in labels["object_scores"]])
    return [" ".join(words) for words in zip(*parts, strict=True)]


def read_names(path: Path) -> list[str]:
    """Read the names of classes from `objects_vocab.txt` or `attributes_vocab.txt`; of a line's synonyms the first."""
    with damage_as(ExtractorError, f"names {path} cannot be read", "name a text file with a class a line"):
        return [line.partition(",")[0].strip() for line in path.read_text(encoding="utf-8").splitlines()]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m preprocessing.features.draw_regions", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("source", help="file, or folder of files, as published")
    parser.add_argument("--form", required=True, choices=tuple(FORMS))
    parser.add_argument("--images", type=Path, required=True, help="folder of the photographs")
    parser.add_argument("--out", type=Path, required=True, help="folder of the drawings; made where it is not there")
    parser.add_argument("--objects", type=Path, help="names of the object classes, one a line")
    parser.add_argument("--attributes", type=Path, help="names of the attribute classes, one a line")
    parser.add_argument("--boxes", type=int, default=12, help="most confident boxes drawn on an image (default 12)")
    options = parser.parse_args(arguments)
    try:
        return _draw_all(options)
    except (ExtractorError, OSError) as error:
        sys.stderr.write(printable(f"error: {error}\n"))
        return 1


def _draw_all(options: argparse.Namespace) -> int:
    objects, attributes = ([] if path is None else read_names(path) for path in (options.objects, options.attributes))
    paths = (path for path in options.images.rglob("*") if path.suffix.lower() in _IMAGES)
    images = by_image_key(((str(path), None) for path in paths), "the photographs")
    options.out.mkdir(parents=True, exist_ok=True)
    drawn, skipped = 0, 0
    for image_id, found in entries(open_source(options.source, options.form)):
        try:
            if isinstance(found, ImageError):
                raise found
            _draw(image_id, found, images, options, objects, attributes)
            drawn += 1
        except ImageError as error:
            skipped += 1
            sys.stderr.write(printable(f"{image_id}: {error}\n"))
    sys.stdout.write(f"{options.out}: {drawn} drawings; {skipped} images left out\n")
    return 0 if drawn else 1


def _draw(
    image_id: str,
    found: PublishedRegions,
    images: Mapping[str, tuple[str, None]],
    options: argparse.Namespace,
    objects: list[str],
    attributes: list[str],
) -> None:
    """Draw one image; raises ImageError."""
    labels, key = found.regions.companions, image_key(image_id)
    if "boxes" not in labels:
        raise ImageError("no boxes")
    if key not in images:
        raise ImageError("no photograph")
    image, boxes_N4 = load_image(inside(str(options.images), images[key][0])), labels["boxes"]
    if found.image_size not in (None, image.size):
        raise ImageError(f"boxes for {found.image_size} pixels on a photograph of {image.size}")
    scores = labels.get("object_scores")
    # The most confident last, on top; without confidences the first ones.
    chosen = np.arange(len(boxes_N4))[: options.boxes] if scores is None else np.argsort(scores)[-options.boxes :]
    names = region_names(labels, objects, attributes) or [""] * len(boxes_N4)
    draw_regions(image, boxes_N4[chosen], [names[index] for index in chosen]).save(options.out / f"{key}.jpg")


if __name__ == "__main__":
    sys.exit(main())
