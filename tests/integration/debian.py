"""Programs of Debian's packages that tests start; installed where they are missing and this process may do so."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
import unittest
from collections.abc import Sequence
from pathlib import Path


class UnavailableError(unittest.SkipTest):
    """A server, browser or host cannot be started here, and pytest skips the test; the message says why."""


def require(programs: Sequence[str], packages: Sequence[str]) -> None:
    """Install packages unless their programs are there.

    Args:
        programs: commands, or patterns of files.
        packages: that hold them.

    Raises:
        UnavailableError: this process may not install them, or this system has no such packages.
    """
    # Another process of the same session may be installing something.
    with (Path(tempfile.gettempdir()) / "vse-apt.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if all(map(_is_there, programs)):
            return
        if shutil.which("apt-get") is None or os.geteuid() != 0:
            wanted = " ".join(packages)
            raise UnavailableError(f"missing; as root: apt-get install --no-install-recommends {wanted}")
        # At run level 1 the packages start no servers of their own.
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
        for arguments in (["update"], ["install", "-y", "--no-install-recommends", *packages]):
            command = ["apt-get", "-q", *arguments]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise UnavailableError(f"{' '.join(command)} fails: {done.stderr.strip()[-300:]}")


def _is_there(program: str) -> bool:
    if program.startswith("/"):
        return any(Path("/").glob(program[1:]))
    return shutil.which(program) is not None
