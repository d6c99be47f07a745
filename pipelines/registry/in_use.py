"""The versions that processes of this machine have loaded, by locks that the kernel releases with them."""

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from pipelines.schema.fields import default_work_dir
from preprocessing.storage.atomic import locked
from preprocessing.storage.mirror import lock_file

_SERVING = "serving"


@contextmanager
def in_use(pinned: str) -> Iterator[None]:
    """Mark NAME/VERSION as used within the block, if the work folder can be written to; others need no mark."""
    root = default_work_dir()
    with ExitStack() as stack:
        if re.fullmatch(r"[^/]+/\d+", pinned) and root.is_dir():
            with suppress(OSError):
                stack.enter_context(locked(lock_file(root, root / _SERVING / pinned, _SERVING), fcntl.LOCK_SH))
        yield


def versions_in_use(name: str, root: Path) -> Iterator[int]:
    """Yield the versions of a registered model that are marked in a work folder."""
    for file in (root / "locks" / _SERVING / name).glob(f"*/{_SERVING}.lock"):
        try:
            with locked(file, fcntl.LOCK_EX | fcntl.LOCK_NB, os.O_RDWR):
                pass
        except BlockingIOError:
            yield int(file.parent.name)
