"""Reader of tables with a row for each image and caption: CSV, TSV or parquet."""

import csv
import gzip
import io
from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

from preprocessing.datasets.checks import image_path, require_file, require_image_folder, require_split
from preprocessing.datasets.record import Caption, DatasetError, Record
from preprocessing.reading import damage_as
from preprocessing.storage import is_s3

_SEPARATORS = {".csv": ",", ".tsv": "\t"}
# Characters: beyond any text of a web page, but far less than a table that is read as one value after a missing quote.
_LONGEST_VALUE = 1 << 24
_ROWS_AT_ONCE = 10_000


class TableDataset:
    """Tables of images and captions: one row a caption, or in parquet a list of captions a row.

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
        self._tables = {split: require_file(path, f"table dataset, 'tables.{split}'") for split, path in tables.items()}
        self.splits = tuple(tables)
        for path in self._tables.values():
            if path.suffix != ".parquet" and _kind(path) not in _SEPARATORS:
                raise DatasetError(f"{path} is no table: .csv, .tsv (both also .gz) and .parquet are read")
        self.root = "" if images is None else require_image_folder(images, "table dataset, 'images'")
        self._columns = (image_column, caption_column)

    def records(self, split: str) -> Iterator[Record]:
        """Yield the records of a split in the order of its table; a DatasetError names the malformed row."""
        require_split(split, self.splits)
        path = self._tables[split]
        seen: set[str] = set()
        for image, rows in groupby(_rows(path, self._columns), key=lambda row: row[1]):
            of_image = list(rows)
            number = of_image[0][0]
            texts = [text for _, _, captions in of_image for text in captions]
            if image in seen:
                raise DatasetError(
                    f"{path}, row {number}: image {image!r} is there already, further up; sort the table by its images"
                )
            seen.add(image)
            yield Record(
                image,
                self._uri(image, f"{path}, row {number}"),
                split,
                tuple(Caption(f"{image}#{order}", text) for order, text in enumerate(texts)),
            )
        if not seen:
            raise DatasetError(f"{path}: the table of split {split!r} has no rows")

    def _uri(self, image: str, where: str) -> str:
        if self.root:
            return image_path(self.root, image, where)
        if not (is_s3(image) or image.startswith("/")):
            raise DatasetError(
                f"{where}: {image!r} is neither an absolute path nor an s3:// address; name the folder that it is "
                "relative to as 'images'"
            )
        return image


def _kind(path: Path) -> str:
    return Path(path.name.removesuffix(".gz")).suffix


def _rows(path: Path, columns: tuple[str, str]) -> Iterator[tuple[int, str, list[str]]]:
    """Yield of each row its number (the header is row 1 of a text file), its image, and its captions."""
    read = _parquet_rows if path.suffix == ".parquet" else _text_rows
    for number, image, captions in read(path, columns):
        if not isinstance(image, str) or not image:
            raise DatasetError(f"{path}, row {number}: {columns[0]!r} is {image!r}, an image's address is needed")
        # A missing caption is an empty one, which is skipped and counted where shards are made.
        texts = [text or "" for text in (captions if isinstance(captions, list) else [captions])]
        if not all(isinstance(text, str) for text in texts):
            raise DatasetError(f"{path}, row {number}: {columns[1]!r} is {captions!r:.80}, text is needed")
        yield number, image, texts


def _text_rows(path: Path, columns: tuple[str, str]) -> Iterator[tuple[int, Any, Any]]:
    csv.field_size_limit(_LONGEST_VALUE)
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as raw:
        text = io.TextIOWrapper(raw, encoding="utf-8-sig", newline="")
        # Strict: a quote that is never closed would otherwise take the rest of the file into one caption.
        rows = _split(path, csv.reader(text, delimiter=_SEPARATORS[_kind(path)], strict=True))
        with damage_as(DatasetError, f"{path}: not a table in utf-8", "copy it again, or convert it"):
            header = next(rows, [])
            places = [_place(path, header, column) for column in columns]
            for number, row in enumerate(rows, start=2):
                if not row:
                    continue
                if len(row) != len(header):
                    raise DatasetError(
                        f"{path}, row {number}: {len(row)} values under a header of {len(header)}; quote values that "
                        "hold separators or line ends"
                    )
                yield number, row[places[0]], row[places[1]]


def _split(path: Path, rows: Any) -> Iterator[list[str]]:
    """Yield the rows of a csv.reader; DatasetError names the line that is not as the format has it."""
    try:
        yield from rows
    except csv.Error as error:
        raise DatasetError(
            f"{path}, line {rows.line_num}: {error}; put a value that begins with a quote, or holds separators or line "
            "ends, in quotes, and double each quote in it"
        ) from error


def _parquet_rows(path: Path, columns: tuple[str, str]) -> Iterator[tuple[int, Any, Any]]:
    from pyarrow import parquet

    with damage_as(DatasetError, f"{path}: not a parquet file that can be read", "copy it again"):
        file = parquet.ParquetFile(path)
        for column in columns:
            _place(path, file.schema_arrow.names, column)
        number = 0
        for batch in file.iter_batches(_ROWS_AT_ONCE, columns=list(columns)):
            for image, captions in zip(*(batch.column(column).to_pylist() for column in columns), strict=True):
                number += 1
                yield number, image, captions


def _place(path: Path, header: list[str], column: str) -> int:
    if column not in header:
        raise DatasetError(
            f"{path}: no column {column!r}; it has {', '.join(header)[:300] or 'no header'}; name the columns of "
            "images and captions as 'image_column' and 'caption_column'"
        )
    if header.count(column) > 1:
        raise DatasetError(f"{path}: the column {column!r} is there {header.count(column)} times; rename all but one")
    return header.index(column)
