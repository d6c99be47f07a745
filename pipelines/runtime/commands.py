"""The commands that messages name."""

import contextlib
import shlex
from pathlib import Path

_HOME = Path(__file__).resolve().parents[2]
# Verbs of `vse` alone.
_OF_VSE = {
    "configs": _HOME / "pipelines" / "config" / "packaged.py",
    "init": _HOME / "pipelines" / "config" / "first.py",
    "ui": _HOME / "pipelines" / "tracking" / "ui.py",
}


class Caller:
    """How the user has called this process: by the command `vse` and a verb, by `import vse`, or by a script."""

    is_vse, verb = False, ""


def scripts() -> dict[str, Path]:
    """Return the script of each verb, in alphabetical order."""
    files = [path for folder in ("pipelines", "infra") for path in (_HOME / folder).glob("[!_]*.py")]
    found = {path.stem: path for path in files if "__main__" in path.read_text(encoding="utf-8")}
    return dict(sorted({**found, **_OF_VSE}.items()))


def command(verb: str, *arguments: str) -> str:
    """Return how a verb is called from the current directory: by `vse` if the user calls it so, else by its script."""
    if Caller.is_vse or verb in _OF_VSE:
        return shlex.join(["vse", verb, *arguments])
    script = _HOME / "pipelines" / f"{verb}.py"
    with contextlib.suppress(ValueError, OSError):
        script = script.relative_to(Path.cwd())
    return shlex.join(["python", str(script), *arguments])
