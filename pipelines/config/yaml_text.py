"""YAML from outside: plain values alone, each key once, and no file that grows or circles when it is read."""

import re
import stat
from pathlib import Path
from typing import Any

import yaml

from pipelines.schema.fields import DECIMAL

# Far above any configuration, far below what would exhaust memory.
_MOST_VALUES, _DEEPEST, _MOST_BYTES = 100_000, 50, 4_000_000
# The words and decimal numbers of YAML 1.2's core schema, each with the signs that it begins with.
_WORDS = (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]+", list("-+0123456789")),
    ("float", DECIMAL.pattern, list("-+.0123456789")),
    ("float", r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", list("-+.")),
)


class _StrictLoader(yaml.SafeLoader):
    """Reads words and numbers as YAML 1.2 does, and refuses a key that is given twice in a mapping.

    PyYAML's own are those of YAML 1.1: `on` is true, `010` is 8, `1:30` is 90, `1e-3` is a text.
    """

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = str(self.construct_object(key_node, deep=True))
            if key in seen:
                problem = f"the key {key!r} is given twice"
                raise yaml.constructor.ConstructorError(None, None, problem, key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep=deep)


_StrictLoader.yaml_implicit_resolvers = {}
for _tag, _pattern, _first in _WORDS:
    _StrictLoader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(rf"^(?:{_pattern})$"), _first)
_StrictLoader.add_constructor("tag:yaml.org,2002:int", lambda _, node: int(node.value))


def read_yaml(path: Path) -> Any:
    """Return the values of a YAML file; ValueError if it cannot be read, is too large, or as for `load_yaml`."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("cannot be read: it is not a regular file")
        if status.st_size > _MOST_BYTES:
            raise ValueError(f"cannot be read: it has {status.st_size:,} bytes, more than {_MOST_BYTES:,}")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError("cannot be read: not UTF-8 text") from None
    try:
        return load_yaml(text)
    except ValueError as error:
        raise ValueError(f"is not YAML: {error}") from None


def load_yaml(text: str) -> Any:
    """Return the values of a YAML text; whatever is wrong with it is a ValueError with one line.

    By names (`&name`, `*name`) a few lines can stand for billions of values, or for one that contains itself: refused.
    """
    try:
        loader = _StrictLoader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        _check_size(node)
        return loader.construct_document(node)
    except RecursionError:
        raise ValueError(f"its values are nested deeper than {_DEEPEST} levels") from None
    except (yaml.YAMLError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError) as error:
        # Only YAMLError is documented; the others are what Python's numbers and dates make of `!!int abc`.
        raise ValueError(" ".join(str(error).split())[:300] or type(error).__name__) from None


def _check_size(root: yaml.Node) -> None:
    """Refuse what has too many values, repeated ones counted as often as they are named, or is not text."""
    waiting, count = [(root, 1)], 0
    while waiting:
        node, depth = waiting.pop()
        count += 1
        if depth > _DEEPEST:
            raise ValueError(f"its values are nested deeper than {_DEEPEST} levels, or contain themselves")
        if count > _MOST_VALUES:
            raise ValueError(f"it has more than {_MOST_VALUES:,} values, repeated ones (*name) counted")
        if isinstance(node, yaml.MappingNode):
            waiting += [(child, depth + 1) for pair in node.value for child in pair]
        elif isinstance(node, yaml.SequenceNode):
            waiting += [(child, depth + 1) for child in node.value]
        elif "\0" in node.value or any("\ud800" <= sign <= "\udfff" for sign in node.value):
            raise ValueError(f"{node.value[:40]!r} holds a sign that no text may have")
