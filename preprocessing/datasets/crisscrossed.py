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


def crisscrossed_files(folder: str | Path, split: str) -> tuple[Path, Path, Path]:
    """Return the three files of a split, sis, sts and sits; raise DatasetError if one is missing."""
    if split not in SPLIT_NAMES:
        raise DatasetError(f"Crisscrossed Captions rates dev and test of Karpathy's split of COCO, not {split!r}")
    absolute = require_folder(folder, "Crisscrossed Captions")
    sis, sts, sits = (
        require_file(absolute / f"{kind}_{SPLIT_NAMES[split]}.csv", "Crisscrossed Captions")
        for kind in ("sis", "sts", "sits")
    )
    return sis, sts, sits


def read_crisscrossed(folder: str | Path, split: str) -> Crisscrossed:
    """Read the ratings of a split, `dev` or `test`, in the order of the files; a DatasetError names the line."""
    sis, sts, sits = crisscrossed_files(folder, split)
    return Crisscrossed(
        tuple(_ratings(sis, ("image1", _IMAGE), ("image2", _IMAGE))),
        tuple(_ratings(sts, ("caption1", _CAPTION), ("caption2", _CAPTION))),
        tuple(_ratings(sits, ("caption", _CAPTION), ("image", _IMAGE))),
    )


def _ratings(file: Path, first: tuple[str, re.Pattern[str]], second: tuple[str, re.Pattern[str]]) -> Iterator[Rating]:
    columns = [first[0], second[0], "agg_score"]
    for number, (one, other, score) in read_rows(file, columns, "take the file without '_raw' from the release"):
        where = f"{file}, row {number}"
        ids = [_identifier(name, *column, where) for name, column in ((one, first), (other, second))]
        yield Rating(ids[0], ids[1], _score(score, where))


def _identifier(name: str, column: str, pattern: re.Pattern[str], where: str) -> str:
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
