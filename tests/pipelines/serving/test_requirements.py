"""A registered model runs with nothing but the packages that it says it needs, and what those need themselves."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from pipelines.serving.requirements import pip_requirements
from tests.isolated import run_with
from tests.pipelines.tiny_bundle import write_tiny_bundle, write_tiny_unified_bundle

PROGRAM = """
import sys
from pathlib import Path
from pipelines.inference.embedder import Embedder
from pipelines.retrieval.gallery import Gallery

uri = Gallery.load(Path(sys.argv[1]) / "gallery").records[0].image_uri
embedder = Embedder(Path(sys.argv[1]) / "model", Path(sys.argv[1]) / "extractor")
print(embedder.embed_texts(["a small red circle"]).shape[0], embedder.embed_images([uri]).shape[0])
"""


@pytest.mark.parametrize("write", [write_tiny_bundle, write_tiny_unified_bundle])
def test_a_model_needs_what_it_says(write: Callable[[Path], Path], tmp_path: Path) -> None:
    bundle = write(tmp_path / "bundle")
    assert run_with(pip_requirements(bundle), PROGRAM, str(bundle)).split() == ["1", "1"]


@pytest.mark.parametrize(
    ("part", "change", "package"),
    [
        ("model/model.json", {"text": {"name": "components"}}, "spacy"),
        ("model/model.json", {"image": {"name": "dual_encoder", "lora": {"rank": 2}}}, "peft"),
        ("model/model.json", {"image": {"name": "backbone", "architecture": {"model_type": "timm_wrapper"}}}, "timm"),
        ("extractor/extractor.json", {"options": {"weights": "timm/resnet50.a1_in1k"}}, "timm"),
        ("extractor/weights/config.json", {"pretrained_cfg": {}}, "timm"),
        ("extractor/weights/config.json", {"model_type": "timm_wrapper"}, "timm"),
        ("extractor/extractor.json", {"name": "frames"}, "av"),
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
