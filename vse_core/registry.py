"""Names to builders: how every family of parts turns a configured name into an object."""

import difflib
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")


def choose(family: str, builders: Mapping[str, Callable[..., T]], name: str, **options: Any) -> T:
    """Build ``name`` out of ``builders``; a ValueError refuses unknown names and options with the nearest known one.

    ``family`` is what they build, for the message ("pooling"). ``dim`` is dropped for builders that have no use for it.
    """
    if name not in builders:
        raise ValueError(f"unknown {family} {name!r}; known: {', '.join(builders)}{_nearest(name, builders)}")
    accepted = inspect.signature(builders[name]).parameters
    if "dim" not in accepted:
        options.pop("dim", None)
    for option in options:
        if option not in accepted:
            known = ", ".join(accepted) or "none"
            raise ValueError(
                f"{family} {name!r} has no option {option!r}; its options: {known}{_nearest(option, accepted)}"
            )
    return builders[name](**options)


def _nearest(name: str, known: Mapping[str, Any]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""
