"""Tables that somebody has made, CSV, TSV or Parquet, and the reader of those with a row for each image and caption."""

import csv
import gzip
import io
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow.parquet

from preprocessing.datasets.checks import image_path, require_file, require_image_folder
from preprocessing.datasets.record import Caption, DatasetError, Record
from preprocessing.reading import damage_as
from preprocessing.storage.address import is_s3

SEPARATORS = {".csv": ",", ".tsv": "\t"}
# Characters: beyond any text of a web page, but far less than a table that is read as one value after a missing quote.
_LONGEST_VALUE = 1 << 24
_ROWS_AT_ONCE = 10_000


class TableDataset:
    """Tables of images and captions: one row a caption, or in Parquet a list of captions a row.

    The rows of an image stand together. An image's id is its value in the table; a caption's is ``IMAGE#N``. Rows are
    read as they come: memory holds about a hundred bytes an image, by which one that comes again is found.

    Args:
        tables: split -> ``.csv`` or ``.tsv`` with a header, ``.csv.gz``, ``.tsv.gz`` or ``.parquet``.
        images: folder, local or ``s3://bucket/folder``, that the images are relative to; without it every image is an
            absolute path or an ``s3://`` address.
        image_column: name of the images' column.
        caption_column: name of the captions' column.
    """

    def __init__(
        self,
        tables: Mapping[str, str | Path],
        images: str | Path | None = None,
        image_column: str = "image",
        caption_column: str = "caption",
    ) -> None:
        self._tables = {
            split: _require_table(path, f"table dataset, 'tables.{split}'") for split, path in tables.items()
        }
        self.splits = tuple(tables)
        self.root = "" if images is None else require_image_folder(images, "table dataset, 'images'")
        self._columns = (image_column, caption_column)

    def records(self, split: str) -> Iterator[Record]:
        """Yield the records of a split in the order of its table; a DatasetError names the malformed row."""
        path = self._tables[split]
        seen: set[str] = set()
        for image, rows in groupby(self._rows(path), key=lambda row: row[1]):
            of_image = list(rows)
            where = of_image[0][0]
            if image in seen:
                raise DatasetError(f"{where}: image {image!r} is there already; sort the table by its images")
            seen.add(image)
            texts = [text for _, _, captions in of_image for text in captions]
            captions = tuple(Caption(f"{image}#{order}", text) for order, text in enumerate(texts))
            yield Record(image, self._uri(image, where), split, captions)
        if not seen:
            raise DatasetError(f"{path}: the table of split {split!r} has no rows")

    def _rows(self, path: Path) -> Iterator[tuple[str, str, list[str]]]:
        remedy = "name the columns of images and captions as 'image_column' and 'caption_column'"
        for number, (image, captions) in read_rows(path, self._columns, remedy):
            where = f"{path}, row {number}"
            if not isinstance(image, str) or not image:
                raise DatasetError(f"{where}: {self._columns[0]!r} is {image!r}, an image's address is needed")
            # A missing caption is an empty one, which is skipped and counted when shards are made.
            texts = [text or "" for text in (captions if isinstance(captions, list) else [captions])]
            if not all(isinstance(text, str) for text in texts):
                raise DatasetError(f"{where}: {self._columns[1]!r} is {captions!r:.80}, text is needed")
            yield where, image, texts

    def _uri(self, image: str, where: str) -> str:
        if self.root:
            return image_path(self.root, image, where)
        if not (is_s3(image) or image.startswith("/")):
            raise DatasetError(f"{where}: {image!r} is neither an absolute path nor an s3:// address; set 'images'")
        return image


def read_columns(path: Path, names: Sequence[str]) -> list[list[str]]:
    """Return columns as lists of texts, without the rows in which one is missing; raise as :func:`read_rows` does."""
    rows = (values for _, values in read_rows(_require_table(path, "table"), names, "add the column"))
    complete = [values for values in rows if all(value not in (None, "") for value in values)]
    return [[str(values[index]) for values in complete] for index in range(len(names))]


def read_rows(path: Path, columns: Sequence[str], remedy: str) -> Iterator[tuple[int, list[Any]]]:
    """Yield each row's number (the header is row 1 of a text file) and its values in these columns.

    A DatasetError names what is malformed; `remedy` says what to do about a missing column.
    """
    read = _parquet_rows if path.suffix.lower() == ".parquet" else _text_rows
    return read(path, columns, remedy)


def _text_rows(path: Path, columns: Sequence[str], remedy: str) -> Iterator[tuple[int, list[Any]]]:
    csv.field_size_limit(_LONGEST_VALUE)
    with (
        damage_as(DatasetError, f"{path}: not a table in utf-8", "copy it again, or convert it"),
        gzip.open(path) if path.suffix == ".gz" else path.open("rb") as raw,
    ):
        text = io.TextIOWrapper(raw, encoding="utf-8-sig", newline="")
        # Strict: a quote that is never closed would otherwise take the rest of the file into one caption.
        rows = csv.reader(text, delimiter=SEPARATORS[_kind(path)], strict=True)
        try:
            header = next(rows, [])
            indices = _indices(path, header, columns, remedy)
            for number, row in enumerate(rows, start=2):
                if row and len(row) != len(header):
                    found = f"{len(row)} values under a header of {len(header)}"
                    raise DatasetError(f"{path}, row {number}: {found}; quote those with separators or line ends")
                if row:
                    yield number, [row[index] for index in indices]
        except csv.Error as error:
            raise DatasetError(
                f"{path}, line {rows.line_num}: {error}; put a value that begins with a quote, or holds separators or "
                "line ends, in quotes, and double each quote in it"
            ) from error


def _parquet_rows(path: Path, columns: Sequence[str], remedy: str) -> Iterator[tuple[int, list[Any]]]:
    with damage_as(DatasetError, f"{path}: not a parquet file that can be read", "copy it again"):
        file = pyarrow.parquet.ParquetFile(path)
        _indices(path, file.schema_arrow.names, columns, remedy)
        number = 0
        for batch in file.iter_batches(_ROWS_AT_ONCE, columns=list(columns)):
            for values in zip(*(batch.column(column).to_pylist() for column in columns), strict=True):
                number += 1
                yield number, list(values)


def _indices(path: Path, header: list[str], columns: Sequence[str], remedy: str) -> list[int]:
    for column in columns:
        if column not in header:
            known = ", ".join(header)[:300] or "no header"
            raise DatasetError(f"{path}: no column {column!r}; it has {known}; {remedy}")
        if header.count(column) > 1:
            raise DatasetError(f"{path}: {header.count(column)} columns are called {column!r}; rename all but one")
    return [header.index(column) for column in columns]


def _require_table(path: str | Path, what: str) -> Path:
    file = require_file(path, what)
    if _kind(file) not in (*SEPARATORS, ".parquet") or file.name.endswith(".parquet.gz"):
        raise DatasetError(f"{file} is not a table: .csv, .tsv (both also .gz) and .parquet are read")
    return file


def _kind(path: Path) -> str:
    return Path(path.name.removesuffix(".gz")).suffix.lower()
