"""The connection to Ray leaves the process its own end."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from pipelines.runtime import cluster

TERMINATED = """
import os, signal, sys, time
from pipelines.runtime import cluster
from pipelines.runtime.cli import guarded

def command():
    cluster.connect(sys.argv[1])
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)
    finally:
        time.sleep(4)  # Ray would abort the process after three seconds
        print("all is written")

sys.exit(guarded(command))
"""


def test_a_driver_that_is_told_to_end_has_the_time_to_write(ray_cluster: str) -> None:
    script = [sys.executable, "-c", TERMINATED, ray_cluster]
    done = subprocess.run(script, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 130, done.stderr
    assert "all is written" in done.stdout


MAPPED = """
import ctypes, sys
from pipelines.runtime import cluster

class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in "arena ordblks smblks hblks hblkhd a b c d e".split()]

mallinfo = ctypes.CDLL(None).mallinfo2
mallinfo.restype = Info
if sys.argv[1] == "kept":
    cluster.keep_memory()
before = mallinfo().hblkhd
block = bytearray(2**25)
print(mallinfo().hblkhd - before >= 2**25)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="glibc from 2.33 tells of its blocks")
def test_a_process_keeps_freed_memory() -> None:
    runs = [[sys.executable, "-c", MAPPED, memory] for memory in ("given back", "kept")]
    assert [subprocess.check_output(run, text=True).strip() for run in runs] == ["True", "False"]


def test_a_disk_that_is_too_full_for_ray_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> None:
        raise RuntimeError("Failed to start GCS.")

    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(cluster, "is_connected", lambda: False)
    monkeypatch.setattr(cluster, "_start_local", fails)
    for free, told in ((10**9, "may be too busy, or short of memory: try again"), (5, f"{tmp_path}")):
        usage = SimpleNamespace(free=free)
        monkeypatch.setattr(shutil, "disk_usage", lambda _, usage=usage: usage)
        with pytest.raises(cluster.ClusterError, match="Failed to start GCS") as caught:
            cluster.connect(None)
        assert told in str(caught.value)
