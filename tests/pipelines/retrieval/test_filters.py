"""Conditions hold for the rows that a loop in Python finds; what does not fit is refused with the columns there are."""

from __future__ import annotations

import contextlib
import datetime
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.retrieval.filters import FilterError, column_types, is_plain, matching_rows

DAY, DATE = datetime.date, datetime.datetime
TABLE = pa.table(
    {
        "image": ["a/1.jpg", "a/2.jpg", "b/3.jpg", "b/4.jpg", "b/5.jpg"],
        "year": [2019, 2020, None, 2024, 2020],
        "licence": ["CC0", "CC-BY", None, "it's", "CC0"],
        "tags": [["dog", "sea"], [], None, ["cat", None, "dog"], ["cat"]],
        "day": [DAY(2020, 1, 1), DAY(2024, 5, 31), None, DAY(2023, 1, 1), DAY(2024, 6, 1)],
        "ok": [True, False, None, True, False],
        "Focal length": [1.5, 2.5, 3.5, -1.0, 50.0],
    }
)
ROWS: list[dict[str, Any]] = TABLE.to_pylist()


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("year >= 2020", lambda r: r["year"] is not None and r["year"] >= 2020),
        ("year != 2020", lambda r: r["year"] is not None and r["year"] != 2020),
        ("year<2019.5 or year>2020.5", lambda r: r["year"] is not None and not 2019.5 < r["year"] < 2020.5),
        ("licence in ('CC0', 'it''s')", lambda r: r["licence"] in ("CC0", "it's")),
        ("licence not in ('CC0')", lambda r: r["licence"] is not None and r["licence"] != "CC0"),
        ("tags contains 'dog' and year = 2024", lambda r: r["year"] == 2024 and "dog" in r["tags"]),
        ("not tags contains 'dog'", lambda r: r["tags"] is not None and "dog" not in r["tags"]),
        ("image contains 'b/'", lambda r: "b/" in r["image"]),
        ("day > '2024-05-30'", lambda r: r["day"] is not None and r["day"] > DAY(2024, 5, 30)),
        ("ok", lambda r: r["ok"] is True),
        ("NOT ok AND year IS NOT NULL", lambda r: r["ok"] is False and r["year"] is not None),
        ("ok = false", lambda r: r["ok"] is False),
        ("licence is null", lambda r: r["licence"] is None),
        ('"Focal length" <= -0.5', lambda r: r["Focal length"] <= -0.5),
        (
            "ok or year = 2020 and licence = 'CC0'",
            lambda r: r["ok"] is True or (r["year"] == 2020 and r["licence"] == "CC0"),
        ),
        ("(ok or year = 2020) and licence = 'CC0'", lambda r: (r["ok"] or r["year"] == 2020) and r["licence"] == "CC0"),
    ],
)
def test_the_rows_of_a_condition(condition: str, holds: Callable[[dict[str, Any]], Any]) -> None:
    assert matching_rows(TABLE, condition).tolist() == [bool(holds(row)) for row in ROWS]


NUMBERS_AND_TIMES = pa.table(
    {
        "whole": [2**53 + 1, 3, None, 2**60],
        "unsigned": pa.array([2**63 + 5, 1, None, 7], pa.uint64()),
        "small": [5e-7, 1e3, None, -1.0],
        "lists": [[2**60], [1], None, []],
        "at": pa.array([DATE(2020, 1, 1), DATE(2018, 1, 1), None, DATE(2019, 5, 5)], pa.timestamp("s", "UTC")),
        "time": pa.array([datetime.time(12, 30), datetime.time(13), None, datetime.time(1)], pa.time32("ms")),
    }
)


@pytest.mark.parametrize(
    ("condition", "rows"),
    [
        ("whole > 7.5", [0, 3]),
        ("whole in (3, 2.5)", [1]),
        ("whole = 9007199254740993", [0]),
        ("unsigned > 5", [0, 3]),
        ("unsigned > -1", [0, 1, 3]),
        ("unsigned = 9223372036854775813", [0]),
        ("whole < 1e300", [0, 1, 3]),
        ("small = 5e-7 or small = 1E+3", [0, 1]),
        ("lists contains 1.5", []),
        ("lists contains 1152921504606846976", [0]),
        ("at > '2019-05-04'", [0, 3]),
        ("at = '2019-05-05'", [3]),
        ("at > '2019-05-05T00:00:00Z'", [0]),
        ("time > '12:29'", [0, 1]),
        ("time = '12:30:00'", [0]),
    ],
)
def test_large_numbers_dates_with_a_zone_and_times_are_compared(condition: str, rows: list[int]) -> None:
    assert [row for row, holds in enumerate(matching_rows(NUMBERS_AND_TIMES, condition)) if holds] == rows


@pytest.mark.parametrize(
    ("condition", "rows"),
    [
        ("double > 9007199254740993", [0, 1]),
        ("lists contains 9007199254740993", [1]),
        ("decimal = 2", [0]),
        ("decimal < 9007199254740993", [0, 2]),
        ("half = 2", [1]),
        ("half < 1.5 or half > 70000", [0]),
    ],
)
def test_numbers_of_types_that_arrow_does_not_compare(condition: str, rows: list[int]) -> None:
    """Such a condition ended the searches of other clients too."""
    table = pa.table(
        {
            "double": [math.inf, 1e20, -1.5],
            "lists": [[math.inf], [1.5, 2.0**53], None],
            "decimal": pa.array([Decimal(2), None, Decimal("-1.5")], pa.decimal128(38, 30)),
            "half": pa.array(np.array([1, 2, 3], np.float16)),
        }
    )
    assert [row for row, holds in enumerate(matching_rows(table, condition)) if holds] == rows


@pytest.mark.parametrize("zone", [None, "Europe/Zurich"])
@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
@pytest.mark.parametrize("microsecond", [0, 5_000, 250_000])
def test_a_time_as_python_writes_it_is_found(unit: str, zone: str | None, microsecond: int) -> None:
    table = pa.table({"at": pa.array([DATE(2024, 5, 31, 12, 0, 0, microsecond), None], pa.timestamp(unit, zone))})
    for text in (str(table["at"][0].as_py()), f"2024-05-31 12:00:00.{microsecond:06}"):
        assert matching_rows(table, f"at = '{text}'").tolist() == [True, False]
    if microsecond:
        assert not matching_rows(table, "at = '2024-05-31 12:00:00.000000'").any()


def test_a_time_in_whole_seconds_is_found() -> None:
    table = pa.table({"at": pa.array([DATE(2024, 5, 31, 12), None], pa.timestamp("s"))})
    assert matching_rows(table, "at = '2024-05-31 12:00:00.000'").tolist() == [True, False]


@pytest.mark.parametrize(
    "decimals", [pa.decimal128(10, 2), pa.decimal128(38, 2), pa.decimal256(60, 2), pa.decimal128(9, 4)]
)
@pytest.mark.parametrize(
    ("condition", "rows"),
    [
        ("price = 4.81", [1]),
        ("price in (4.80, 4.81)", [0, 1]),
        ("price <= 4.81", [0, 1]),
        ("price > 4.81", [2, 3]),
        ("price != 4.81", [0, 2, 3]),
        ("price = 5", [3]),
        ("price < 1e300", [0, 1, 2, 3]),
        ("price > -1e-300", [0, 1, 2, 3]),
    ],
)
def test_decimal_numbers_are_compared_by_their_digits(decimals: pa.DataType, condition: str, rows: list[int]) -> None:
    prices = pa.array([Decimal(text) for text in ("4.80", "4.81", "4.82", "5.00")], decimals)
    assert np.flatnonzero(matching_rows(pa.table({"price": prices}), condition)).tolist() == rows


@pytest.mark.parametrize("kind", [pa.float16(), pa.float32(), pa.float64()])
def test_a_number_is_compared_in_the_type_of_a_column(kind: pa.DataType) -> None:
    scores = pa.array([0.1, 0.2, 70.0, None]).cast(kind)
    table = pa.table({"score": scores, "list": pa.ListArray.from_arrays([0, 1, 2, 3, 4], scores)})
    for condition, rows in {
        "score = 0.1": [0],
        "score <= 0.1": [0],
        "score > 0.1": [1, 2],
        "score in (0.2, 70)": [1, 2],
        "list contains 0.1": [0],
        "score < 99999999999999999999": [0, 1, 2],
    }.items():
        assert [row for row, holds in enumerate(matching_rows(table, condition)) if holds] == rows, condition


@given(st.recursive(
    st.sampled_from(["year = 2020", "year < 2020", "ok", "licence = 'CC0'"]),
    lambda inner: st.tuples(st.sampled_from(["and", "or", "not"]), inner, inner).map(
        lambda made: f"not ({made[1]})" if made[0] == "not" else f"({made[1]}) {made[0]} ({made[2]})"
    ),
    max_leaves=6,
))  # fmt: skip
def test_truth_values_combine_as_in_python_if_nothing_is_missing(condition: str) -> None:
    complete = TABLE.take([0, 1, 3, 4])
    expression = condition.replace(" = ", " == ")
    expected = [eval(expression, {}, row) for row in complete.to_pylist()]
    assert matching_rows(complete, condition).tolist() == expected


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        (
            "yeer = 3",
            r"no column 'yeer'; the gallery has image \(text\), year \(numbers\), .* tags \(lists of text\), day",
        ),
        ("year = 'a'", "'year' holds numbers: such a value is expected, as 2020"),
        ("licence > 3", "'licence' holds text"),
        ("day = 'soon'", "'day' holds dates: such a value is expected, as '2024-05-31'"),
        ("tags = 'winter'", "'tags' holds lists of text: it is to be compared by contains"),
        ("year contains 'a'", "only texts and lists contain something"),
        ("year 2020", "cannot be read; write COLUMN"),
        ("year", "'year' is to be compared"),
        ("year >", "cannot be read; write COLUMN"),
        ("year = 2020 licence", "cannot be read; write COLUMN"),
        ("licence = 'CC' '0'", "'licence' holds text: such a value is expected"),
        ("year in ()", "'year' holds numbers: such a value is expected"),
        ("2020 = year", "a column is to be compared with a value"),
        ("year is 2020", "'year' can be null or not null"),
        ("year = 99999999999999999999", "'year' holds numbers"),
        ("(year = 2020", "cannot be read; write COLUMN"),
        ("", "cannot be read; write COLUMN"),
        ("__import__('os')", "a column is to be compared"),
        ("year = 2020; drop", "cannot be read from '; drop'"),
        ("(" * 498 + "ok" + ")" * 498, "cannot be read"),
        ("not " * 400 + "ok", "1,602 characters, more than 1,000"),
    ],
)
def test_what_does_not_fit_is_refused(condition: str, message: str) -> None:
    with pytest.raises(FilterError, match=message):
        matching_rows(TABLE, condition)


@settings(max_examples=30)
@given(
    st.lists(st.sampled_from(["year", "ok", "=", "in", "(", ")", "'a'", "2", "not", '"', "é", "tags", ","]), max_size=8)
)
def test_anything_is_read_or_refused(words: list[str]) -> None:
    with contextlib.suppress(FilterError):
        assert len(matching_rows(TABLE, " ".join(words))) == len(ROWS)


def test_columns_are_told_in_plain_words() -> None:
    assert column_types(TABLE)["ok"] == "true or false"
    assert not is_plain(pa.struct([("a", pa.int8())]))
    assert not is_plain(pa.binary())
