"""Commands from an empty folder, by their scripts and by `vse`: what messages name is there, paths mean one thing."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from PIL import Image

ROOT = Path(__file__).resolve().parents[3]
# The program, without what it is called by.
PROGRAMS = {
    "vse": [sys.executable, "-c", "from pipelines.runtime.verbs import main; main()"],
    "python": [sys.executable],
}


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """An empty folder; the configuration, its table and its photographs each lie in another one."""
    for name in ("here", "settings", "tables", "photos/dev", "work"):
        (tmp_path / name).mkdir(parents=True)
    for split, number in (("train", 8), ("dev", 3)):
        rows = [f"dev/{split}{at}.png,a red dot" for at in range(number)]
        (tmp_path / "tables" / f"{split}.csv").write_text("\n".join(["image,caption", *rows]))
        for at in range(number):
            Image.new("RGB", (40, 40), (9 * at, 0, 0)).save(tmp_path / "photos" / "dev" / f"{split}{at}.png")
    tables = {split: f"../tables/{split}.csv" for split in ("train", "dev")}  # from the configuration's folder
    config = {
        "work_dir": str(tmp_path / "work"),
        "dataset": {"format": "table", "images": str(tmp_path / "photos"), "tables": tables},
        "features": {"extractor": "grid", "weights": "tiny_resnet", "random_seed": 0},
        "training": {"batch_size": 4},
    }
    (tmp_path / "settings" / "table.yaml").write_text(yaml.safe_dump(config))
    return tmp_path / "here"


def call(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command as a message names it."""
    program, *words = shlex.split(line)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "HOME": str(folder)}
    command = [*PROGRAMS[program], *words]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("verb", ["vse train", f"python {ROOT}/pipelines/train.py"])
def test_a_message_names_a_command_that_is_there(verb: str, here: Path) -> None:
    options = f"--config {here.parent}/settings/table.yaml"
    refused = call(f"{verb} {options}", here)
    assert refused.returncode == 1
    named = re.findall(r"`(.*?)`", refused.stderr)
    assert [line.partition(" ")[0] for line in named] == 2 * [verb.partition(" ")[0]], refused.stderr
    for line in named:
        planned = call(f"{line} {options} --dry-run", here)
        assert planned.returncode == 0, planned.stderr
        assert "11 images, 11 captions" in planned.stdout
    assert list(here.iterdir()) == []


def test_the_help_of_vse_names_no_script_and_a_path_starts_from_where_it_is_written(here: Path) -> None:
    described = call("vse evaluate --help", here).stdout
    assert "vse evaluate --config" in described
    assert "python pipelines" not in described
    for folder in (here.parent, here):
        planned = call(
            f"vse full --config {os.path.relpath(here.parent, folder)}/settings/table.yaml --dry-run", folder
        )
        assert "11 images, 11 captions" in planned.stdout, planned.stderr
    overridden = call("vse full --config ../settings/table.yaml --set dataset.tables.dev=dev.csv --dry-run", here)
    assert f"there is no file {here}/dev.csv" in overridden.stderr
