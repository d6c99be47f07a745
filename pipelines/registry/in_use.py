"""The versions that processes of this machine have loaded, by locks that the kernel releases with them."""

import fcntl
import logging
import os
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from pipelines.schema.fields import default_work_dir
from pipelines.tracking.client import database_of
from preprocessing.storage.atomic import locked
from preprocessing.storage.mirror import lock_file

log = logging.getLogger(__name__)

_SERVING = "serving"


@contextmanager
def in_use(pinned: str, tracking_uri: str) -> Iterator[None]:
    """Mark NAME/VERSION as used within the block, or warn that this cannot be done; others need no mark."""
    with ExitStack() as stack:
        if re.fullmatch(r"[^/]+/\d+", pinned):
            root = folder_of_marks(tracking_uri)
            try:
                root.stat()  # it is not made for a mark: no other command would look there
                stack.enter_context(locked(lock_file(root, root / _SERVING / pinned, _SERVING), fcntl.LOCK_SH))
            except OSError as error:
                log.warning(
                    "%s is not protected from `vse prune`, as %s cannot be written to (%s): set VSE_WORK_DIR to the "
                    "work_dir of the configuration, or give this version an alias",
                    pinned,
                    root,
                    error.strerror,
                )
        yield


def folder_of_marks(tracking_uri: str) -> Path:
    """Return the folder of a database, which all processes with its models know; else the default work folder."""
    database = database_of(tracking_uri)
    return default_work_dir() if database is None else database.parent


def versions_in_use(name: str, root: Path) -> Iterator[int]:
    """Yield the versions of a registered model that are marked in a folder."""
    for file in (root / "locks" / _SERVING / name).glob(f"*/{_SERVING}.lock"):
        try:
            # Another user's service has made a file that we may only read.
            with locked(file, fcntl.LOCK_EX | fcntl.LOCK_NB, os.O_RDWR if os.access(file, os.W_OK) else os.O_RDONLY):
                pass
        except BlockingIOError:
            yield int(file.parent.name)
