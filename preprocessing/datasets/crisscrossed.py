"""Reader of Crisscrossed Captions: human similarity ratings of pairs of COCO's images and captions.

The files are those of https://github.com/google-research-datasets/Crisscrossed-Captions, ``data/``: sis (pairs of
images), sts (pairs of captions) and sits (captions with images), one of each for Karpathy's val and test split.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from preprocessing.datasets.checks import require_file, require_folder
from preprocessing.datasets.record import DatasetError
from preprocessing.datasets.table import read_rows

# Our name of a split -> the files' own.
SPLIT_NAMES = {"dev": "val", "test": "test"}
# Kind of rating -> its files' columns of the two that are compared.
_COLUMNS = {"sis": ("image1", "image2"), "sts": ("caption1", "caption2"), "sits": ("caption", "image")}
_IMAGE = re.compile(r"COCO_(?:train|val)2014_0*(\d+)\.jpg")
_CAPTION = re.compile(r"COCO_(?:train|val)2014:sentid:(\d+)")


class Rating(NamedTuple):
    """A pair of ids of the Karpathy reader (`cocoid`, `sentid`), and its mean rating from 0 to 5, the same."""

    first: str
    second: str
    score: float


class Crisscrossed(NamedTuple):
    """The ratings of one split: pairs of images (SIS), of captions (STS), and of a caption and an image (SITS)."""

    images: tuple[Rating, ...]
    captions: tuple[Rating, ...]
    captions_images: tuple[Rating, ...]


def crisscrossed_files(folder: str | Path, split: str) -> list[Path]:
    """Return the three files of a split, sis, sts and sits; raise DatasetError if one is missing."""
    if split not in SPLIT_NAMES:
        raise DatasetError(f"Crisscrossed Captions rates dev and test of Karpathy's split of COCO, not {split!r}")
    absolute = require_folder(folder, "Crisscrossed Captions")
    names = (f"{kind}_{SPLIT_NAMES[split]}.csv" for kind in _COLUMNS)
    return [require_file(absolute / name, "Crisscrossed Captions") for name in names]


def read_crisscrossed(folder: str | Path, split: str) -> Crisscrossed:
    """Read the ratings of a split, `dev` or `test`, in the order of the files; a DatasetError names the line."""
    files = zip(crisscrossed_files(folder, split), _COLUMNS.values(), strict=True)
    return Crisscrossed(*(tuple(_ratings(file, *columns)) for file, columns in files))


def _ratings(file: Path, first: str, second: str) -> Iterator[Rating]:
    columns = (first, second, "agg_score")
    for number, (one, other, score) in read_rows(file, columns, "take the file without '_raw' from the release"):
        where = f"{file}, row {number}"
        yield Rating(_identifier(one, first, where), _identifier(other, second, where), _score(score, where))


def _identifier(name: str, column: str, where: str) -> str:
    pattern = _IMAGE if column.startswith("image") else _CAPTION
    match = pattern.fullmatch(name)
    if match is None:
        raise DatasetError(f"{where}: {column} is {name!r}, expected a name as in {pattern.pattern!r}")
    return match[1]


def _score(text: str, where: str) -> float:
    try:
        score = float(text)
    except ValueError:
        score = -1.0
    if not 0 <= score <= 5:
        raise DatasetError(f"{where}: agg_score is {text!r}, a number from 0 to 5 is needed")
    return score
