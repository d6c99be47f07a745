"""The commands that messages name."""

import contextlib
import shlex
from pathlib import Path

_HOME = Path(__file__).resolve().parents[2]


class Caller:
    """How the user has called this process: by the command `vse`, or by a script."""

    is_vse = False


def scripts() -> dict[str, Path]:
    """Return the script of each verb, in alphabetical order."""
    files = [path for folder in ("pipelines", "infra") for path in (_HOME / folder).glob("[!_]*.py")]
    return {path.stem: path for path in sorted(files, key=lambda path: path.stem) if "__main__" in path.read_text()}


def command(verb: str, *arguments: str) -> str:
    """Return how a verb is called from the current directory: by `vse` if the user calls it so, else by its script."""
    if Caller.is_vse:
        return shlex.join(["vse", verb, *arguments])
    script = _HOME / "pipelines" / f"{verb}.py"
    with contextlib.suppress(ValueError, OSError):
        script = script.relative_to(Path.cwd())
    return shlex.join(["python", str(script), *arguments])
