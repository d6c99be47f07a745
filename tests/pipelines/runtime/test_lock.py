"""One process at a time in a folder, whatever becomes of the one before."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from pipelines.runtime import lock
from pipelines.runtime.lock import exclusive, when_free
from preprocessing.storage.base import BusyError
from preprocessing.storage.lease import Holder
from preprocessing.storage.mirror import Mirror, lock_file

ROOT = Path(__file__).resolve().parents[3]
HOLD = """
import sys
from pathlib import Path
from pipelines.runtime.lock import exclusive
from preprocessing.storage.mirror import Mirror
with exclusive(Mirror(Path(sys.argv[1]), sys.argv[2] or None), Path(sys.argv[1]) / "retrain"):
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
            exclusive(Mirror(other, address or None), other / "retrain"),
        ):
            raise AssertionError("two are there")
    finally:
        os.kill(holder.pid, signal.SIGKILL)
        holder.communicate()
    with exclusive(Mirror(other, address or None), other / "retrain"):
        assert (
            json.loads(lock_file(other, other / "retrain", "work").with_suffix(".json").read_text())["pid"]
            == os.getpid()
        )


@pytest.mark.parametrize(("age", "is_free"), [(60, False), (180, True)])
def test_a_holder_on_another_machine_counts_until_it_has_not_renewed_for_long(
    tmp_path: Path, age: float, is_free: bool
) -> None:
    """The kernel's locks need not reach other machines: then its file is all that is known."""
    mirror, file = Mirror(tmp_path), lock_file(tmp_path, tmp_path, "work").with_suffix(".json")
    with exclusive(mirror, tmp_path):
        other = {**json.loads(file.read_text()), "host": "elsewhere", "kernel": "another", "pid": 7}
    file.write_text(json.dumps(other))
    os.utime(file, (time.time() - age, time.time() - age))
    if is_free:
        with exclusive(mirror, tmp_path):
            pass
        assert not file.exists()
    else:
        with pytest.raises(BusyError, match=r"is being worked on by process 7 on elsewhere, since "):
            exclusive(mirror, tmp_path).__enter__()


def test_a_dead_holder_in_another_container_of_this_machine_is_followed_at_once(tmp_path: Path) -> None:
    """Its process cannot be looked up from here, but the kernel that both share has given its lock back."""
    mirror, file = Mirror(tmp_path), lock_file(tmp_path, tmp_path, "work").with_suffix(".json")
    with exclusive(mirror, tmp_path):
        other = {**json.loads(file.read_text()), "host": "container", "processes": "pid:[1]", "token": "x"}
    file.write_text(json.dumps(other))
    with exclusive(mirror, tmp_path):
        assert json.loads(file.read_text())["pid"] == os.getpid()


def test_who_has_lost_a_folder_to_another_machine_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ended = threading.Event()
    monkeypatch.setattr(lock, "_end", ended.set)
    with exclusive(Mirror(tmp_path, lease_seconds=0.1), tmp_path):
        file = lock_file(tmp_path, tmp_path, "work").with_suffix(".json")
        taken = json.dumps({**json.loads(file.read_text()), "host": "elsewhere", "token": "x"})
        file.write_text(taken)
        assert ended.wait(10)
    assert "has been lost to another process" in caplog.text
    assert file.read_text() == taken  # it does not release what is another's


def test_waiting_ends_when_the_folder_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(lock, "_RETRY_SECONDS", 0.01)
    attempts = []

    ages = iter(range(9))
    monkeypatch.setattr(Holder, "__str__", lambda self: f"process {self.pid} on x ({next(ages)} minutes)")

    def work() -> str:
        attempts.append(1)
        if len(attempts) == 3:
            holder.close()
        with exclusive(Mirror(tmp_path), tmp_path):
            return "done"

    holder = contextlib.ExitStack()
    holder.enter_context(exclusive(Mirror(tmp_path), tmp_path))
    assert when_free(work) == "done"
    said = capsys.readouterr().err
    assert said.startswith(f"waiting: {tmp_path} is being worked on by process {os.getpid()} on ")
    assert said.count("\n") == 1
