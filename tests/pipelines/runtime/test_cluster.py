"""The connection to Ray leaves the process its own end."""

from __future__ import annotations

import subprocess
import sys

TERMINATED = """
import os, signal, sys, time
from pipelines.runtime import cluster
from pipelines.runtime.cli import guarded

def command():
    cluster.join_or_start(sys.argv[1])
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
