"""Turn pydantic's errors into messages that name the key and the remedy."""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from pipelines.config.layers import Layer, did_you_mean
from pipelines.schema.variants import Variants
from preprocessing.storage.redaction import HIDDEN, SECRET_NAME, redacted_values


def explain(error: ValidationError, root: type[BaseModel], values: Mapping[str, Any], layers: Sequence[Layer]) -> str:
    """Describe everything that a validation found wrong, each with its key, its value and where that came from.

    `values` were validated for the model class `root`, and merged from `layers`.
    """
    fields = dict(_fields(root, values))
    by_path: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for details in error.errors():
        by_path.setdefault(_setting(tuple(map(str, details["loc"])), fields), []).append(details)
    problems = [_problem(path, errors, fields, layers) for path, errors in by_path.items()]
    if len(problems) == 1:
        return problems[0]
    return "\n  ".join([f"{len(problems)} problems in the configuration:", *problems])


def _setting(location: tuple[str, ...], fields: Mapping[str, FieldInfo]) -> tuple[str, ...]:
    """Return the path of the setting that is wrong: of one of several types, pydantic names the type behind it, too."""
    for end in range(1, len(location)):
        field = fields.get(".".join(location[:end]))
        if field is not None and _has_types(field):
            return location[:end]
    return location


def _has_types(field: FieldInfo) -> bool:
    """Return whether a field has several types, None aside, of which no key chooses one."""
    if get_origin(field.annotation) not in (Union, UnionType):
        return False
    types = set(get_args(field.annotation)) - {NoneType}
    return len(types) > 1 and not any(isinstance(variants, Variants) for variants in field.metadata)


def _problem(
    path: tuple[str, ...],
    errors: Sequence[Mapping[str, Any]],
    fields: Mapping[str, FieldInfo],
    layers: Sequence[Layer],
) -> str:
    """Turn pydantic's errors about one setting into `key: what is wrong, got VALUE (from ORIGIN); remedy`."""
    error, key = errors[0], ".".join(path)
    kind, context, message = error["type"], error.get("ctx", {}), _message(error)
    if not path:
        return message
    meaning = fields[key].description if key in fields else None
    if kind == "missing":
        return f"{key}: is missing{f' ({meaning})' if meaning else ''}; add it to the configuration or --set {key}=..."
    origin = _origin(path, layers)
    if kind == "extra_forbidden":
        value = HIDDEN if SECRET_NAME.fullmatch(path[-1]) else f"{redacted_values(error['input'])!r:.200}"
        return f"{key}: unknown key with the value {value}{origin}{_nearest_key(key, fields)}"
    if kind.startswith("union_tag"):
        return _variant_problem(key, context, error["input"], origin)
    if len(errors) == 1 and kind == "literal_error":
        hint = did_you_mean(str(error["input"]), _choices(error))
        return f"{key}: {message}; got {error['input']!r:.200}{origin}{hint}"
    if len(errors) == 1 and kind == "value_error":
        return f"{key}: {message}{origin}"
    got = f"got {error['input']!r:.200}"
    expected = ", or ".join(dict.fromkeys(_message(other).removesuffix(f", {got}") for other in errors))
    return f"{key}: {expected}; {got}{origin}{f'. Meaning: {meaning}' if meaning else ''}"


def _message(error: Mapping[str, Any]) -> str:
    """Return what one of pydantic's errors says, in our words."""
    if error["type"] == "literal_error":
        choices = _choices(error)
        return f"must be {'one of ' if len(choices) > 1 else ''}{', '.join(choices)}"
    return str(error["msg"]).removeprefix("Value error, ").removeprefix("Input ").partition(", unable to interpret")[0]


def _choices(error: Mapping[str, Any]) -> list[str]:
    return re.findall(r"'([^']*)'", error["ctx"]["expected"])


def _variant_problem(key: str, context: Mapping[str, Any], value: Any, origin: str) -> str:
    """Describe a mapping whose variant (`name`, `format`, `extractor`) is missing, unknown, or not a mapping at all."""
    discriminator = str(context["discriminator"]).strip("'")
    choices = re.findall(r"'([^']*)'", str(context.get("expected_tags", "")))
    if not isinstance(value, Mapping):
        return f"{key}: must be a mapping with the key {discriminator!r}; got {value!r:.200}{origin}"
    if discriminator not in value:
        return f"{key}.{discriminator}: is missing; it says which variant of {key} is meant{origin}"
    tag, expected = value[discriminator], ", ".join(choices) or "those that plugins add, none so far"
    return f"{key}.{discriminator}: must be one of {expected}; got {tag!r:.99}{origin}{did_you_mean(str(tag), choices)}"


def _origin(path: Sequence[str], layers: Sequence[Layer]) -> str:
    """Say which layer a value came from: the last that has the key."""
    for layer in reversed(layers):
        node: Any = layer.values
        for part in path:
            node = node.get(part, Layer) if isinstance(node, Mapping) else Layer
        if node is not Layer:
            return f" (from {layer.origin})"
    return ""


def _model_of(field: FieldInfo, values: Any) -> type[BaseModel] | None:
    """Return the model class that `values` of a field are meant for."""
    for variants in field.metadata:
        if isinstance(variants, Variants):
            return variants.classes.get(str(values.get(variants.key))) if isinstance(values, Mapping) else None
    annotation = field.annotation
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None


def _fields(model: type[BaseModel], values: Any, prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Yield the keys in dots of a model class, and of the classes within it that the values choose."""
    for name, field in model.model_fields.items():
        yield prefix + name, field
        child = values.get(name) if isinstance(values, Mapping) else None
        if (section := _model_of(field, child)) is not None:
            yield from _fields(section, child, f"{prefix}{name}.")


def _nearest_key(key: str, fields: Iterable[str]) -> str:
    """Suggest a key: a similar one in the same mapping, else one anywhere of a similar last part, else all siblings."""
    section, _, name = key.rpartition(".")
    siblings = [other for other in fields if other.rpartition(".")[0] == section]
    for others in (siblings, fields):
        by_name = {other.rpartition(".")[2]: other for other in reversed(list(others))}
        if close := difflib.get_close_matches(name, by_name, n=1):
            return f"; did you mean {by_name[close[0]]}?"
    return f"; the keys there are {', '.join(siblings)}"
