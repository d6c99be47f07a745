"""One process at a time in a folder, whatever becomes of the one before."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.runtime.lock import exclusive
from preprocessing.storage import Mirror
from preprocessing.storage.lease import BusyError

ROOT = Path(__file__).resolve().parents[3]
HOLD = """
import sys
from pathlib import Path
from pipelines.runtime.lock import exclusive
from preprocessing.storage import Mirror
with exclusive(Path(sys.argv[1]) / "retrain", Mirror(Path(sys.argv[1]), sys.argv[2] or None)):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("storage", ["", "storage"])
def test_a_lock_ends_with_its_process(tmp_path: Path, storage: str) -> None:
    """Of two machines with a storage in common, too: each has a work folder of its own."""
    address = str(tmp_path / storage) if storage else ""
    own, other = (tmp_path / name for name in (("one", "other") if storage else ("one", "one")))
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(own), address],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with (
            pytest.raises(BusyError, match=f"process {holder.pid} on "),
            exclusive(other / "retrain", Mirror(other, address or None)),
        ):
            raise AssertionError("two are there")
    finally:
        os.kill(holder.pid, signal.SIGKILL)
        holder.communicate()
    with exclusive(other / "retrain", Mirror(other, address or None)):
        assert (other / "retrain" / "lock").read_text().startswith(f"process {os.getpid()} on ")


def test_other_folders_are_free(tmp_path: Path) -> None:
    with exclusive(tmp_path / "a", Mirror(tmp_path)), exclusive(tmp_path / "b", Mirror(tmp_path)):
        assert (tmp_path / "b" / "lock").is_file()
