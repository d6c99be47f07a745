"""The process that holds a lock, as the lock names it, and whether it may still live."""

import os
import secrets
import socket
import time
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, ValidationError


class Holder(BaseModel):
    """A process, as the contents of a lock: its machine, kernel and table of processes, its number and start there.

    `kernel` is the machine's since it was started, `since` the time in seconds when the lock was taken, and the token
    tells two locks of one process apart. Without one, the lock names nobody, or is just being written.
    """

    model_config = ConfigDict(frozen=True)

    host: str = ""
    kernel: str = ""
    processes: str = ""
    pid: int = 0
    began: str | None = None
    since: float = 0.0
    token: str = ""

    @classmethod
    def of_this_process(cls) -> Self:
        """Return this process; the token stands for the kernel if the system has no name for it."""
        pid, token = os.getpid(), secrets.token_hex(16)
        kernel = _line("/proc/sys/kernel/random/boot_id") or token
        host, since = socket.gethostname(), time.time()
        return cls(
            host=host, kernel=kernel, processes=_processes(), pid=pid, began=_began(pid), since=since, token=token
        )

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """Return the holder that a lock's contents name."""
        try:
            return cls.model_validate_json(data)
        except ValidationError:
            return cls()

    def may_live(self) -> bool:
        """Return whether it may still hold the lock: not if it was a process of this machine that has ended."""
        is_here = (self.host, self.processes) == (socket.gethostname(), _processes())
        return bool(self.token) and not (is_here and _began(self.pid) != self.began)

    def __str__(self) -> str:
        """Return the process in words, for a message."""
        if not self.token:
            return "another process, which has just begun"
        began = time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(self.since))
        minutes = max(0.0, time.time() - self.since) / 60
        return f"process {self.pid} on {self.host}, since {began} ({minutes:.0f} minutes)"


def _processes() -> str:
    """Return the name of this container's or machine's table of processes, "" if the system has no names for them."""
    try:
        return os.readlink("/proc/self/ns/pid")  # noqa: PTH115
    except OSError:
        return ""


def _began(pid: int) -> str | None:
    """Return when a process was started, in the kernel's ticks; None if there is none alive."""
    fields = _line(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return None if not fields or fields[0] in "ZX" else fields[19]


def _line(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return ""
