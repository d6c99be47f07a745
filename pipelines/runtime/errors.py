"""Errors as the user sees them: one message; of an unexpected error the traceback is kept in a file, to be reported."""

import platform
import sys
import tempfile
import traceback

from preprocessing.storage.redaction import redacted

_PACKAGES = {"pipelines", "preprocessing", "vse_core", "infra"}


def has_message(error: BaseException) -> bool:
    """Return whether an error is of one of our own classes, whose messages say what was wrong and how to fix it."""
    classes = (kind for kind in type(error).__mro__ if kind.__module__.partition(".")[0] in _PACKAGES)
    return any(not kind.__name__.startswith("_") for kind in classes)


def in_one_line(error: BaseException) -> str:
    """Return the class and the message of an error in a line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}".removesuffix(": ")


def keep_details(error: BaseException) -> str:
    """Write an error with its traceback to a file that only its owner reads; return its name for a message.

    Where there is no room for a file, the details themselves are returned.
    """
    versions = f"Python {platform.python_version()}, {platform.platform()}, {sys.argv[0]}"
    text = redacted(f"{versions}\n{''.join(traceback.format_exception(error))}")
    try:
        with tempfile.NamedTemporaryFile("wb", prefix="vse-error-", suffix=".log", delete=False) as file:
            file.write(text.encode(errors="backslashreplace"))
    except OSError:
        return f"details:\n{text}"
    return f"details in {file.name}"
