"""The images to index: those of a folder, local or on S3, or of a table."""

import os
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from pipelines.retrieval.filters import is_plain
from pipelines.runtime.stage import StageError
from preprocessing.datasets.table import SEPARATORS, read_columns
from preprocessing.plain_text import is_text
from preprocessing.reading import damage_as
from preprocessing.storage.address import is_s3, join
from preprocessing.storage.base import Entry
from preprocessing.storage.opening import open_storage

_SUFFIXES = (".jpg", ".jpeg", ".png", ".gif", ".webp", ".bmp", ".dib", ".tif", ".tiff", ".ppm", ".jp2", ".avif")
IMAGE = "image"


class ImageFile(NamedTuple):
    """An image of a folder or table; its version is another one when the file has changed."""

    image_id: str
    image_uri: str
    version: str

    @property
    def fault(self) -> str:
        """The reason why no attempt to read it can succeed, or ""."""
        if not self.version:
            return "no such file, or its folder may not be entered"
        if not is_text(self.image_uri):
            return "its path is not UTF-8; rename it"
        return "" if is_s3(self.image_uri) or os.access(self.image_uri, os.R_OK) else "no permission to read it"


def list_images(address: str) -> tuple[list[ImageFile], int]:
    """Return the images of a folder at any depth, or of a table's column `image`, by id, and the number of other files.

    An image's id is its name in the folder, or its value in the table, which is relative to the table's folder or an
    address of its own. Raises StageError if there are no images, or a table cannot be read.
    """
    suffix = Path(address).suffix.lower()
    if suffix in (*SEPARATORS, ".parquet") and not is_s3(address):
        images, others = _of_table(Path(address)), 0
    elif is_s3(address) or Path(address).is_dir():
        entries = list(open_storage(address).list())
        found = [entry for entry in entries if Path(entry.name).suffix.lower() in _SUFFIXES]
        images = [ImageFile(entry.name, join(address, entry.name), _version(entry)) for entry in found]
        others = len(entries) - len(images)
    else:
        raise StageError(f"--images {address}: no folder or table (.csv, .tsv, .parquet) is there")
    if not images:
        raise StageError(f"--images {address}: there are no images ({others:,} other files); is the folder mounted?")
    return sorted(images), others


def read_metadata(address: str) -> tuple[pa.Table | None, list[str]]:
    """Return a table of images with its further columns, and the names of columns that no condition can name.

    Of an image that comes several times the first row counts. A folder has no table (None). The values of text files
    get types by their looks.
    """
    suffix, path = Path(address).suffix.lower(), Path(address)
    if suffix not in (*SEPARATORS, ".parquet") or is_s3(address):
        return None, []
    with damage_as(StageError, f"--images {path}: the columns cannot be read", "correct the table"):
        if suffix == ".parquet":
            table = pyarrow.parquet.read_table(path)
        else:
            table = pyarrow.csv.read_csv(
                path,
                parse_options=pyarrow.csv.ParseOptions(delimiter=SEPARATORS[suffix], newlines_in_values=True),
                convert_options=pyarrow.csv.ConvertOptions(
                    column_types={IMAGE: pa.string()}, null_values=[""], strings_can_be_null=True
                ),
            )
        for place, field in enumerate(table.schema):
            if pa.types.is_dictionary(field.type):
                table = table.set_column(place, field.name, table[place].cast(field.type.value_type))
        ids = [None if name in (None, "") else str(name) for name in table[IMAGE].to_pylist()]
        others = [field.name for field in table.schema if field.name != IMAGE and not is_plain(field.type)]
        first = {name: row for row, name in reversed(list(enumerate(ids))) if name is not None}
        table = table.drop_columns([IMAGE, *others]).take(pa.array(first.values(), pa.int64()))
        return table.add_column(0, IMAGE, pa.array(first, pa.string())), others


def _of_table(path: Path) -> list[ImageFile]:
    """Read a table; an image that is not there has an empty version."""
    try:
        (names,) = read_columns(path, [IMAGE])
    except ValueError as error:
        raise StageError(f"--images {path}: {error}") from error
    return [_of_row(name, path.parent) for name in dict.fromkeys(names)]


def _of_row(name: str, folder: Path) -> ImageFile:
    uri = name if is_s3(name) else str(folder / name)
    parent, _, file = uri.rpartition("/")
    try:
        entry = open_storage(parent).find(file)
    except OSError:  # a name that no file can have, or a folder that may not be entered
        entry = None
    return ImageFile(name, uri, "" if entry is None else _version(entry))


def _version(entry: Entry) -> str:
    return f"{entry.bytes}-{entry.version}"
