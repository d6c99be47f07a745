"""The commands that messages name."""

import contextlib
import shlex
from pathlib import Path

_SCRIPTS = Path(__file__).resolve().parents[1]


class Caller:
    """How the user has called this process: by the command `vse`, or by a script."""

    is_vse = False


def command(verb: str, *arguments: str) -> str:
    """Return how a verb is called from the current directory: by `vse` if the user calls it so, else by its script."""
    if Caller.is_vse:
        return shlex.join(["vse", verb, *arguments])
    script = _SCRIPTS / f"{verb}.py"
    with contextlib.suppress(ValueError, OSError):
        script = script.relative_to(Path.cwd())
    return shlex.join(["python", str(script), *arguments])
