"""The files for `ray up` as Ray reads them, and what they must say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import ray
import yaml
from ray.autoscaler._private.util import prepare_config, validate_config

from tests.infra.pins import INFRA, image_tag

FILES = sorted((INFRA / "ray").glob("cluster.*.yaml"))
SCHEMA = json.loads((Path(ray.__file__).parent / "autoscaler" / "ray-schema.json").read_text(encoding="utf-8"))


def read(path: Path) -> dict[str, Any]:
    config: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return config


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_ray_takes_it(path: Path) -> None:
    jsonschema.validate(read(path), SCHEMA)
    filled = prepare_config(read(path))
    validate_config(filled)
    # Nothing of Ray's defaults, which install things at every start, comes into it.
    assert filled["setup_commands"] == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_start_asks_for_a_token_and_every_machine_has_it(path: Path) -> None:
    config = read(path)
    starts = [
        command
        for key in ("head_start_ray_commands", "worker_start_ray_commands")
        for command in config[key]
        if "ray start" in command
    ]
    assert len(starts) == 2
    assert all("RAY_AUTH_MODE=token ray start" in command for command in starts)
    assert "/home/ray/.ray/auth_token" in config["file_mounts"]
    assert "--dashboard-host=127.0.0.1" in starts[0]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_images_have_our_ray(path: Path) -> None:
    docker = read(path)["docker"]
    images = {docker[key].partition("/")[2] for key in ("image", "head_image", "worker_image") if key in docker}
    assert images <= {image_tag("cpu"), image_tag("gpu")}
    assert image_tag("gpu") in images
