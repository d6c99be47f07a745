"""The library alone, and the service without Ray and MLflow: with the packages that vse_core/pyproject.toml lists."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.isolated import ROOT, run_with
from tests.pipelines.tiny_bundle import write_tiny_bundle
from tests.ports import free_port

TEN_STEPS = """
for _ in range(9):
    optimizer.zero_grad()
    images, texts = model(regions, torch.full((8,), 36), words, torch.full((8,), 12))
    last = loss(images, texts, torch.arange(8)).total
    last.backward()
    optimizer.step()
import sys
import vse_core
assert last < result.total, (last, result.total)
print(vse_core.__file__, "mlflow" in sys.modules, "torchvision" in sys.modules)
"""

SEARCH = """
import json, sys, urllib.request
from contextlib import redirect_stderr
from importlib.util import find_spec
from pipelines.runtime.cli import guarded
from pipelines.serving import running, serve

assert find_spec("ray") is find_spec("mlflow") is None
folder, port = sys.argv[1:]
with running.serving(folder, "unused", "127.0.0.1", int(port)):
    body = json.dumps({"text": "a red ring", "k": 2}).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}/search", body, {"Content-Type": "application/json"})
    print(urllib.request.urlopen(request).read().decode())
for options in (["--model", folder, "--replicas", "2"], ["--model", "tiny", "--tracking-uri", "http://127.0.0.1:9"]):
    sys.argv[1:] = options
    with redirect_stderr(sys.stdout):
        guarded(serve.main)
"""
REFUSALS = [
    "error: several replicas and shares of a GPU need Ray: pip install vse-pipeline",
    "error: the package mlflow is not installed: pip install 'vse-pipeline'",
]


def project(file: Path) -> dict[str, Any]:
    return tomllib.loads(file.read_text(encoding="utf-8"))["project"]


@pytest.fixture(scope="module")
def core() -> dict[str, Any]:
    return project(ROOT / "vse_core" / "pyproject.toml")


@pytest.mark.nightly
def test_the_library_alone_trains(core: dict[str, Any], tmp_path: Path) -> None:
    install = ["-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--target", str(tmp_path)]
    subprocess.run([sys.executable, *install, str(ROOT / "vse_core")], check=True)
    page = (ROOT / "docs" / "quickstart.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(import torch\n.*?)```", page, re.DOTALL)
    found = run_with(core["dependencies"], example + TEN_STEPS, code=tmp_path)
    assert found.splitlines()[-1] == f"{tmp_path}/vse_core/__init__.py False False"


@pytest.mark.nightly
def test_a_model_is_served_without_ray_and_mlflow(core: dict[str, Any], tmp_path: Path) -> None:
    bundle = write_tiny_bundle(tmp_path / "artifacts")
    needed = core["dependencies"] + core["optional-dependencies"]["serve"]
    answer, *refusals = run_with(needed, SEARCH, str(bundle.parent), str(free_port())).splitlines()
    assert len(json.loads(answer)["results"]) == 2
    assert refusals == REFUSALS


def test_the_pipeline_has_the_dependencies_of_the_library(core: dict[str, Any]) -> None:
    pipeline = project(ROOT / "pyproject.toml")
    assert pipeline["version"] == core["version"]
    extras = core["optional-dependencies"]
    for lines in (core["dependencies"], extras["images"], extras["plots"], extras["serve"]):
        assert set(lines) <= set(pipeline["dependencies"])
    assert extras["export"] == pipeline["optional-dependencies"]["export"]
