"""Readers of benchmarks of composition: which of similar captions is an image's, and which of two images a caption's.

Each is a folder with the published annotations and, in its folder ``images``, the images that they name.
"""

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from preprocessing.datasets.checks import (
    image_path,
    numbered_lines,
    read_json,
    require_field,
    require_folder,
)
from preprocessing.datasets.record import DatasetError
from preprocessing.reading import damage_as, parse_json

Box = tuple[int, int, int, int]
"""Left, top, right and bottom of the part of an image that is shown, in pixels."""
Image = tuple[str, Box | None]
"""The address of an image, and its part that is shown, if not all."""

_SUGARCREPE = ("add_obj", "add_att", "replace_obj", "replace_att", "replace_rel", "swap_obj", "swap_att")
_ARO = {"relation": "visual_genome_relation.json", "attribution": "visual_genome_attribution.json"}
# Relations that the released evaluation leaves out as they mean the same, or nothing, with the nouns swapped.
_LEFT_OUT = Path(__file__).with_name("aro_left_out.txt")
_FEWEST_OF_ATTRIBUTES = 25


@dataclass(frozen=True, slots=True)
class Choice:
    """Images and captions to be told apart: the first image's caption is the first, the second's the second.

    `item` is the place in the benchmark ("add_obj/12"), `subset` its part, "" where it has none; accuracies of the
    groups of a subset are averaged.
    """

    item: str
    subset: str
    group: str
    images: tuple[Image, ...]
    captions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A benchmark: its title, its annotations' files, of which some may be absent, and the reader of one of them."""

    title: str
    files: tuple[str, ...]
    read: Callable[[Path], Iterator[Choice]]

    def present(self, folder: str | Path) -> list[Path]:
        """Return the files of annotations; raise DatasetError where there is none, or no folder of images."""
        absolute = require_folder(folder, self.title)
        require_folder(absolute / "images", f"{self.title}, images")
        found = [absolute / name for name in self.files if (absolute / name).is_file()]
        if not found:
            raise DatasetError(
                f"{self.title}: {absolute} has no {' or '.join(self.files)}; copy the published files there"
            )
        return found

    def choices(self, folder: str | Path) -> list[Choice]:
        """Read all annotations; a DatasetError names the malformed entry, or the first image that is missing."""
        choices = [choice for file in self.present(folder) for choice in self.read(file)]
        if not choices:
            raise DatasetError(f"{self.title}: {folder} has no entry that is evaluated; copy the published files there")
        images = dict.fromkeys(path for choice in choices for path, _ in choice.images)
        missing = [path for path in images if not os.path.isfile(path)]  # noqa: PTH113 - False for names that no file can have
        if missing:
            raise DatasetError(
                f"{self.title}: {len(missing):,} of {len(images):,} images are not there, such as {missing[0]}; put "
                "the images that the annotations name into that folder, or a link to them in its place"
            )
        return choices


def _sugarcrepe(file: Path) -> Iterator[Choice]:
    """Yield an image with its caption and a false one (Hsieh et al. 2023)."""
    for key, entry in read_json(file, dict).items():
        where = f"{file}: {key}"
        captions = (_text(entry, "caption", where), _text(entry, "negative_caption", where))
        yield Choice(f"{file.stem}/{key}", file.stem, "", (_image(entry, "filename", file, where),), captions)


def _winoground(file: Path) -> Iterator[Choice]:
    """Yield two images and their captions of the same words (Thrush et al. 2022); names of images without ending."""
    for number, line in numbered_lines(file):
        where = f"{file}:{number}"
        with damage_as(DatasetError, f"{where}: not JSON", "download it again"):
            entry = parse_json(line)
        first, second = (_image(entry, f"image_{place}", file, where, ".png") for place in (0, 1))
        captions = (_text(entry, "caption_0", where), _text(entry, "caption_1", where))
        yield Choice(str(require_field(entry, "id", int, where)), "", "", (first, second), captions)


def _aro(file: Path) -> Iterator[Choice]:
    """Yield part of an image with its caption and a false one (Yuksekgonul et al. 2023), by relation or attributes.

    As in the released evaluation, relations without a direction and rare pairs of attributes are left out.
    """
    subset = next(name for name, published in _ARO.items() if published == file.name)
    content = read_json(file, list)
    groups = [_aro_group(entry, subset, f"{file}: [{place}]") for place, entry in enumerate(content)]
    counts, undirected = Counter(groups), set(_LEFT_OUT.read_text(encoding="utf-8").splitlines())
    for place, (entry, group) in enumerate(zip(content, groups, strict=True)):
        if counts[group] < _FEWEST_OF_ATTRIBUTES if subset == "attribution" else group in undirected:
            continue
        where = f"{file}: [{place}]"
        left, top, width, height = (require_field(entry, f"bbox_{side}", int, where) for side in "xywh")
        if width < 1 or height < 1:
            raise DatasetError(f"{where}: the box is {width} x {height} pixels; download the file again")
        path, _ = _image(entry, "image_path", file, where)
        captions = (_text(entry, "true_caption", where), _text(entry, "false_caption", where))
        box = (left, top, left + width, top + height)
        yield Choice(f"{subset}/{place}", subset, group, ((path, box),), captions)


def _aro_group(entry: Any, subset: str, where: str) -> str:
    if subset == "relation":
        return _text(entry, "relation_name", where)
    attributes: Sequence[object] = require_field(entry, "attributes", list, where)
    return json.dumps(attributes, ensure_ascii=False)


def _text(entry: Any, field: str, where: str) -> str:
    text: str = require_field(entry, field, str, where)
    if not text.strip():
        raise DatasetError(f"{where}: the field {field!r} is empty; download the file again")
    with damage_as(DatasetError, f"{where}: the field {field!r} is no text", "download the file again"):
        text.encode()  # halves of characters
    return text


def _image(entry: Any, field: str, file: Path, where: str, ending: str = "") -> Image:
    return image_path(str(file.parent / "images"), _text(entry, field, where) + ending, where), None


BENCHMARKS = {
    "sugarcrepe": Benchmark("SugarCrepe", tuple(f"{name}.json" for name in _SUGARCREPE), _sugarcrepe),
    "winoground": Benchmark("Winoground", ("examples.jsonl",), _winoground),
    "aro": Benchmark("ARO", tuple(_ARO.values()), _aro),
}
