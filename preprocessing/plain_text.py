"""Text from outside, such as captions and names, made safe to show: a terminal or a spreadsheet obeys none of it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

# Control characters but for tabs and line ends, marks that reverse the direction of text, and halves of characters.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
# A spreadsheet takes a cell that begins with one of these for a formula.
_FORMULA = re.compile("[=+\\-@\t＝＋－＠]")
_NUMBER = re.compile(r"[+-]?[0-9.]+(e[+-]?[0-9]+)?", re.IGNORECASE)


def is_text(text: str) -> bool:
    """Return whether UTF-8 can hold a text: it has no half of a character, as the names of files may have."""
    return not any("\ud800" <= sign <= "\udfff" for sign in text)


def printable(text: str) -> str:
    r"""Return a text with its control characters written out, ``\x1b`` for an escape; tabs and line ends stay."""
    return _CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def csv_cell(text: str) -> str:
    """Return a text as the cell of a CSV file: printable, and after an apostrophe if it would be a formula."""
    text = printable(text)
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def csv_cells(table: pa.Table) -> pa.Table:
    """Return a table whose texts are the cells of a CSV file (:func:`csv_cell`); numbers stay as they are."""
    import pyarrow as pa

    for place, field in enumerate(table.schema):
        if pa.types.is_string(field.type):
            cells = [None if cell is None else csv_cell(cell) for cell in table.column(place).to_pylist()]
            table = table.set_column(place, field, pa.array(cells, field.type))
    return table
