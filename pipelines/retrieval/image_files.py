"""The images to index: those of a folder or of a table, local or on S3, and the columns that tell more of them."""

import io
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet

from pipelines.retrieval.filters import is_plain
from pipelines.runtime.stage import StageError
from preprocessing.datasets.table import (
    folder_of,
    is_table,
    json_rows,
    open_table,
    read_columns,
    require_table,
    text_form,
)
from preprocessing.plain_text import is_text
from preprocessing.reading import damage_as
from preprocessing.storage.address import is_s3, join
from preprocessing.storage.base import Entry
from preprocessing.storage.opening import open_storage

_JPEG = (".jpg", ".jpeg", ".jpe", ".jfif")
_SUFFIXES = (*_JPEG, ".png", ".gif", ".webp", ".bmp", ".dib", ".tif", ".tiff", ".ppm", ".jp2", ".avif")
# Photographs of telephones, whose owners take them for images like the others.
_UNREAD = (".heic", ".heif")
IMAGE = "image"
# Bytes that Arrow reads at once: a row must not be longer.
_BLOCK = 1 << 25
# Codes in columns that Arrow takes for numbers: a zero before other digits, hexadecimal digits, a plus sign
# (telephones), or more digits than a double tells apart.
_CODES = {pa.types.is_integer: r"^\s*-?0[\dxX]", pa.types.is_floating: r"^\s*(\+\d{7,}\s*$|-?(0\d|\d{17,}\s*$))"}
# The end of a time that says its zone.
_ZONE = r"[T ]\d\d(:\d\d(:\d\d(\.\d+)?)?)?(Z|[+-]\d\d(:?\d\d)?)$"
_JSON = pyarrow.json.ReadOptions(block_size=_BLOCK)


class ImageFile(NamedTuple):
    """An image of a folder or table; its version is another one when the file has changed."""

    image_id: str
    image_uri: str
    version: str

    @property
    def fault(self) -> str:
        """The reason why no attempt to read it can succeed, or ""."""
        if self.image_id.startswith(("http://", "https://")):
            return "addresses of the web are not read; download it"
        if self.image_uri.lower().endswith(_UNREAD):
            return "a format that is not read; convert it to JPEG"
        if not self.version:
            return "no such file, or its folder may not be entered"
        if not is_text(self.image_uri):
            return "its path is not UTF-8; rename it"
        return "" if is_s3(self.image_uri) or os.access(self.image_uri, os.R_OK) else "no permission to read it"


def list_images(address: str) -> tuple[list[ImageFile], int]:
    """Return the images of a folder at any depth, or of a table's column `image`, by id, and the number of other files.

    Hidden files, and those in hidden folders, are left out: their names begin with a dot.

    An image's id is its name in the folder, or its value in the table, which is relative to the table's folder or an
    address of its own. Raises StageError if there are no images, or a table cannot be read.
    """
    if is_table(address):
        images, others = _of_table(address), 0
    elif is_s3(address) or Path(address).is_dir():
        entries = _listed(address)
        found = [entry for entry in entries if _is_image(entry.name)]
        images = [ImageFile(entry.name, join(address, entry.name), _version(entry)) for entry in found]
        others = len(entries) - len(images)
    else:
        raise StageError(f"--images {address}: no folder or table (.csv, .tsv, .jsonl, .parquet) is there")
    if not images:
        why = "the table has no rows" if is_table(address) else f"{others:,} other files; is the folder mounted?"
        raise StageError(f"--images {address}: found no image ({why})")
    return sorted(images), others


def read_metadata(
    address: str, image: str = IMAGE, others: Sequence[str] = ()
) -> tuple[pa.Table | None, list[str], int]:
    """Return a table of images with its further columns, and the names of columns that no condition can name.

    The number is that of rows whose image an earlier row has.

    `image` names the column of the images, which is `image` in what is returned, so that no condition can name a
    further one of this name, and `others` columns to leave out. Of an image that comes several times the first row
    counts. A folder has no table (None). The values of text files get types by their looks. No condition can name a
    column whose name another one has or has a double quote in it, or whose values have no common type.
    """
    if not is_table(address):
        return None, [], 0
    with damage_as(StageError, f"{address}: the columns cannot be read", "correct the table"):
        table, untyped = _read(address, image, others)
        names = table.column_names
        double = [name for name in dict.fromkeys(names) if names.count(name) > 1]
        table = table.select([place for place, name in enumerate(names) if name not in (*others, *double)])
        for place, field in enumerate(table.schema):
            kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
            kind = pa.string() if pa.types.is_string_view(kind) else kind
            if kind != field.type:
                table = table.set_column(place, field.name, table[place].cast(kind))
        ids = [None if name in (None, "") else str(name) for name in table[image].to_pylist()]
        further = [field for field in table.schema if field.name != image]
        unnamed = [field.name for field in further if not (_is_nameable(field.name) and is_plain(field.type))]
        first = {name: row for row, name in reversed(list(enumerate(ids))) if name is not None}
        table = table.select([name for name in table.column_names if name not in (image, *unnamed)])
        table = table.take(pa.array(first.values(), pa.int64()))
        kept = {name: _without_nan(table[name]) for name in table.column_names}
        stored = _as_stored(pa.table({IMAGE: pa.array(first, pa.string()), **kept}))
        return stored, [*unnamed, *untyped, *double], len(ids) - ids.count(None) - len(first)


def _is_nameable(name: str) -> bool:
    """Return whether a condition can name a column; `image` is that of the images, and `"` ends a name."""
    return name != IMAGE and '"' not in name


def rows_of(metadata: pa.Table, images: Sequence[str] | pa.ChunkedArray) -> pa.Table:
    """Return the rows of images, in their order."""
    return metadata.take(pc.index_in(pa.array(images, pa.string()), metadata[IMAGE]))


def _without_nan(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column in which NaN is a missing value."""
    return pc.if_else(pc.is_nan(column), None, column) if pa.types.is_floating(column.type) else column


def _as_stored(table: pa.Table) -> pa.Table:
    """Return a table with the types that Parquet gives back, to compare it with the stored one."""
    buffer = pa.BufferOutputStream()
    pyarrow.parquet.write_table(table, buffer)
    with pyarrow.parquet.ParquetFile(buffer.getvalue()) as file:
        return file.read()


def _read(address: str, image: str, others: Sequence[str]) -> tuple[pa.Table, list[str]]:
    """Return a table, and the names of the columns that it lacks: of JSON without a type, of Parquet unreadable."""
    name = address.lower().removesuffix(".gz")
    if name.endswith(".jsonl"):
        return _read_json(address, image, others)
    if name.endswith(".parquet"):
        with open_table(address) as file:
            return _read_parquet(pyarrow.parquet.ParquetFile(file), image)  # read_table refuses two columns of one name
    return _with_codes(address, _read_csv(address, [image]), others), []


def _read_parquet(file: pyarrow.parquet.ParquetFile, image: str) -> tuple[pa.Table, list[str]]:
    """Read a table at once, or column by column if Arrow refuses one, as lists of a fixed size with a missing one."""
    with suppress(pa.ArrowInvalid):
        return file.read(), []
    columns, unread = {image: file.read([image])[image]}, []
    for name in dict.fromkeys(file.schema_arrow.names):
        try:
            columns[name] = file.read([name])[name]
        except (pa.ArrowInvalid, KeyError):  # KeyError: of a name that several have
            unread.append(name)
    return pa.table(columns), unread


def _read_csv(address: str, texts: Sequence[str], wanted: Sequence[str] = ()) -> pa.Table:
    """Read a CSV, or the wanted columns of it, with the columns `texts` as they are written."""
    encoding, separator = text_form(address, texts)
    with open_table(address) as file:
        return pyarrow.csv.read_csv(
            file,
            read_options=pyarrow.csv.ReadOptions(encoding=encoding.removesuffix("-sig"), block_size=_BLOCK),
            parse_options=pyarrow.csv.ParseOptions(delimiter=separator, newlines_in_values=True),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types=dict.fromkeys(texts, pa.string()),
                include_columns=list(wanted),
                null_values=[""],
                strings_can_be_null=True,
            ),
        )


def _with_codes(address: str, table: pa.Table, others: Sequence[str]) -> pa.Table:
    """Return a table of a CSV with its codes as texts: as numbers they would lose what tells them apart."""
    names = [name for name in table.column_names if name not in others and table.column_names.count(name) == 1]
    forms = {name: form for name in names for is_kind, form in _CODES.items() if is_kind(table[name].type)}
    if not forms:
        return table
    written = _read_csv(address, list(forms), list(forms))
    for name, form in forms.items():
        if pc.any(pc.match_substring_regex(written[name], form)).as_py():
            table = table.set_column(table.column_names.index(name), name, written[name])
    return table


def _read_json(address: str, image: str, others: Sequence[str]) -> tuple[pa.Table, list[str]]:
    """Read JSON lines at once, or column by column, without `others`, if Arrow refuses a value of any column."""
    with suppress(pa.ArrowInvalid):
        names_are_texts = pyarrow.json.ParseOptions(pa.schema([(image, pa.string())]))
        with open_table(address) as file:
            table = pyarrow.json.read_json(file, _JSON, names_are_texts)
        if not (times := _times(table)):
            return table, []
        as_texts = pa.schema([(name, pa.string()) for name in times])
        with open_table(address) as file:
            written = pyarrow.json.read_json(file, _JSON, pyarrow.json.ParseOptions(as_texts, False, "ignore"))
        return _with_zones(table, written), []
    with open_table(address) as file:
        rows = [{name: row[name] for name in row if name not in others} for _, row in json_rows(address, file)]
    named = [(name, str(name)) for name in (row.pop(image, None) for row in rows)]
    known = [text if name is not None and is_text(text) else None for name, text in named]
    columns = {image: pa.array(known, pa.string())}
    untyped = []
    for name in dict.fromkeys(chain.from_iterable(rows)):
        lines = "\n".join(json.dumps({name: row.get(name)}) for row in rows)
        try:
            columns[name] = pyarrow.json.read_json(io.BytesIO(lines.encode()), _JSON)[name]
        except pa.ArrowInvalid:
            untyped.append(name)
    table = pa.table(columns)
    written = {name: pa.array([row.get(name) for row in rows], pa.string()) for name in _times(table)}
    return _with_zones(table, pa.table(written)), untyped


def _times(table: pa.Table) -> list[str]:
    return [field.name for field in table.schema if pa.types.is_timestamp(field.type)]


def _with_zones(table: pa.Table, written: pa.Table) -> pa.Table:
    """Return a table whose columns of times are in UTC if they were written with a zone: Arrow forgets that."""
    for name in _times(table):
        if pc.any(pc.match_substring_regex(written[name], _ZONE)).as_py():
            in_utc = pc.assume_timezone(table[name], "UTC")
            table = table.set_column(table.column_names.index(name), name, in_utc)
    return table


def _listed(folder: str) -> list[Entry]:
    try:
        return list(open_storage(folder).list())
    except OSError as error:
        raise StageError(
            f"--images {folder}: {error.filename} cannot be read ({error.strerror}), and its images would seem to be "
            "gone: make it readable, or move it out"
        ) from error


def _is_image(name: str) -> bool:
    return name.lower().endswith(_SUFFIXES + _UNREAD) and not any(part.startswith(".") for part in name.split("/"))


def _of_table(address: str) -> list[ImageFile]:
    """Read a table; an image that is not there has an empty version."""
    try:
        table = require_table(address, "--images")
        (names,) = read_columns(table, [IMAGE])
    except ValueError as error:
        raise StageError(f"--images {address}: {error}") from error
    folder = folder_of(table)
    # One listing instead of a request for each object.
    there = {join(folder, entry.name): entry for entry in open_storage(folder).list()} if is_s3(folder) else {}
    return [_of_row(name, folder, there) for name in dict.fromkeys(names)]


def _of_row(name: str, folder: str, there: Mapping[str, Entry]) -> ImageFile:
    uri = name if is_s3(name) else join(folder, name)
    parent, _, file = uri.rpartition("/")
    try:
        entry = there[uri] if uri in there else open_storage(parent).find(file)
    except OSError:  # a name that no file can have, or a folder that may not be entered
        entry = None
    return ImageFile(name, uri, "" if entry is None else _version(entry))


def _version(entry: Entry) -> str:
    return f"{entry.bytes}-{entry.version}"
