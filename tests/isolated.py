"""Programs in a process in which no other packages can be imported than some requirements, and what those need."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

# Hides every installed package that the requirements do not bring, as in an environment made from them alone.
_HIDE = """
import sys
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

known, left = set(), [(Requirement(line), "") for line in {requirements!r}]
while left:
    requirement, extra = left.pop()
    name = canonicalize_name(requirement.name)
    try:
        lines = distribution(name).requires or []
    except PackageNotFoundError:
        continue
    if (name, extra) not in known:
        known.add((name, extra))
        left += [(requirement, other) for other in requirement.extras]
        inner = [Requirement(line) for line in lines]
        left += [(one, "") for one in inner if one.marker is None or one.marker.evaluate({{"extra": extra}})]
names = {{name for name, _ in known}}
hidden = {{
    package for package, owners in packages_distributions().items() if not names & set(map(canonicalize_name, owners))
}} - {ours!r} - {{"packaging"}}


class Hiding:
    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] in hidden else self.finder.find_spec(name, path, target)

    def __getattr__(self, name):  # metadata of packages
        return getattr(self.finder, name)


sys.meta_path = [Hiding(finder) for finder in sys.meta_path]
"""


def run_with(requirements: Sequence[str], program: str, *arguments: str, code: Path = ROOT) -> str:
    """Run a program over the packages of ours in a folder, and return what it prints."""
    ours = {path.parent.name for path in code.glob("*/__init__.py")}
    hide = _HIDE.format(requirements=list(requirements), ours=ours)
    command = [sys.executable, "-c", hide + program, *arguments]
    run = subprocess.run(command, cwd=code, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout
