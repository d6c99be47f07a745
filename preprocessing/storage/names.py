"""Names that come from outside: keys of a bucket, entries of lists, manifests, sidecars, archives and bundles."""

import os
import re
from pathlib import Path, PurePosixPath

_DRIVE = re.compile("[A-Za-z]:")


def require_inner_name(name: object, where: str, error: type[Exception]) -> str:
    """Return a name that may be joined to a folder: it leads to something inside, on any operating system.

    Args:
        name: as it was found.
        where: the place that it was found in, for the message.
        error: raised for a name that is empty, absolute or no text, or has a drive, `..`, a backslash or a NUL.
    """
    if not isinstance(name, str) or not PurePosixPath(name).parts:
        raise error(f"{where}: {name!r:.80} is no name of a file; it has to be a text that is not empty")
    if name.startswith("/") or ".." in name.split("/") or "\\" in name or "\0" in name or _DRIVE.match(name):
        raise error(
            f"{where}: the name {name!r:.200} is not a path inside its folder (it is absolute, or has .., a drive, a "
            "backslash or a NUL): nothing under it is read or written; rename it there, or remove it"
        )
    return name


def leads_out(path: str, folder: str) -> bool:
    """Return whether a local file lies outside a folder once all links on the way to it are followed."""
    return not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))
