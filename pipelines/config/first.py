"""Write a configuration for a table of images and captions, and say what was assumed.

vse init photos.csv
"""

import os
import re
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import torch
import yaml

from pipelines.config import load_config
from pipelines.runtime.cli import CommandParser, run_command, say
from pipelines.runtime.commands import command
from pipelines.schema.error import ConfigError
from preprocessing.datasets.record import DatasetError
from preprocessing.datasets.table import folder_of, read_columns, read_header, read_rows, require_table
from preprocessing.storage.address import is_s3, join
from preprocessing.storage.opening import open_storage

_IMAGES = re.compile("image|photo|picture|file|path|url|img", re.I)
_CAPTIONS = re.compile("caption|text|sent|desc", re.I)
_SPLITS = re.compile("split|set|subset|partition", re.I)
_IMAGE_FILE = re.compile(r".+\.(jpe?g|png|webp|gif|bmp|tiff?)", re.I)
_DEVELOPMENT = ("dev", "val", "valid", "validation", "test")
# Rows that are looked at, and images below which each pair has to count.
_ROWS, _FEW = 1000, 20_000
_NETWORK = "microsoft/resnet-50"
_FOLDERS = ("", "images", "photos", "Images", "img", "data")


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line, write the configuration, and say what it assumes and what comes next."""
    parser = CommandParser()
    parser.add_argument("table", help="table of images and captions: .csv, .tsv, .jsonl (also .gz) or .parquet")
    parser.add_argument("--images", help="folder of the images, or s3://bucket/folder (default: looked for)")
    parser.add_argument("--output", type=Path, metavar="FILE", help="default: the table's name with .yaml, here")
    options = parser.parse_args(arguments)
    output = options.output or Path(f"{Path(options.table.removesuffix('.gz')).stem}.yaml")
    if output.exists():
        raise ConfigError(f"{output} is there already: remove it, or name another --output")
    try:
        content, assumed = first_config(require_table(options.table, "the table"), options.images, output.parent)
    except DatasetError as error:
        raise ConfigError(str(error)) from error
    text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(
        f"# Written by {command('init', options.table)}; relative paths start here.\n{text}", encoding="utf-8"
    )
    load_config(output)
    say("\n".join([f"{output} assumes:", *(f"  {line}" for line in assumed)]))
    say(f"Look at it, then: {command('full', '--config', str(output), '--dry-run')}, and without --dry-run")


def first_config(table: str, images: str | None, home: Path) -> tuple[dict[str, Any], list[str]]:
    """Return a configuration for a table, to be written into the folder `home`, and what it assumes.

    Raises ConfigError if the table has no column of images or of captions, or the images are not found.
    """
    header = read_header(table)
    rows = [row for _, row in islice(read_rows(table, header, "name it"), _ROWS)]
    if not rows:
        raise ConfigError(f"{table} has no rows below its header")
    values = {name: [row[place] for row in rows if row[place]] for place, name in enumerate(header)}
    image = _image_column(values)
    captions = _caption_columns(values, image)
    folder = images or _folder(table, values[image])
    tables, split_column, splits = _splits(table, values)
    count = len(set(read_columns(table, [image])[0]))
    preset, size = ("small_data", "fewer") if count < _FEW else ("vse_infty", "more")
    dataset: dict[str, Any] = {"format": "table", "tables": {split: _from(home, at) for split, at in tables.items()}}
    found = {
        "images": (_from(home, folder), ""),
        "image_column": (image, "image"),
        "caption_column": (captions if len(captions) > 1 else captions[0], "caption"),
        "split_column": (split_column, ""),
        "eval_split": (list(tables)[1], "dev"),
    }
    dataset |= {key: value for key, (value, usual) in found.items() if value != usual}
    name = re.sub(r"[^\w.-]+", "_", Path(table.removesuffix(".gz")).stem, flags=re.ASCII).lstrip("_.-") or "photos"
    features = {"extractor": "grid", "weights": _NETWORK}
    assumed = [
        f"images in the column {image!r}, {f'in {folder}' if folder else 'by their paths in the table'}: {count:,}",
        f"captions in {', '.join(map(repr, captions))}",
        splits,
        f"preset {preset}, as there are {size} than {_FEW:,} images",
        f"the network {_NETWORK} of the hub; or name a folder with one in features.weights",
    ]
    content = {"name": name, "preset": preset, "dataset": dataset, "features": features}
    # Not ARM's bf16, whose gain nobody has measured here.
    if torch.cpu.get_capabilities().get("avx512_bf16"):
        content["training"] = {"precision": "bf16"}
        assumed.append("training in bf16, which takes this processor half of float32's time, to the same RSUM")
    return content, assumed


def _from(home: Path, path: str) -> str:
    """Return a path as it is written into a file in `home`: complete if it was and leads out of there, or no path."""
    if not os.path.exists(path):  # noqa: PTH110 (False for a name too long)
        return path
    relative = os.path.relpath(path, home)
    return path if path.startswith("/") and relative.startswith("..") else relative


def _image_column(values: Mapping[str, Sequence[object]]) -> str:
    def share(name: str) -> float:
        """Return the share of a column's values that look like names of image files."""
        found = [isinstance(value, str) and bool(_IMAGE_FILE.fullmatch(value)) for value in values[name]]
        return sum(found) / max(1, len(found))

    best = max(values, key=lambda name: (share(name) > 0.5, bool(_IMAGES.search(name)), share(name)), default="")
    if not best or (share(best) <= 0.5 and not _IMAGES.search(best)):
        raise ConfigError(f"no column of image files among {', '.join(values) or 'none'}: call it 'image'")
    return best


def _caption_columns(values: Mapping[str, Sequence[object]], image: str) -> list[str]:
    def words(name: str) -> float:
        """Return the mean number of words in a column's texts."""
        texts = [text for value in values[name] for text in (value if isinstance(value, list) else [value])]
        return sum(len(str(text).split()) for text in texts) / max(1, len(texts))

    others = [name for name in values if name != image]
    named = [name for name in others if _CAPTIONS.search(name)]
    named = [name for name in named if words(name) > 1] or named[:1]
    longest = [name for name in others if words(name) > 3]
    if not named and not longest:
        raise ConfigError(f"no column of captions among {', '.join(others) or 'none'}: call it 'caption'")
    return named or [max(longest, key=words)]


def _folder(table: str, images: Sequence[object]) -> str:
    """Return the folder that most of some images are in, "" if their paths are complete."""
    names = [str(image) for image in images[:20]]
    if all(name.startswith("/") or is_s3(name) for name in names):
        return ""
    for folder in _FOLDERS:
        at = join(folder_of(table), folder) if folder else folder_of(table)
        if sum(open_storage(at).find(name) is not None for name in names) > len(names) / 2:
            return at or "."
    raise ConfigError(f"{names[0]} and others are not next to {table}: name their folder by --images")


def _splits(table: str, values: Mapping[str, Sequence[object]]) -> tuple[dict[str, str], str, str]:
    """Return the tables of the splits, the column that tells them if there is one, and what is said of them."""
    for column in filter(_SPLITS.fullmatch, values):
        for split in _DEVELOPMENT:
            if {"train", split} <= set(values[column]):
                return {"train": table, split: table}, column, f"splits train and {split} of the column {column!r}"
    folder, _, name = table.rpartition("/")
    for split in _DEVELOPMENT if "train" in name else ():
        other = name.replace("train", split)
        if open_storage(folder).find(other) is not None:
            return {"train": table, split: join(folder, other)}, "", f"trained on {name}, selected on {other}"
    return {"train": table, "dev": "10 %"}, "", "a tenth of the images to select the model on (dev: 10 %)"


if __name__ == "__main__":
    run_command(main)
