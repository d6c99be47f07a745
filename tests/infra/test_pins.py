"""Pins of Dockerfiles and constraints, against the requirements that the project declares."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.infra.pins import INFRA, ROOT, constraints, declared, image_tag, normalized

DOCKERFILES = sorted(INFRA.rglob("Dockerfile"))
SCRIPTS = sorted(INFRA.rglob("*.sh"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_scripts_can_be_executed(path: Path) -> None:
    assert path.stat().st_mode & 0o111, f"{path} cannot be executed"


def test_pins_are_what_the_project_declares() -> None:
    pins = constraints()
    for requirement in declared():
        assert requirement.specifier.contains(pins[normalized(requirement.name)]), requirement


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.parent.name)
def test_packages_named_in_a_dockerfile_are_pinned_as_everywhere(path: Path) -> None:
    named = re.findall(r"([\w.-]+)==([\w.]+)", path.read_text(encoding="utf-8"))
    assert named
    assert {normalized(name): version for name, version in named}.items() <= constraints().items()


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.parent.name)
def test_bases_are_pinned_and_what_is_copied_is_there(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    stages = set(re.findall(r" AS (\w+)", text))
    for base in re.findall(r"^FROM (\S+)", text, re.MULTILINE):
        assert base in stages or base == "${VARIANT}" or re.search(r":\d+\.\d+\.\d+-", base), base
    for sources in re.findall(r"^COPY (.+) \S+$", text, re.MULTILINE):
        assert all((ROOT / source).exists() for source in sources.split())
    assert re.search(r"^USER [1-9]\d*$", text, re.MULTILINE)


def test_the_commands_in_the_dockerfile_make_the_tags_that_are_used() -> None:
    text = (INFRA / "docker" / "Dockerfile").read_text(encoding="utf-8")
    assert f"--tag {image_tag('cpu')} " in text
    assert f"--build-arg VARIANT=gpu --tag {image_tag('gpu')} " in text
