"""Runs a case in its copy of the world and judges it: status, message, traceback, what was written, and the results."""

from __future__ import annotations

import contextlib
import fnmatch
import logging
import os
import re
import tempfile
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.integration.seams.hostile import damage, entries
from tests.integration.seams.hostile.case import Case
from tests.integration.seams.pipeline import Pipeline

_MESSAGE = re.compile(r"^error: ", re.MULTILINE)
_LONGEST_MESSAGE = 1500


@dataclass(frozen=True)
class Judged:
    """What came of a case; `faults` is empty where all is as it must be."""

    status: int
    printed: str
    faults: tuple[str, ...] = ()


def judge(case: Case, undamaged: Pipeline, folder: Path) -> Judged:
    """Copy the world, damage it, run the case, and compare."""
    world = undamaged.copy(folder)
    for each in case.damage:
        damage.apply(world.root, each)
    before = world.files()
    with _printed(world) as printed:
        status = _run(case, world)
    text = printed.read_bytes().decode(errors="replace")
    after = world.files()
    judged = Judged(status, text)
    faults = [*_said(case, judged), *_written(case, before, after), *_results(case, undamaged, after)]
    return Judged(status, text, tuple(faults))


def _run(case: Case, world: Pipeline) -> int:
    places = {"root": str(world.root), "work": str(world.work), "photos": str(world.root / "photos")}
    words = []
    for word in case.run:
        for name, place in places.items():
            word = word.replace(f"{{{name}}}", place)
        if "*" in word and word.startswith("/"):
            (found,) = world.root.glob(Path(word).relative_to(world.root).as_posix())
            word = str(found)
        words.append(word)
    try:
        return entries.run(words)
    except BaseException:  # noqa: BLE001 (whatever leaves a script is a traceback to its user)
        traceback.print_exc()
        return 70


def _said(case: Case, judged: Judged) -> Iterator[str]:
    if judged.status != case.expected_status:
        yield f"exit status {judged.status} instead of {case.expected_status}"
    if "Traceback (most recent call last)" in judged.printed or "internal error" in judged.printed:
        yield "a traceback or an internal error"
    if case.message and not re.search(case.message, judged.printed):
        yield f"no {case.message!r} in what it printed"
    if case.absent and re.search(case.absent, judged.printed):
        yield f"{case.absent!r} in what it printed"
    messages = len(_MESSAGE.findall(judged.printed))
    if case.outcome == "refused" and messages != 1:
        yield f"{messages} messages instead of one"
    if case.outcome == "refused" and len(judged.printed.rpartition("error: ")[2]) > _LONGEST_MESSAGE:
        yield "a message of more than a screen"


def _written(case: Case, before: dict[str, bytes], after: dict[str, bytes]) -> Iterator[str]:
    """Yield what changed outside the work folder and that of temporary files; inside as well where it may not."""
    for name in sorted(before.keys() | after.keys()):
        is_inside = name.startswith("work/")
        if before.get(name) != after.get(name) and not name.startswith("tmp/") and (case.unwritten or not is_inside):
            yield f"{name} was written"


def _results(case: Case, undamaged: Pipeline, after: dict[str, bytes]) -> Iterator[str]:
    wanted = undamaged.files() if case.same else {}
    for pattern in case.same:
        names = fnmatch.filter(wanted, pattern)
        if not names:
            yield f"{pattern} is nothing of the undamaged world"
        yield from (f"{name} has other bytes than undamaged" for name in names if after.get(name) != wanted[name])


@contextlib.contextmanager
def _printed(world: Pipeline) -> Iterator[Path]:
    """Send all output of this process to a file, with the case's own home and folder for temporary files."""
    own = {"HOME": str(world.root / "home"), "VSE_WORK_DIR": str(world.work)}
    own |= dict.fromkeys(("TMPDIR", "MPLCONFIGDIR"), str(world.root / "tmp"))
    environment, directory, temporary = dict(os.environ), Path.cwd(), tempfile.tempdir
    handlers, logging.root.handlers = logging.root.handlers, []  # they hold the output of before
    file = world.root / "tmp" / "printed.txt"
    kept = os.dup(1), os.dup(2)
    os.environ.update(own)
    os.chdir(world.root)
    tempfile.tempdir = None
    try:
        with (
            file.open("w", encoding="utf-8", errors="backslashreplace", buffering=1) as target,
            contextlib.redirect_stdout(target),
            contextlib.redirect_stderr(target),
        ):
            for number in (1, 2):
                os.dup2(target.fileno(), number)
            yield file
    finally:
        for number, descriptor in zip((1, 2), kept, strict=True):
            os.dup2(descriptor, number)
            os.close(descriptor)
        logging.root.handlers = handlers
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(directory)
        tempfile.tempdir = temporary
