"""Conditions on the columns of a gallery, such as `year >= 2020 and licence in ('CC0', 'CC-BY')`.

    condition: COLUMN (= != < <= > >=) VALUE, COLUMN [not] in (VALUE, ...), COLUMN contains TEXT, COLUMN is [not] null,
               and the name of a column of truth values
    combined by `and`, `or`, `not` and parentheses, which bind as in SQL

A value is a number, 'text' (a quote in it twice), true or false; dates are texts, '2024-05-31'. A column whose name is
no word stands in double quotes. As in SQL a condition on a missing value holds for no row, nor does its opposite.
"""

import re
from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

# Characters, and parentheses within each other, of a condition that somebody else may have sent.
LONGEST, _DEEPEST = 1000, 20
_TOKEN = re.compile(
    r"""\s*(?:(?P<number>-?\d+(?:\.\d+)?(?![\w.]))|(?P<text>'(?:[^']|'')*')|"(?P<quoted>[^"]+)"|(?P<word>[^\W\d]\w*)"""
    r"""|(?P<sign><=|>=|!=|<>|==|[=<>(),]))"""
)
_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    **dict.fromkeys(("=", "=="), pc.equal),
    **dict.fromkeys(("!=", "<>"), pc.not_equal),
    **{"<": pc.less, "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal},
}
_RESERVED = {"and", "or", "not", "in", "contains", "is", "null", "true", "false"}


class FilterError(ValueError):
    """A condition that cannot be read, or does not fit the columns; the message names these."""


def matching_rows(table: pa.Table, condition: str) -> npt.NDArray[np.bool_]:
    """Return for each row whether a condition holds for it; FilterError if it cannot be read or does not fit."""
    rows = _Reader(table, condition).read()
    return np.asarray(pc.fill_null(rows, fill_value=False).to_numpy(zero_copy_only=False))


def is_plain(kind: pa.DataType) -> bool:
    """Return whether conditions can name values of a type: text, numbers, truth values, dates, or lists of them."""
    return _kind(kind.value_type if _is_list(kind) else kind) in _KINDS


def column_types(table: pa.Table) -> dict[str, str]:
    """Return the columns, each with the kind of its values in plain words."""
    return {field.name: _kind(field.type) for field in table.schema}


class _Reader:
    """Reads a condition from left to right; each method returns a truth value, or a missing one, for each row."""

    def __init__(self, table: pa.Table, condition: str) -> None:
        if len(condition) > LONGEST:
            raise FilterError(f"the condition has {len(condition):,} characters, more than {LONGEST:,}")
        self._table, self._condition, self._depth = table, condition.strip(), 0
        self._end, self._kind, self._value = 0, "", ""
        self._next()

    def read(self) -> pa.Array:
        rows = self._any()
        if self._kind:
            raise self._fault("'and', 'or' or the end is expected")
        return rows

    def _any(self) -> pa.Array:
        return self._combined("or", self._all, pc.or_kleene)

    def _all(self) -> pa.Array:
        return self._combined("and", self._one, pc.and_kleene)

    def _combined(
        self, word: str, read: Callable[[], pa.Array], combine: Callable[[pa.Array, pa.Array], pa.Array]
    ) -> pa.Array:
        parts = [read()]
        while self._takes(word):
            parts.append(read())
        return reduce(combine, parts)

    def _one(self) -> pa.Array:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise self._fault(f"more than {_DEEPEST} parentheses or 'not' lie within each other")
        if self._takes("not"):
            rows = pc.invert(self._one())
        elif self._takes("("):
            rows = self._any()
            self._expect(")")
        else:
            rows = self._test()
        self._depth -= 1
        return rows

    def _test(self) -> pa.Array:
        name, column = self._column()
        if self._kind == "sign" and self._value in _COMPARE:
            return _COMPARE[self._taken()](column, self._literal(name, column.type))
        if self._takes("is"):
            is_not = self._takes("not")
            self._expect("null")
            return pc.is_valid(column) if is_not else pc.is_null(column)
        if self._takes("contains"):
            return self._contained(name, column)
        is_not = self._takes("not")
        if is_not or (self._kind == "word" and self._value.lower() == "in"):
            self._expect("in")
            rows = self._listed(name, column)
            return pc.invert(rows) if is_not else rows
        if not pa.types.is_boolean(column.type):
            raise self._fault(f"a comparison of {name!r} is expected (=, !=, <, <=, >, >=, in, contains, is null)")
        return column

    def _listed(self, name: str, column: pa.Array) -> pa.Array:
        self._expect("(")
        equal = [pc.equal(column, self._literal(name, column.type))]
        while self._takes(","):
            equal.append(pc.equal(column, self._literal(name, column.type)))
        self._expect(")")
        return reduce(pc.or_kleene, equal)

    def _contained(self, name: str, column: pa.Array) -> pa.Array:
        if not _is_list(column.type):
            if not _is_text(column.type):
                raise self._fault(f"{name!r} holds {_kind(column.type)}: only texts and lists contain something")
            return pc.match_substring(column, self._literal(name, column.type).as_py())
        value = self._literal(name, column.type.value_type)
        equal = pc.fill_null(pc.equal(pc.list_flatten(column), value), fill_value=False)
        rows = np.zeros(len(column), np.bool_)
        rows[pc.list_parent_indices(column).filter(equal).to_numpy(zero_copy_only=False)] = True
        return pa.array(rows, mask=pc.is_null(column).to_numpy(zero_copy_only=False))

    def _column(self) -> tuple[str, pa.Array]:
        if self._kind not in ("word", "quoted") or (self._kind == "word" and self._value.lower() in _RESERVED):
            raise self._fault("the name of a column is expected")
        if self._value not in self._table.column_names:
            known = ", ".join(f"{name} ({kind})" for name, kind in column_types(self._table).items())
            raise FilterError(f"there is no column {self._value!r}; the gallery has {known}")
        name = self._taken()
        return name, self._table[name].combine_chunks()

    def _literal(self, name: str, kind: pa.DataType) -> pa.Scalar:
        """Take a value that can be compared with those of a column."""
        of, value = self._kind, self._value
        word = value.lower()
        try:
            if of == "number" and _is_number(kind):
                found = pa.scalar(float(value) if "." in value else int(value))
            elif of == "text" and (_is_text(kind) or pa.types.is_temporal(kind)):
                found = pa.scalar(value[1:-1].replace("''", "'")).cast(kind)
            elif of == "word" and word in ("true", "false") and pa.types.is_boolean(kind):
                found = pa.scalar(word == "true")
            else:
                raise self._fault(f"{name!r} holds {_kind(kind)}: such a value is expected")
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OverflowError) as error:
            raise self._fault(f"{name!r} holds {_kind(kind)}: such a value is expected") from error
        self._next()
        return found

    def _takes(self, expected: str) -> bool:
        """Go on if a word or sign comes next."""
        is_next = self._kind in ("word", "sign") and self._value.lower() == expected
        if is_next:
            self._next()
        return is_next

    def _expect(self, expected: str) -> None:
        if not self._takes(expected):
            raise self._fault(f"{expected!r} is expected")

    def _taken(self) -> str:
        value = self._value
        self._next()
        return value

    def _next(self) -> None:
        if self._end == len(self._condition):
            self._kind = self._value = ""
            return
        match = _TOKEN.match(self._condition, self._end)
        if match is None:
            raise FilterError(f"the condition cannot be read from {self._condition[self._end :].strip()[:40]!r}")
        self._end, self._kind = match.end(), str(match.lastgroup)
        self._value = match[self._kind]

    def _fault(self, expected: str) -> FilterError:
        found = f"got {self._value!r:.60}" if self._kind else "it ends"
        return FilterError(f"the condition {self._condition[:80]!r}: {expected}, {found}")


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _kind(kind: pa.DataType) -> str:
    if _is_list(kind):
        return f"lists of {_kind(kind.value_type)}"
    return next((name for name, is_kind in _KINDS.items() if is_kind(kind)), str(kind))


_KINDS: dict[str, Callable[[pa.DataType], bool]] = {
    "text": _is_text,
    "numbers": _is_number,
    "true or false": pa.types.is_boolean,
    "dates": pa.types.is_temporal,
}
