"""Names to builders: how every family of parts turns a configured name into an object, its own or a plugin's."""

import difflib
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar, get_args, get_origin

T = TypeVar("T")

_ADDED: dict[str, dict[str, Callable[..., Any]]] = {}
_ORIGINS: dict[str, str] = {}


def add(family: str, name: str, build: Callable[..., Any], origin: str) -> None:
    """Add a part to a family; ``origin`` says in messages, and next to saved models, where it comes from."""
    _ADDED.setdefault(family, {})[name] = build
    _ORIGINS[name] = origin


def added(family: str) -> Mapping[str, Callable[..., Any]]:
    """Return the builders that were added to a family, by name."""
    return _ADDED.get(family, {})


def origins(specification: Any) -> dict[str, str]:
    """Return where the added parts come from that a specification names, at any depth; by name."""
    if not isinstance(specification, Mapping):
        return {}
    name = specification.get("name")
    found = {name: _ORIGINS[name]} if name in _ORIGINS else {}
    return found | {part: origin for value in specification.values() for part, origin in origins(value).items()}


def require(owner: str, needed: Mapping[str, str]) -> None:
    """Raise ValueError if a part that a saved object needs, by what `origins` returned for it, was not added here."""
    for name, origin in needed.items():
        if name not in _ORIGINS:
            raise ValueError(
                f"{owner} needs {name!r} of {origin}: install that package, or name the file under `plugins:` in the "
                "configuration or in VSE_PLUGINS"
            )


def choose(family: str, builders: Mapping[str, Callable[..., T]], name: str, **options: Any) -> T:
    """Build ``name`` out of ``builders``; a ValueError refuses unknown names and options with the nearest known one.

    Options without a default must be given, and those that are a `Literal` have one of its values. ``family`` is what
    they build, for the message ("pooling"). ``dim`` is dropped for builders that have no use for it.
    """
    builders = {**builders, **added(family)}
    if name not in builders:
        raise ValueError(f"unknown {family} {name!r}; known: {', '.join(builders)}{_nearest(name, builders)}")
    signature = inspect.signature(builders[name])
    accepted = signature.parameters
    if "dim" not in accepted:
        options.pop("dim", None)
    for option, value in options.items():
        if option not in accepted:
            known = ", ".join(accepted) or "none"
            raise ValueError(
                f"{family} {name!r} has no option {option!r}; its options: {known}{_nearest(option, accepted)}"
            )
        kind = accepted[option].annotation
        if get_origin(kind) is Literal and value not in get_args(kind):
            raise ValueError(f"{option} of {family} {name!r} must be one of {get_args(kind)}, got {value!r}")
    try:
        signature.bind(**options)
    except TypeError as error:
        raise ValueError(f"{family} {name!r}: {error}") from error
    return builders[name](**options)


def _nearest(name: str, known: Mapping[str, Any]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""
