"""Errors as the user sees them: one message; of an unexpected error the traceback is kept in a file, to be reported."""

import contextlib
import errno
import os
import platform
import shutil
import sys
import tempfile
import traceback
from pathlib import Path

from preprocessing.reading import memory_ran_out
from preprocessing.storage.redaction import redacted

# A disk that is full, over its quota, read-only, not ours, or broken.
_DISK_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EIO}
# Names that no file can have.
_NAME_ERRORS = {errno.ENAMETOOLONG, errno.ELOOP}
# The words of the kernel, of SQLite, and of what Rust and C++ libraries make of the former.
_FULL = ("No space left on device", "disk is full", "Disk quota exceeded")
# Bytes; a disk with less has no room for any output of ours.
_NO_ROOM = 1_000_000

_PACKAGES = {"pipelines", "preprocessing", "vse_core", "infra"}
# What pip installs for packages that not every installation has; others are installed by their own name.
_EXTRAS = {
    "vse-core[serve]": (
        *("faiss", "fastapi", "fastapi_offline", "httptools", "PIL"),
        *("prometheus_client", "pyarrow", "uvicorn", "xxhash"),
    ),
    "vse-core[images]": ("peft", "torchvision"),
    "vse-pipeline[export]": ("onnx", "onnxruntime", "onnxscript", "sentence_transformers"),
    "vse-pipeline[features]": ("av", "h5py"),
    "vse-pipeline[server]": ("psycopg2",),
    "vse-pipeline": ("boto3", "matplotlib", "mlflow", "nltk", "pandas", "ray", "spacy", "timm", "webdataset"),
}


def has_message(error: BaseException) -> bool:
    """Return whether an error is of one of our own classes, whose messages say what was wrong and how to fix it."""
    classes = (kind for kind in type(error).__mro__ if kind.__module__.partition(".")[0] in _PACKAGES)
    return any(not kind.__name__.startswith("_") for kind in classes)


def missing_package(error: BaseException) -> str | None:
    """Describe a package that is not installed, with the command of pip that installs it; None for any other error."""
    package = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    if not package or package in _PACKAGES:
        return None
    extra = next((extra for extra, packages in _EXTRAS.items() if package in packages), package)
    return f"the package {package} is not installed: pip install '{extra}'"


def resource_message(error: BaseException) -> str | None:
    """Describe an error of memory or of a disk, or a name that no file can have; None for any other error."""
    if memory_ran_out(error):
        return (
            f"memory ran out ({in_one_line(error)}): lower batch sizes, actors or workers, end other programs, or use "
            "a larger machine"
        )
    if isinstance(error, OSError) and error.errno in _NAME_ERRORS:
        return f"{error.strerror}: {str(error.filename)[:60]}...; use another name"
    if is_disk_error(error):
        name = getattr(error, "filename", None)
        folders = [str(name)] if name else full_folders() or ["an output, or where stdout goes"]
        where = "" if name and str(name) in str(error) else f" (on the disk of {' and '.join(folders)})"
        return f"{in_one_line(error)}{where}: make room there, or fix it, and run the same command again"
    return None


def is_disk_error(error: BaseException) -> bool:
    """Return whether a disk is full, or cannot be written to; few libraries raise an OSError with its number."""
    number = error.errno if isinstance(error, OSError) else None
    return number in _DISK_ERRORS or any(words in str(error) for words in _FULL)


def full_folders() -> list[str]:
    """Return the folders of temporary files and of our work whose disk is full."""
    work_dir = os.environ.get("VSE_WORK_DIR") or Path("~/vse-work").expanduser()
    ray_dir = os.environ.get("RAY_TMPDIR") or "/tmp/ray"
    found = []
    for folder in map(Path, (tempfile.gettempdir(), ray_dir, "/dev/shm", work_dir, ".")):
        with contextlib.suppress(OSError):
            if shutil.disk_usage(folder).free < _NO_ROOM:
                found.append(str(folder.absolute()))
    return list(dict.fromkeys(found))


def in_one_line(error: BaseException) -> str:
    """Return the class and the message of an error in a line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}".removesuffix(": ")


def keep_details(error: BaseException) -> str:
    """Write an error with its traceback to a file of its owner alone; return its name, or without room the details."""
    versions = f"Python {platform.python_version()}, {platform.platform()}, {sys.argv[0]}"
    text = redacted(f"{versions}\n{''.join(traceback.format_exception(error))}")
    try:
        with tempfile.NamedTemporaryFile("wb", prefix="vse-error-", suffix=".log", delete=False) as file:
            file.write(text.encode(errors="backslashreplace"))
    except OSError:
        return f"details:\n{text}"
    return f"details in {file.name}"
