"""Versions that the files of infra/ pin, and those that the project declares."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
INFRA = ROOT / "infra"


def constraints(path: Path = INFRA / "docker" / "constraints.txt") -> dict[str, str]:
    """Package -> version in the images, with names as pip compares them."""
    pairs = re.findall(r"^([\w.-]+)==(\S+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {normalized(name): version for name, version in pairs}


def declared() -> list[Requirement]:
    """Return the requirements of the project and of the extras in the images."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    return [Requirement(line) for line in (*project["dependencies"], *extras["server"], *extras["features"])]


def normalized(name: str) -> str:
    """A package's name as pip compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def image_tag(variant: str) -> str:
    """The tag of our image: our version, Ray's, and whether it is for GPUs."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return f"vse-pipeline:{project['version']}-ray{constraints()['ray']}-{variant}"
