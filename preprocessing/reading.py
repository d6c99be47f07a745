"""Files that others wrote: JSON within bounds, and one error for whatever a library raises on a damaged file."""

import errno
import json
import math
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

_SURROGATE = re.compile(r"\\ud[89a-f]", re.IGNORECASE)
_LARGEST_INTEGER = 2**63
_OURS = ("preprocessing.", "pipelines.", "vse_core.")
# Errors of the operating system whose cause is the machine and not the file.
_OF_MACHINE = {errno.EACCES, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ESTALE}


@contextmanager
def damage_as(failure: type[Exception], what: str, remedy: str) -> Iterator[None]:
    """Turn whatever a library raises on a file that is missing, damaged or of another kind into one error.

    If memory ran out, the message says that first: it may be no fault of the file.

    Args:
        failure: class of the error; it passes as it is, and so does any other of our own.
        what: the file and what is wrong with it, for the message: "FILE: not a readable npy file".
        remedy: what to do about it.
    """
    try:
        yield
    except Exception as error:  # every library has its own, and a file that was changed reaches code for any of them
        if type(error).__module__.startswith(_OURS):
            raise
        if memory_ran_out(error):
            short = f"memory ran out ({reason(error)}): free some and try again; if it happens again: "
            raise failure(f"{short}{what}; {remedy}") from error
        raise failure(f"{what} ({reason(error)}); {remedy}") from error


def is_of_machine(error: BaseException) -> bool:
    """Return whether the cause of an error is the machine and not a file: memory, permissions or the disk failed."""
    if memory_ran_out(error) or (isinstance(error, OSError) and error.errno in _OF_MACHINE):
        return True
    return error.__cause__ is not None and is_of_machine(error.__cause__)


def memory_ran_out(error: BaseException) -> bool:
    """Return whether an error means that memory is short; NumPy's and Arrow's are MemoryErrors, PyTorch's say it."""
    words = ("allocate memory", "out of memory", "failed to map segment")  # the last of a library that is loaded
    return isinstance(error, MemoryError) or any(each in str(error) for each in words)


def reason(error: BaseException) -> str:
    """Return the first line of an error's message, of a KeyError that a key is missing."""
    if isinstance(error, KeyError):
        return f"there is no {error}"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return (str(error).strip() or type(error).__name__).splitlines()[0][:300]


def parse_json(text: str | bytes, any_text: bool = False, any_number: bool = False) -> Any:
    """Parse JSON from outside; every fault is a ValueError.

    Besides what is not JSON, it refuses what later code would stumble over: numbers beyond 64 bits, values nested too
    deeply, but for `any_text` text that no file can hold (halves of characters), and numbers that are not finite, which
    are None for `any_number`: programs write NaN for what is missing.
    """
    text = text if isinstance(text, str) else text.decode("utf-8-sig")
    try:
        constant = _nothing if any_number else _refuse
        value = json.loads(text, parse_int=_integer, parse_float=partial(_number, constant), parse_constant=constant)
        if not any_text and _SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError as error:
        raise ValueError("its values are nested too deeply") from error
    except UnicodeEncodeError as error:
        raise ValueError(f"it holds {error.object[error.start]!r}, a half of a character") from error
    return value


def _integer(digits: str) -> int:
    if len(digits) > 20 or not -_LARGEST_INTEGER <= int(digits) < _LARGEST_INTEGER:
        raise ValueError(f"it holds a number of {len(digits)} digits, beyond 64 bits")
    return int(digits)


def _number(constant: Callable[[str], float | None], text: str) -> float | None:
    value = float(text)
    return value if math.isfinite(value) else constant(text)


def _nothing(_text: str) -> None:
    """What stands for no number."""


def _refuse(text: str) -> NoReturn:
    raise ValueError(f"it holds {text[:40]}, which is not a finite number")


def has_image_settings(folder: Path) -> bool:
    """Return whether a folder of transformers or timm says how images are prepared for its network.

    transformers writes preprocessor_config.json, or since version 5, with a tokenizer, a part of processor_config.json;
    timm writes a part of config.json.
    """
    parts = {"processor_config.json": b'"image_processor"', "config.json": b'"pretrained_cfg"'}
    return (folder / "preprocessor_config.json").is_file() or any(
        (folder / name).is_file() and part in (folder / name).read_bytes() for name, part in parts.items()
    )
