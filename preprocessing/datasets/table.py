"""Tables that somebody has made, CSV, TSV, JSON lines or Parquet, and the reader of those of images and captions.

Separators and encodings of CSV and TSV are recognised: programs write what the country of their user has.
"""

import csv
import gzip
import io
import itertools
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path, PurePath
from typing import Any, BinaryIO, cast

import pyarrow.parquet

from preprocessing.datasets.checks import image_path, require_file, require_image_folder
from preprocessing.datasets.record import Caption, DatasetError, Record
from preprocessing.reading import damage_as, parse_json
from preprocessing.shares import parse_share, position
from preprocessing.storage.address import is_s3
from preprocessing.storage.opening import open_address, open_storage

_warn_once = cache(logging.getLogger(__name__).warning)

TABLES = (".csv", ".tsv", ".jsonl", ".parquet")
_SEPARATORS = {".csv": ",", ".tsv": "\t"}
# Bytes by which an encoding is recognised, up to the end of their line.
_HEAD = 1 << 20
# Characters: beyond any text of a web page, but far less than a table that is read as one value after a missing quote.
_LONGEST_VALUE = 1 << 24
_ROWS_AT_ONCE = 10_000


class TableDataset:
    """Tables of images and captions, in any order: a row for each caption, or several columns or lists of them.

    An image's id is its value in the table; a caption's is ``IMAGE#N``. Memory holds the captions of a table.

    `tables` has for each split a path or ``s3://`` address, or a share, ``10 %``, of the images of the first split that
    has a table. An image belongs to a share or not by a hash of its id and the seed: a table that grows moves none to
    another split. Images are relative to the folder `images`, local or ``s3://bucket/folder``, by default that of their
    table; absolute paths and ``s3://`` addresses need none. `split_column` has the split of each row.
    """

    def __init__(
        self,
        tables: Mapping[str, str | Path],
        images: str | Path | None = None,
        image_column: str = "image",
        caption_column: str | Sequence[str] = "caption",
        share_seed: int = 0,
        split_column: str | None = None,
    ) -> None:
        shares = {split: share for split, text in tables.items() if (share := parse_share(text)) is not None}
        self._tables = {
            split: require_table(path, f"table dataset, 'tables.{split}'")
            for split, path in tables.items()
            if split not in shares
        }
        if not self._tables:
            raise DatasetError("table dataset, 'tables': all splits are shares; name the table of one of them")
        whole, used = next(iter(self._tables)), 0.0
        # The part of the hashes that belongs to a split.
        self._parts = dict.fromkeys(self._tables, (0.0, 1.0))
        for split, share in shares.items():
            self._tables[split], self._parts[split] = self._tables[whole], (used, used + share)
            used += share
        if used >= 1:
            raise DatasetError(f"table dataset, 'tables': the shares leave nothing of {whole!r}; make them smaller")
        self._parts[whole] = (used, 1.0)
        self._seed = share_seed
        self.splits = tuple(tables)
        self.root = "" if images is None else require_image_folder(images, "table dataset, 'images'")
        captions = [caption_column] if isinstance(caption_column, str) else list(caption_column)
        self._columns = [image_column, *captions]
        self._split_column = split_column

    def records(self, split: str) -> Iterator[Record]:
        """Yield the records of a split in the order of their first rows; a DatasetError names the malformed row."""
        path, (low, high) = self._tables[split], self._parts[split]
        texts: dict[str, tuple[str, list[str]]] = {}
        for where, image, captions in self._rows(path, split):
            texts.setdefault(image, (where, []))[1].extend(captions)
        if not texts:
            raise DatasetError(f"{path}: the table of split {split!r} has no rows{self._other_splits(path)}")
        is_whole = (low, high) == (0.0, 1.0)
        chosen = [image for image in texts if is_whole or low <= position(image, self._seed) < high]
        if not chosen:
            raise DatasetError(f"{path}: none of {len(texts):,} images falls to {split!r}; make its share larger")
        for image in chosen:
            where, own = texts[image]
            numbered = tuple(Caption(f"{image}#{order}", text) for order, text in enumerate(own))
            yield Record(image, self._uri(path, image, where), split, numbered)

    def _rows(self, path: str, split: str) -> Iterator[tuple[str, str, list[str]]]:
        remedy = "name the columns of images and captions as 'image_column' and 'caption_column'"
        column = [] if self._split_column is None else [self._split_column]
        for number, (image, *cells) in read_rows(path, self._columns + column, remedy):
            where = f"{path}, row {number}"
            if column and cells.pop() != split:
                continue
            if not isinstance(image, str) or not image:
                raise DatasetError(f"{where}: {self._columns[0]!r} is {image!r}, an image's address is needed")
            # A missing caption is an empty one, which is skipped and counted when shards are made.
            texts = [text or "" for cell in cells for text in (cell if isinstance(cell, list) else [cell])]
            for text in texts:
                if not isinstance(text, str):
                    raise DatasetError(f"{where}: {', '.join(self._columns[1:])!r} is {text!r:.80}, text is needed")
            # Of several columns the later ones may be empty.
            yield where, image, [text for text in texts if text] or texts[:1] if len(cells) > 1 else texts

    def _other_splits(self, path: str) -> str:
        """Return what the column of splits says instead, for the message."""
        if self._split_column is None:
            return ""
        names = sorted({str(value) for _, (value,) in read_rows(path, [self._split_column], "correct the name")})
        return f" of it; the column {self._split_column!r} has {', '.join(names)[:300] or 'nothing'}"

    def _uri(self, table: str, image: str, where: str) -> str:
        if not self.root and (is_s3(image) or image.startswith("/")):
            return image
        return image_path(self.root or folder_of(table), image, where)


def is_table(address: str) -> bool:
    """Return whether an address is that of a table, by its name."""
    return _kind(address) in TABLES and not address.endswith(".parquet.gz")


def folder_of(table: str) -> str:
    """Return the folder that a table lies in."""
    return table.rpartition("/")[0]


def read_columns(path: str | Path, names: Sequence[str]) -> list[list[str]]:
    """Return columns as lists of texts, without the rows in which one is missing; raise as :func:`read_rows` does."""
    rows = (values for _, values in read_rows(require_table(path, "table"), names, "add the column"))
    complete = [values for values in rows if all(value not in (None, "") for value in values)]
    return [[str(values[index]) for values in complete] for index in range(len(names))]


def read_rows(path: str | Path, columns: Sequence[str], remedy: str) -> Iterator[tuple[int, list[Any]]]:
    """Yield each row's number (the header is row 1 of a text file) and its values in these columns.

    A DatasetError names what is malformed; `remedy` says what to do about a missing column.
    """
    with _opened_rows(str(path), columns) as (header, rows):
        for column in columns:
            if column not in header:
                known = ", ".join(header)[:300] or "no header"
                raise DatasetError(f"{path}: no column {column!r}; it has {known}; {remedy}")
            if header.count(column) > 1:
                raise DatasetError(f"{path}: {header.count(column)} columns are called {column!r}; rename all but one")
        indices = [header.index(column) for column in columns]
        for number, row in rows:
            yield number, [row[index] for index in indices]


def read_header(path: str) -> list[str]:
    """Return the names of a table's columns, of JSON lines those of the first; DatasetError if it cannot be read."""
    with _opened_rows(path, ()) as (header, _):
        return header


@contextmanager
def _opened_rows(path: str, columns: Sequence[str]) -> Iterator[tuple[list[str], Iterator[tuple[int, Sequence[Any]]]]]:
    """Open a table for its header and the numbered rows; of a Parquet file the other columns are not read."""
    damage = damage_as(DatasetError, f"{path}: not a table that can be read", "copy it again, or convert it to UTF-8")
    with damage, open_table(path) as raw:
        if _kind(path) == ".parquet":
            file = pyarrow.parquet.ParquetFile(raw)
            names = list(file.schema_arrow.names)
            header = list(columns) if all(names.count(name) == 1 for name in columns) else names
            batches = file.iter_batches(_ROWS_AT_ONCE, columns=header)
            parts = ([batch.column(name).to_pylist() for name in header] for batch in batches)
            yield header or names, enumerate((row for part in parts for row in zip(*part, strict=True)), start=1)
        elif _kind(path) == ".jsonl":
            rows = json_rows(path, raw)
            first = next(rows, (0, {}))
            header = [*first[1], *sorted(_later_keys(path, set(columns) - set(first[1])))]
            objects = itertools.chain([first], rows)
            yield header, ((number, list(map(row.get, header))) for number, row in objects if row)
        else:
            encoding, separator = text_form(path, columns)
            # Strict: a quote that is never closed would otherwise take the rest of the file into one caption.
            text = io.TextIOWrapper(raw, encoding=encoding, newline="")
            reader = csv.reader(text, delimiter=separator, strict=True)
            header = next(reader, [])
            yield header, _text_rows(path, reader, len(header))


def json_rows(path: str, lines: Iterable[bytes]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the number and the object of each line of JSON lines; a DatasetError names one that has none."""
    return ((number, _json_object(path, number, line)) for number, line in enumerate(lines, start=1) if line.strip())


def _later_keys(path: str, names: set[str]) -> set[str]:
    """Return which of these names some line of JSON lines has."""
    missing = set(names)
    if missing:
        with open_table(path) as raw:
            for _, row in json_rows(path, raw):
                missing -= row.keys()
                if not missing:
                    break
    return names - missing


@contextmanager
def open_table(path: str) -> Iterator[BinaryIO]:
    """Open a table, here or on S3, decompressed."""
    with open_address(path) as raw:
        if not path.endswith(".gz"):
            yield raw
            return
        with gzip.open(raw) as unpacked:
            yield cast(BinaryIO, unpacked)


def text_form(path: str, columns: Sequence[str]) -> tuple[str, str]:
    """Return encoding and separator of a text file: the separator by which its first line has the (most) columns."""
    with open_table(path) as file:
        parts = iter(lambda: file.read(_HEAD) + file.readline(_LONGEST_VALUE), b"")
        head = next(parts, b"")
        # ASCII is the same in all encodings: the first part with other letters tells which one it is.
        encoding = _encoding(path, next((part for part in itertools.chain([head], parts) if not part.isascii()), b""))
    line = re.split(r"[\r\n]", head.decode(encoding, errors="replace"), maxsplit=1)[0]

    def fit(separator: str) -> tuple[bool, int]:
        """Return whether the first line has all columns by this separator, and how many it has."""
        header = next(csv.reader([line], delimiter=separator), [])
        return set(columns) <= set(header), len(header)

    return encoding, max(dict.fromkeys((_SEPARATORS[_kind(path)], ",", ";", "\t", "|")), key=fit)


def _encoding(path: str, part: bytes) -> str:
    if part.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16"
    letters = [letter for letter in part.decode("utf-8", errors="surrogateescape") if letter > "\x7f"]
    # Some bytes of a text in UTF-8 may be damaged; in another encoding hardly any letter looks like UTF-8.
    if 2 * sum("\udc80" <= letter <= "\udcff" for letter in letters) <= len(letters):
        return "utf-8-sig"
    _warn_once("%s is not in UTF-8: read as Windows-1252", path)
    return "cp1252"


def _text_rows(path: str, reader: Any, width: int) -> Iterator[tuple[int, list[str]]]:
    csv.field_size_limit(_LONGEST_VALUE)
    try:
        for number, row in enumerate(reader, start=2):
            if row and len(row) != width:
                found = f"{len(row)} values under a header of {width}"
                raise DatasetError(f"{path}, row {number}: {found}; quote those with separators or line ends")
            if row:
                yield number, row
    except csv.Error as error:
        raise DatasetError(
            f"{path}, line {reader.line_num}: {error}; put a value that begins with a quote, or holds separators or "
            "line ends, in quotes, and double each quote in it"
        ) from error


def _json_object(path: str, number: int, line: bytes) -> dict[str, Any]:
    with damage_as(DatasetError, f"{path}, row {number}: not a JSON object", "write one object a line, in UTF-8"):
        # A caption with half a character is skipped by itself, when shards are made.
        return dict(parse_json(line, any_text=True, any_number=True))


def require_table(path: str | Path, what: str) -> str:
    """Return the address of an existing table; DatasetError if there is none, or of another kind of file."""
    address = str(path)
    if not is_s3(address):
        address = str(require_file(path, what))
    elif open_storage(folder_of(address)).find(address.rpartition("/")[2]) is None:
        raise DatasetError(f"{what}: {address} does not exist; correct the address")
    if not is_table(address):
        raise DatasetError(f"{address} is not a table: .csv, .tsv, .jsonl (all also .gz) and .parquet are read")
    return address


def _kind(path: str | Path) -> str:
    return PurePath(str(path).removesuffix(".gz")).suffix.lower()
