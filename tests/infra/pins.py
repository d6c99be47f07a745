"""Versions that the files of infra/ pin, and those that the project declares."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
INFRA = ROOT / "infra"


def constraints() -> dict[str, str]:
    """Package -> version in the images, with names as pip compares them."""
    lines = (INFRA / "docker" / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pairs = (line.split("==") for line in lines if line and not line.startswith("#"))
    return {normalized(name): version for name, version in pairs}


def declared() -> list[Requirement]:
    """Return the requirements of the project and of its extra for the server."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [Requirement(line) for line in (*project["dependencies"], *project["optional-dependencies"]["server"])]


def normalized(name: str) -> str:
    """A package's name as pip compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def image_tag(variant: str) -> str:
    """The tag of our image: our version, Ray's, and whether it is for GPUs."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return f"vse-pipeline:{project['version']}-ray{constraints()['ray']}-{variant}"
