"""Columns of text of a table that somebody has made: CSV, TSV or Parquet."""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

SEPARATORS = {".csv": ",", ".tsv": "\t"}


def require_once(header: Sequence[str], names: Sequence[str]) -> None:
    """Raise ValueError if one of the names is in a header more than once: which of the columns is meant?"""
    for name in names:
        if (count := list(header).count(name)) > 1:
            raise ValueError(f"the column {name!r} is there {count} times: rename all but one")


def read_columns(path: Path, names: Sequence[str]) -> list[list[str]]:
    """Return columns as lists of texts, without the rows in which one is missing.

    Raises ValueError if the file is none of these tables, lacks a column, or has one twice.
    """
    if path.exists() and not path.is_file():
        raise ValueError("it is not a regular file")  # a pipe would be waited for
    try:
        if path.suffix.lower() == ".parquet":
            require_once(pyarrow.parquet.read_schema(path).names, names)
            table = pyarrow.parquet.read_table(path, columns=list(names))
        else:
            parsing = pyarrow.csv.ParseOptions(delimiter=SEPARATORS[path.suffix.lower()], newlines_in_values=True)
            with pyarrow.csv.open_csv(path, parse_options=parsing) as rows:
                require_once(rows.schema.names, names)
            reading = pyarrow.csv.ConvertOptions(
                include_columns=list(names),
                column_types=dict.fromkeys(names, pa.string()),
                null_values=[""],
                strings_can_be_null=True,
            )
            table = pyarrow.csv.read_csv(path, parse_options=parsing, convert_options=reading)
        table = table.select(names).cast(pa.schema({name: pa.string() for name in names})).drop_null()
        return [table[name].to_pylist() for name in names]
    except (OSError, KeyError, UnicodeDecodeError, pa.ArrowException) as error:
        wanted = " and ".join(repr(name) for name in names)
        raise ValueError(f"no table (.csv, .tsv, .parquet) with {wanted} can be read: {error}") from error
