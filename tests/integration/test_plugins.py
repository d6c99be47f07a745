"""A plugin reaches the processes of Ray, those of a file by a copy of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.test_extending import BASE, FILES

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.nightly
def test_actors_load_an_extractor_from_a_file_next_to_the_configuration(tmp_path: Path, work_dir: Path) -> None:
    (tmp_path / "colours.py").write_text(FILES["colours.py"])
    (tmp_path / "base.yaml").write_text(yaml.safe_dump({**BASE, "features": {}}))
    (tmp_path / "colours.yaml").write_text(f"inherits: base.yaml\nwork_dir: {work_dir}\n{FILES['colours.yaml']}")
    command = [sys.executable, str(ROOT / "pipelines" / "extract.py"), "--config", str(tmp_path / "colours.yaml")]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert "16 images, 80 captions" in run.stdout
