"""The error of a file of a model that is damaged, whatever the library raised that read it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class DamageError(ValueError):
    """A file cannot be what was saved; the message names it."""


@contextmanager
def damage_named(path: Path) -> Iterator[None]:
    """Turn an error of reading a file into a DamageError that names it, but for one that is not there."""
    try:
        yield
    except FileNotFoundError:
        raise
    except Exception as error:  # JSON, safetensors and torch each have their own
        what = (str(error).strip() or type(error).__name__).splitlines()[0][:300]
        raise DamageError(f"{path} is damaged ({what}): restore it from a copy") from error
