"""Attacks: many cases of one class, each in a process of its own, and what came of them.

Each case ends in one of four outcomes:

- told: a message, a refusal, or something skipped that is named with its reason;
- harmless: the result is that of undamaged input;
- silent: another result, or something lost, without a word;
- internal: a traceback, an internal error, a crash, or no end.

The last two are defects.
"""

from __future__ import annotations

import logging
import os
import re
import runpy
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path

from pipelines.runtime.cli import guarded
from tests.integration.seams.pipeline import ROOT, Result

_SECONDS = 60.0
# Words of a run that ends well about what was not as it should be.
_TOLD = re.compile(
    r"skipped: |[1-9][0-9]* skipped|warning|damaged|made again|cannot be|is missing|not sent", re.IGNORECASE
)
# Longer ones fill a terminal.
_LONGEST_MESSAGE = 3000


def script(name: str, *arguments: str | Path) -> int:
    """Run a script of `pipelines/` in this process and return its exit status."""
    path = ROOT / "pipelines" / f"{name}.py"
    sys.argv = [str(path), *map(str, arguments)]
    sys.path.insert(0, str(path.parent))
    try:
        runpy.run_path(str(path), run_name="__main__")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


def forked(run: Callable[[], object], seconds: float = _SECONDS) -> Result:
    """Run a function in a fork of this process, as a command runs; a status below 0 is the signal that ended it."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = os.fork()
        if child == 0:
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
            os._exit(_as_command(run))
        end = time.monotonic() + seconds
        while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0):
            if time.monotonic() > end:
                os.kill(child, signal.SIGKILL)
                ended = os.waitpid(child, 0)
                break
            time.sleep(0.002)
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode(errors="backslashreplace"))
    return Result(os.waitstatus_to_exitcode(ended[1]), *texts)


def _as_command(run: Callable[[], object]) -> int:
    logging.root.handlers = []  # those of this process
    sys.stdout = open(1, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
    try:
        status = guarded(lambda: code if isinstance(code := run(), int) else 0)
    except BaseException:  # noqa: BLE001 (whatever leaves a command is a traceback to its user)
        traceback.print_exc()
        status = 70
    sys.stdout.flush()
    sys.stderr.flush()
    return status


def outcome(result: Result, correct: Callable[[str], bool]) -> str:
    """Classify what came of a command."""
    if result.is_internal or result.code == 70:
        return "internal"
    if result.code != 0:
        message = result.err.rpartition("error: ")
        return "told" if message[1] and 0 < len(message[2].strip()) < _LONGEST_MESSAGE else "internal"
    if correct(result.out):
        return "harmless"
    return "told" if _TOLD.search(result.printed) else "silent"


def defects(results: Iterable[tuple[str, Result, Callable[[str], bool]]]) -> list[str]:
    """Describe the silent and internal ones of cases, each a name, what came of it, and whether an output is right."""
    found = []
    for case, result, correct in results:
        ended = outcome(result, correct)
        if ended in ("silent", "internal"):
            said = result.err.strip() or result.out.strip()
            found.append(f"{ended}: {case}: status {result.code}: {said[-700:]}")
    return found
