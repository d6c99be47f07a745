"""A registered model runs with nothing but the packages that it says it needs, and what those need themselves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pipelines.serving.requirements import pip_requirements
from tests.pipelines.tiny_bundle import write_tiny_bundle, write_tiny_unified_bundle

ROOT = Path(__file__).resolve().parents[3]

# Hides every installed package that the requirements do not bring, as in an environment made from them alone.
PROGRAM = """
import sys
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

bundle, *needed = sys.argv[1:]
known, left = set(), [Requirement(line) for line in needed]
while left:
    requirement = left.pop()
    name = canonicalize_name(requirement.name)
    try:
        lines = distribution(name).requires or []
    except PackageNotFoundError:
        continue
    if name not in known:
        known.add(name)
        inner = [Requirement(line) for line in lines]
        left += [one for one in inner if one.marker is None or one.marker.evaluate({"extra": ""})]
hidden = {
    package for package, owners in packages_distributions().items()
    if not known & {canonicalize_name(owner) for owner in owners}
} - {"pipelines", "preprocessing", "vse_core", "infra", "packaging"}


class Hiding:
    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] in hidden else self.finder.find_spec(name, path, target)

    def __getattr__(self, name):  # metadata of packages
        return getattr(self.finder, name)


sys.meta_path = [Hiding(finder) for finder in sys.meta_path]
from pathlib import Path
from pipelines.inference.embedder import Embedder
from pipelines.retrieval.gallery import Gallery

uri = Gallery.load(Path(bundle) / "gallery").records[0].image_uri
embedder = Embedder(Path(bundle) / "model", Path(bundle) / "extractor")
print(embedder.embed_texts(["a small red circle"]).shape[0], embedder.embed_images([uri]).shape[0])
"""


@pytest.mark.parametrize("write", [write_tiny_bundle, write_tiny_unified_bundle])
def test_a_model_needs_what_it_says(write: Callable[[Path], Path], tmp_path: Path) -> None:
    bundle = write(tmp_path / "bundle")
    command = [sys.executable, "-c", PROGRAM, str(bundle), *pip_requirements(bundle)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (run.returncode, run.stdout.split()) == (0, ["1", "1"]), run.stderr


@pytest.mark.parametrize(
    ("part", "change", "package"),
    [
        ("model/model.json", {"text": {"name": "components"}}, "spacy"),
        ("model/model.json", {"image": {"name": "dual_encoder", "lora": {"rank": 2}}}, "peft"),
        ("model/model.json", {"image": {"name": "backbone", "architecture": {"model_type": "timm_backbone"}}}, "timm"),
        ("extractor/extractor.json", {"options": {"weights": "timm/resnet50.a1_in1k"}}, "timm"),
        ("extractor/weights/config.json", {"pretrained_cfg": {}}, "timm"),
        ("extractor/weights/config.json", {"model_type": "timm_wrapper"}, "timm"),
        ("extractor/extractor.json", {"name": "frames"}, "av"),
        ("extractor/extractor.json", {"name": "several", "options": {"of": [{"name": "frames"}]}}, "av"),
    ],
)
def test_packages_of_parts(tmp_path: Path, part: str, change: dict[str, object], package: str) -> None:
    bundle = write_tiny_bundle(tmp_path / "bundle")
    assert package not in names(bundle)
    path = bundle / part
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    assert package in names(bundle)


def names(bundle: Path) -> set[str]:
    return {requirement.partition("==")[0] for requirement in pip_requirements(bundle)}
