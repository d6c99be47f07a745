"""Conditions on the columns of a gallery, such as `year >= 2020 and licence in ('CC0', 'CC-BY')`.

    condition: COLUMN (= != < <= > >=) VALUE, COLUMN [not] in (VALUE, ...), COLUMN contains TEXT, COLUMN is [not] null,
               and the name of a column of truth values
    combined by `and`, `or`, `not` and parentheses, which bind as in SQL

A value is a number, 'text' (a quote in it twice), true or false; dates and times are texts, '2024-05-31' (in UTC if the
column has a zone) and '12:30'. A column name that is not a single word stands in double quotes. As in SQL a condition
on a missing value holds for no row, nor does its opposite.
"""

import ast
import datetime
import re
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

# Characters of a condition that somebody else may have sent.
LONGEST = 1000
_TOKEN = re.compile(
    r"""\s*(?:(?P<number>-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w.]))|(?P<text>'(?:[^']|'')*')|"(?P<quoted>[^"]+)\""""
    r"""|(?P<word>[^\W\d]\w*)|(?P<sign><=|>=|!=|<>|==|[=<>(),])|$)"""
)
# What stands for these words and signs in Python, whose order of operators is that of SQL.
_IN_PYTHON = {
    **{word: word for word in ("and", "or", "not", "in", "is")},
    **{"null": "None", "true": "True", "false": "False", "contains": "@", "=": "==", "<>": "!="},
}
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: pc.equal,
    ast.NotEq: pc.not_equal,
    ast.Lt: pc.less,
    ast.LtE: pc.less_equal,
    ast.Gt: pc.greater,
    ast.GtE: pc.greater_equal,
}
# The kinds of columns in plain words, and those that a value can be compared with.
_KINDS: dict[str, tuple[Callable[[pa.DataType], bool], ...]] = {
    "text": (pa.types.is_string, pa.types.is_large_string),
    "numbers": (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal),
    "true or false": (pa.types.is_boolean,),
    "dates": (pa.types.is_date, pa.types.is_time, pa.types.is_timestamp),
}
_FITTING = {int: ("numbers",), float: ("numbers",), str: ("text", "dates"), bool: ("true or false",)}
# Examples of how they are written.
_WRITTEN = {"text": "'winter'", "numbers": "2020", "true or false": "true", "dates": "'2024-05-31'"}


class FilterError(ValueError):
    """A condition that cannot be read, or does not fit the columns; the message names these."""


def matching_rows(table: pa.Table, condition: str) -> npt.NDArray[np.bool_]:
    """Return for each row whether a condition holds for it; FilterError if it cannot be read or does not fit."""
    rows = _Condition(table, condition).rows()
    return np.asarray(pc.fill_null(rows, fill_value=False).to_numpy(zero_copy_only=False))


def is_plain(kind: pa.DataType) -> bool:
    """Return whether conditions can name values of a type: text, numbers, truth values, dates, or lists of them."""
    return _kind(kind.value_type if _is_list(kind) else kind) in _KINDS


def column_types(table: pa.Table) -> dict[str, str]:
    """Return the columns, each with the kind of its values in plain words."""
    return {field.name: _kind(field.type) for field in table.schema}


class _Condition:
    """A condition as an expression of Python, of which nothing is run: its tree says what to ask of the columns.

    Columns have names of the form `_0` in it.
    """

    def __init__(self, table: pa.Table, condition: str) -> None:
        self._table, self._condition, self._names = table, condition.strip(), list[str]()
        if len(condition) > LONGEST:
            raise FilterError(f"the condition has {len(condition):,} characters, more than {LONGEST:,}")

    def rows(self) -> pa.Array:
        """Return a truth value, or a missing one, for each row."""
        text, end = "", 0
        while end < len(self._condition):
            match = _TOKEN.match(self._condition, end)
            if match is None:
                raise FilterError(f"the condition cannot be read from {self._condition[end:].strip()[:40]!r}")
            text, end = f"{text} {self._in_python(str(match.lastgroup), match[0].strip())}", match.end()
        try:
            return self._holds(ast.parse(text.strip(), mode="eval").body)
        except (SyntaxError, RecursionError, MemoryError):
            raise self._fault("cannot be read; write COLUMN >= VALUE, combined by and, or, not") from None

    def _in_python(self, kind: str, found: str) -> str:
        if kind == "text":
            text = found[1:-1].replace("''", "'")
            return f"({text!r})"  # two texts in parentheses are not joined
        if kind == "quoted" or (kind == "word" and found.lower() not in _IN_PYTHON):
            self._names.append(found.strip('"'))
            return f"_{len(self._names) - 1}"
        return _IN_PYTHON.get(found.lower(), found)

    def _holds(self, node: ast.expr) -> pa.Array:
        match node:
            case ast.BoolOp():
                combine = pc.and_kleene if isinstance(node.op, ast.And) else pc.or_kleene
                return reduce(combine, map(self._holds, node.values))
            case ast.UnaryOp(op=ast.Not()):
                return pc.invert(self._holds(node.operand))
            case ast.BinOp(left=ast.Name() as name, op=ast.MatMult()):
                return self._contained(*self._column(name), node.right)
            case ast.Compare(left=ast.Name() as name, ops=[operator], comparators=[value]):
                return self._compared(*self._column(name), operator, value)
            case ast.Name():
                found, column = self._column(node)
                if pa.types.is_boolean(column.type):
                    return column
                raise self._fault(f"{found!r} is to be compared (=, !=, <, <=, >, >=, in, contains, is null)")
        raise self._fault("a column is to be compared with a value")

    def _compared(self, name: str, column: pa.Array, operator: ast.cmpop, value: ast.expr) -> pa.Array:
        if isinstance(operator, ast.Is | ast.IsNot):
            if not (isinstance(value, ast.Constant) and value.value is None):
                raise self._fault(f"{name!r} can be null or not null")
            return pc.is_null(column) if isinstance(operator, ast.Is) else pc.is_valid(column)
        if type(operator) in _COMPARE:
            return _compare(_COMPARE[type(operator)], column, self._value(name, column.type, value))
        values = (isinstance(value, ast.Tuple) and value.elts) or [value]
        rows = reduce(
            pc.or_kleene, (_compare(pc.equal, column, self._value(name, column.type, each)) for each in values)
        )
        return pc.invert(rows) if isinstance(operator, ast.NotIn) else rows

    def _contained(self, name: str, column: pa.Array, value: ast.expr) -> pa.Array:
        if not _is_list(column.type):
            if _kind(column.type) != "text":
                raise self._fault(f"{name!r} holds {_kind(column.type)}: only texts and lists contain something")
            return pc.match_substring(column, self._value(name, column.type, value).as_py())
        equal = _compare(pc.equal, pc.list_flatten(column), self._value(name, column.type.value_type, value))
        rows = np.zeros(len(column), np.bool_)
        rows[pc.list_parent_indices(column).filter(equal).to_numpy(zero_copy_only=False)] = True
        return pa.array(rows, mask=pc.is_null(column).to_numpy(zero_copy_only=False))

    def _column(self, node: ast.Name) -> tuple[str, pa.Array]:
        name = self._names[int(node.id[1:])]
        if name not in self._table.column_names:
            known = ", ".join(f"{name} ({kind})" for name, kind in column_types(self._table).items())
            raise FilterError(f"no column {name!r}; the gallery has {known}")
        return name, self._table[name].combine_chunks()

    def _value(self, name: str, kind: pa.DataType, node: ast.expr) -> pa.Scalar:
        """Return a value that can be compared with those of a column."""
        try:
            value = ast.literal_eval(node)
            if _kind(kind) in _FITTING.get(type(value), ()):
                return _as_column(value, kind) if isinstance(value, str) else _number(value, kind)
        except (ValueError, OverflowError, NotImplementedError):  # pyarrow's errors among them
            pass
        if _is_list(kind):
            raise self._fault(f"{name!r} holds {_kind(kind)}: it is to be compared by contains")
        written = "'12:30'" if pa.types.is_time(kind) else _WRITTEN[_kind(kind)]
        raise self._fault(f"{name!r} holds {_kind(kind)}: such a value is expected, as {written}")

    def _fault(self, what: str) -> FilterError:
        return FilterError(f"the condition {self._condition[:80]!r}: {what}")


def _compare(compare: Callable[[Any, Any], Any], column: pa.Array, value: pa.Scalar) -> pa.Array:
    try:
        return compare(column, value)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # no type of Arrow holds both without loss, or float16
        return compare(column.cast(pa.float64(), safe=False), value.cast(pa.float64(), safe=False))


def _number(value: float, kind: pa.DataType) -> pa.Scalar:
    """Return a number or truth value to compare with a column; OverflowError for a longer integer than Arrow has."""
    if pa.types.is_floating(kind):
        return pa.scalar(float(value)).cast(kind)  # or 0.1 in float32 were not 0.1
    if pa.types.is_decimal(kind):
        with suppress(pa.ArrowInvalid):  # no decimal number of Arrow is as long as 1e300
            return pa.scalar(Decimal(repr(value)))  # or 4.81 were not the 481 hundredths of the column
    is_unsigned = pa.types.is_uint64(kind) and isinstance(value, int) and value >= 0
    return pa.scalar(value, kind if is_unsigned else None)  # int64 does not hold all of uint64


def _as_column(text: str, kind: pa.DataType) -> pa.Scalar:
    """Return a text, date or time as a value of a column's type; ValueError if it is none."""
    if pa.types.is_time(kind):
        return pa.scalar(datetime.time.fromisoformat(text), kind)
    if pa.types.is_timestamp(kind):  # Python writes six digits of a second, and Arrow reads as many as the unit has
        text = re.sub(r"\.0+(?!\d)|(\.\d+?)0+(?!\d)", r"\1", text)
    try:
        return pa.scalar(text).cast(kind)
    except pa.ArrowInvalid:
        if not pa.types.is_timestamp(kind) or kind.tz is None:
            raise
        return pa.scalar(text).cast(pa.timestamp(kind.unit)).cast(kind)


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _kind(kind: pa.DataType) -> str:
    if _is_list(kind):
        return f"lists of {_kind(kind.value_type)}"
    return next((name for name, tests in _KINDS.items() if any(test(kind) for test in tests)), str(kind))
