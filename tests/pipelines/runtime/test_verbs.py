"""`vse VERB` is `python pipelines/VERB.py`: listed, and run with what follows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from pipelines.runtime.verbs import verbs

ROOT = Path(__file__).resolve().parents[3]
COMMAND = [sys.executable, "-c", "from pipelines.runtime.verbs import main; main()"]


def vse(*arguments: str, folder: Path = Path("/"), **environment: str) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    return subprocess.run([*COMMAND, *arguments], cwd=folder, env=variables, capture_output=True, text=True)


def test_every_script_is_a_verb_with_a_line() -> None:
    scripts = {path.stem for path in (ROOT / "pipelines").glob("[!_]*.py")} - {"plugins"}
    assert set(verbs()) == scripts | {"configs", "doctor", "init", "sizing", "ui"}
    text = vse("--help").stdout
    assert all(f"  {verb:<12}{line}" in text for verb, line in verbs().items())


def test_a_verb_is_its_script() -> None:
    script = subprocess.run(
        [sys.executable, str(ROOT / "pipelines" / "search.py"), "--help"], capture_output=True, text=True, check=True
    )
    assert (
        vse("search", "--help").stdout.split()
        == script.stdout.replace("usage: search.py", "usage: vse search")
        .replace("python pipelines/search.py", "vse search")
        .split()
    )
    wrong = vse("search", "--nothing")
    assert (wrong.returncode, wrong.stderr.splitlines()[0].startswith("error: ")) == (1, True)


def test_a_folder_of_data_does_not_hide_the_configuration_of_its_name(tmp_path: Path) -> None:
    (tmp_path / "flickr8k").mkdir()
    named = vse("train", "--config", "flickr8k", "--dry-run", folder=tmp_path, VSE_DATA=str(tmp_path))
    assert f"there is no folder {tmp_path}/flickr8k/images" in named.stderr


def test_what_comes_with_the_package_is_used_by_its_name() -> None:
    listed = vse("configs").stdout
    assert all(f" {name} " in listed for name in ("flickr8k_best", "small_data", "margin"))
    assert " _vse_pp " not in listed
    margin = vse("configs", "margin").stdout
    assert margin == (ROOT / "pipelines/config/searches/margin.yaml").read_text()
    refused = vse("full", "--config", "flickr8", "--dry-run").stderr
    assert "no file 'flickr8' here, nor in the package; did you mean flickr8k?" in refused
    assert "nothing of the name 'x' comes with the package" in vse("configs", "x").stderr
    named = vse("train", "--config", "flickr8k", "--dry-run", VSE_DATA="/nowhere")
    assert "there is no folder /nowhere/flickr8k/images" in named.stderr
    assert "vse doctor --config" in vse("doctor", "--help").stdout
    assert vse("init", "--help").stdout.startswith("usage: vse init ")


def test_mlflows_pages_need_runs(tmp_path: Path) -> None:
    none_yet = vse("ui", VSE_WORK_DIR=str(tmp_path)).stderr
    assert none_yet == f"error: {tmp_path}/mlflow.db has no runs yet: vse full makes the first\n"
    assert "MLflow runs at http://host:5000 already" in vse("ui", "--tracking-uri", "http://host:5000").stderr
