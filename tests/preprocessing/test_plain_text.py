"""Captions of attackers, on a terminal and in a spreadsheet."""

import pyarrow as pa
import pytest

from preprocessing.plain_text import csv_cell, csv_cells, printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a dog\n\ta cat, café 犬 👩‍👩‍👧", "a dog\n\ta cat, café 犬 👩‍👩‍👧"),
        ("\x1b]0;owned\x07\x1b[2J", "\\x1b]0;owned\\x07\\x1b[2J"),
        ("a\rb\x7f\x9bc\0", "a\\rb\\x7f\\x9bc\\x00"),
        ("gpj.\u202eexe\u2066", "gpj.\\u202eexe\\u2066"),
        ("half \ud83d", "half \\ud83d"),
    ],
)
def test_control_characters_are_written_out(text: str, shown: str) -> None:
    assert printable(text) == shown


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("a dog = a pet", "a dog = a pet"),
        ("-12.5", "-12.5"),
        ("+1e-05", "+1e-05"),
        ('=HYPERLINK("http://x","y")', '\'=HYPERLINK("http://x","y")'),
        ("+1+cmd|' /C calc'!A0", "'+1+cmd|' /C calc'!A0"),
        ("-2+3", "'-2+3"),
        ("@SUM(1)", "'@SUM(1)"),
        ("\t=1", "'\t=1"),
        ("\r=1", "\\r=1"),
        ("＝1", "'＝1"),
        ("", ""),
    ],
)
def test_no_cell_is_a_formula(text: str, cell: str) -> None:
    assert csv_cell(text) == cell


def test_texts_of_a_table_become_cells_and_numbers_stay() -> None:
    table = pa.table({"text": ["=1", None, "\x1b"], "number": [-1.5, 2.0, -3.0]})
    assert csv_cells(table).to_pydict() == {"text": ["'=1", None, "\\x1b"], "number": [-1.5, 2.0, -3.0]}
    assert csv_cells(table).schema == table.schema
