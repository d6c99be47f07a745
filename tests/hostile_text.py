"""YAML and JSON that no reader may stumble over: name of the case -> the text, and a part of the message about it."""

from __future__ import annotations

from itertools import pairwise

YAML: dict[str, tuple[str, str]] = {
    "a list that contains itself": ("a: &a [*a]", "or contain themselves"),
    "a mapping that contains itself": ("a: &a {b: *a}", "or contain themselves"),
    "a mapping merged into itself": ("a: &a {<<: *a}", "or contain themselves"),
    "alias bomb": (
        "a: &a [x, x, x]\n" + "".join(f"{c}: &{c} [{', '.join(['*' + p] * 9)}]\n" for p, c in pairwise("abcdefghijk")),
        "more than 100,000 values",
    ),
    "60 levels": ("a: " + "[" * 60 + "]" * 60, "nested deeper than 50 levels"),
    "20,000 levels": ("a: " + "[" * 20_000, "nested deeper than 50 levels"),
    "20,000 levels of blocks": ("a:\n" + "- " * 20_000, "nested deeper than 50 levels"),
    "a word as a whole number": ("a: !!int abc", "invalid literal for int"),
    "nothing as a whole number": ("a: !!int", "invalid literal for int"),
    "a word as a number": ("a: !!float abc", "could not convert"),
    "a word as a truth value": ("a: !!bool abc", "'abc'"),
    "a word as a date": ("a: !!timestamp abc", "AttributeError"),
    "5,000 digits": ("a: " + "7" * 5000, "4300 digits"),
    "half a character": ('a: "\\ud800"', "holds a sign that no text may have"),
    "NUL": ('a: "\\0"', "holds a sign that no text may have"),
    "a control character": ("a: \x07", "special characters are not allowed"),
    "no bytes": ("a: !!binary ä", "failed to convert base64 data"),
    "a Python object": ("a: !!python/object/apply:os.system [true]", "could not determine a constructor"),
}

JSON: dict[str, tuple[bytes, str]] = {
    "cut short": (b'{"a": [1', "Expecting"),
    "empty": (b"", "Expecting value"),
    "100,000 levels": (b"[" * 100_000, "nested too deeply"),
    "100,000 levels of objects": (b'{"a":' * 100_000, "nested too deeply"),
    "5,000 digits": (b"7" * 5000, "beyond 64 bits"),
    "65 bits": (b"18446744073709551616", "beyond 64 bits"),
    "beyond floats": (b"1e999", "not a finite number"),
    "infinity": (b"-Infinity", "not a finite number"),
    "not a number": (b"[NaN]", "not a finite number"),
    "half a character": (b'["\\ud800"]', "half of a character"),
    "half a character as a key": (b'{"\\uDC00": 1}', "half of a character"),
    "not UTF-8": (b'["\xff"]', "utf-8"),
}
