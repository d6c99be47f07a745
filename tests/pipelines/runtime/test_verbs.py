"""`vse VERB` is `python pipelines/VERB.py`: listed, and run with what follows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from pipelines.runtime.verbs import verbs

ROOT = Path(__file__).resolve().parents[3]
COMMAND = [sys.executable, "-c", "from pipelines.runtime.verbs import main; main()"]


def vse(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    return subprocess.run([*COMMAND, *arguments], cwd="/", env=variables, capture_output=True, text=True)


def test_every_script_is_a_verb_with_a_line() -> None:
    scripts = {path.stem for path in (ROOT / "pipelines").glob("[!_]*.py")}
    assert set(verbs()) == scripts
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
