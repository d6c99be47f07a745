"""Pins of Dockerfiles and constraints, against the requirements that the project declares."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.infra.pins import INFRA, ROOT, constraints, declared, image_tag, normalized

DOCKERFILES = sorted(INFRA.rglob("Dockerfile"))
SCRIPTS = sorted(INFRA.rglob("*.sh"))
LOCKS = [INFRA / "docker" / "constraints.txt", INFRA / "mlflow" / "requirements.txt"]
BY_DIGEST = r"[\w./-]+:v?\d[\w.-]*@sha256:[0-9a-f]{64}"
# Built from this repository, and named by their version; a registry knows their digests.
OURS = r"^(registry\.example\.com/)?vse-(pipeline|mlflow):\d"


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_scripts_can_be_executed(path: Path) -> None:
    assert path.stat().st_mode & 0o111, f"{path} cannot be executed"


def test_pins_are_what_the_project_declares() -> None:
    pins = constraints()
    for requirement in declared():
        assert requirement.specifier.contains(pins[normalized(requirement.name)]), requirement


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.parent.name)
def test_every_package_has_its_hashes(path: Path) -> None:
    entries = re.split(r"\n(?=\S)", re.sub(r"^#.*\n", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE).strip())
    assert len(entries) == len(constraints(path)) > 50
    for entry in entries:
        assert re.fullmatch(r"[\w.-]+==[\w.]+( \\\n    --hash=sha256:[0-9a-f]{64})+", entry), entry[:60]
    assert constraints(path).items() <= constraints().items()


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.parent.name)
def test_an_image_is_made_of_what_is_pinned_and_there(path: Path) -> None:
    text = path.read_text(encoding="utf-8").replace("\\\n", " ")
    stages = {*re.findall(r" AS (\w+)", text), "${VARIANT}"}
    for base in re.findall(r"^FROM (\S+)", text, re.MULTILINE):
        assert base in stages or re.fullmatch(BY_DIGEST, base), base
    for installed in re.findall(r"pip install (.+?)(?:&&|\n|$)", text):
        assert "--require-hashes" in installed or "--no-build-isolation --editable ." in installed, installed
        assert "--no-deps" in installed
    for sources in re.findall(r"^COPY (.+) \S+$", text, re.MULTILINE):
        assert all((ROOT / source).exists() for source in sources.split())
    assert re.search(r"^USER [1-9]\d*$", text, re.MULTILINE)


def test_images_and_actions_of_others_are_pinned_by_digest() -> None:
    files = [path for folder in (INFRA, ROOT / ".github") for path in folder.rglob("*.y*ml")]
    text = "\n".join(path.read_text(encoding="utf-8") for path in files)
    images = [image for image in re.findall(r"image: (?:&\w+ )?([^*\s]+)", text) if not re.search(OURS, image)]
    assert {image.partition(":")[0] for image in images} == {"postgres", "registry.k8s.io/kubectl"}
    assert all(re.fullmatch(BY_DIGEST, image) for image in images), images
    actions = re.findall(r"uses: (.+)", text)
    assert actions
    assert all(re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v[\d.]+", action) for action in actions), actions


def test_the_commands_in_the_dockerfile_make_the_tags_that_are_used() -> None:
    text = (INFRA / "docker" / "Dockerfile").read_text(encoding="utf-8")
    assert f"--tag {image_tag('cpu')} " in text
    assert f"--build-arg VARIANT=gpu --tag {image_tag('gpu')} " in text
