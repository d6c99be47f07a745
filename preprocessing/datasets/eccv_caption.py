"""Reader of ECCV Caption: relevant captions and images of COCO's test split that people have confirmed.

The files are those of https://github.com/naver-ai/eccv-caption, ``eccv_caption/data/``: for 1,261 images their
captions, and for 1,332 captions their images, by the ids of the Karpathy reader (`cocoid`, `sentid`).
"""

from pathlib import Path

from preprocessing.datasets.checks import read_json, require_file, require_folder
from preprocessing.datasets.record import DatasetError

_FILES = ("eccv_image_to_caption.json", "eccv_caption_to_image.json")

IdPair = tuple[str, str]


def eccv_files(folder: str | Path) -> tuple[Path, Path]:
    """Return the two files, queries by image and by caption; raise DatasetError where one is missing."""
    absolute = require_folder(folder, "ECCV Caption")
    images, captions = (require_file(absolute / name, "ECCV Caption") for name in _FILES)
    return images, captions


def read_eccv(folder: str | Path) -> tuple[list[IdPair], list[IdPair]]:
    """Return pairs of an image and a relevant caption, and of a caption and a relevant image, each once."""
    images, captions = map(_pairs, eccv_files(folder))
    return images, captions


def _pairs(file: Path) -> list[IdPair]:
    pairs = []
    for query, items in read_json(file, dict).items():
        if not isinstance(items, list) or not items or not all(type(item) is int for item in items):
            raise DatasetError(f"{file}: {query} holds {items!r:.80}, a list of ids is needed; download it again")
        pairs += [(query, str(item)) for item in dict.fromkeys(items)]
    return pairs
