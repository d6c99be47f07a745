"""Two commands at once on one output."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE

import pytest

from tests.integration.seams.pipeline import ROOT, Pipeline


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize("options", [(), ("--wait",)], ids=["leaving", "waiting"])
def test_two_commands_at_once(options: tuple[str, ...], finished: Pipeline, tmp_path: Path) -> None:
    """One does the work; the other names it and leaves, waits, or comes when all is done. The results are right."""
    copy = finished.copy(tmp_path / "case")
    for manifest in copy.work.glob("evaluate/*/manifest.json"):
        manifest.unlink()
    command = [sys.executable, str(ROOT / "pipelines" / "evaluate.py"), "--config", str(copy.root / "config.yaml")]
    both = [subprocess.Popen([*command, *options], stdout=PIPE, stderr=PIPE, text=True, cwd=copy.root) for _ in "12"]
    said = [process.communicate() for process in both]
    done = [process for process in both if process.returncode == 0]
    assert not any("Traceback" in text or "internal error" in text for pair in said for text in pair), said
    assert len(done) == 2 if options else done, said
    for process, (_, errors) in zip(both, said, strict=True):
        if process.returncode != 0:
            assert process.returncode == 75
            # A process that has just begun has its lock, and not yet written who it is.
            by = r"(process \d+ on |another process, which has just begun)"
            assert re.search(rf"^error: .* is being worked on by {by}", errors, re.MULTILINE)
    after, wanted = copy.files("work/evaluate"), finished.files("work/evaluate")
    for name in (name for name in after if "/gallery/" in name or name.endswith(".csv")):
        assert after[name] == wanted[name]
