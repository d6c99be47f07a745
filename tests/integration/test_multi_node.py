"""Training on three hosts: one is lost in mid-epoch, then all are, and the losses are those of a quiet run."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pipelines.config import load_config
from pipelines.stages.runner import plan_stages
from pipelines.training.loss_log import read_losses
from tests.integration.hosts import HEAD, Hosts
from tests.integration.tiny_training import STEPS, TINY
from tests.pipelines.training.by_hand import train_by_hand

SETTINGS = [*TINY, "training.workers=2", "training.placement=STRICT_SPREAD"]
SCRIPT = "from pipelines.stages.runner import main; main('extract', 'train')"
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.2",
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",
}

# Its clusters have networks and processes of their own: it may run next to the tests that share one.
pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    folder = Path(tempfile.mkdtemp(prefix="vse-", dir="/tmp"))
    made = Hosts(folder, ENVIRONMENT)
    try:
        yield made
    finally:
        made.close()
        shutil.rmtree(folder, ignore_errors=True)


class Job:
    """The main job's first stages on the head."""

    def __init__(self, hosts: Hosts, work_dir: Path) -> None:
        self.log = work_dir.with_name(f"{work_dir.name}.log")
        self.work_dir = work_dir
        settings = [f"--set={setting}" for setting in (f"work_dir={work_dir}", *SETTINGS)]
        self.process = hosts.run(sys.executable, "-c", SCRIPT, *settings, log=self.log)

    def losses(self) -> list[float]:
        """The losses so far, a whole line each."""
        text = "".join(path.read_text() for path in self.work_dir.glob("train/*/losses.jsonl"))
        return [json.loads(line)["loss"] for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def wait_for(self, losses: int) -> None:
        """Return once the file has that many losses."""
        deadline = time.monotonic() + 240
        while len(self.losses()) < losses:
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.01)

    def finish(self) -> list[float]:
        """All losses."""
        try:
            assert self.process.wait(240) == 0, self.log.read_text()
        except subprocess.TimeoutExpired:
            raise AssertionError(self.log.read_text()) from None
        assert len(self.losses()) == STEPS
        return self.losses()


def test_a_lost_host_and_a_lost_cluster_change_nothing(
    hosts: Hosts, work_dir: Path, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    hosts.start(HEAD, 2, 3)
    job = Job(hosts, work_dir)
    job.wait_for(13)
    hosts.cut_power(3)
    cut = time.monotonic()
    reached = len(job.losses())
    assert reached < STEPS, "the run was over before the host was lost"
    hosts.start(4)
    joined = time.monotonic()
    job.wait_for(reached + 1)
    going_on = time.monotonic()

    hosts.cut_power(HEAD, 2, 4)
    assert len(job.losses()) < STEPS, "the run was over before the cluster was lost"
    job.process.wait()
    hosts.start(HEAD, 2, 3)
    losses = Job(hosts, work_dir).finish()

    settings, quiet = [f"work_dir={work_dir}", *SETTINGS], tmp_path / "quiet"
    train_by_hand(settings, plan_stages(load_config(None, settings), last="train")["train"].directory, quiet, workers=2)
    assert losses == pytest.approx([entry["loss"] for entry in read_losses(quiet)], abs=1e-6)
    record_property("seconds_from_the_loss_to_the_next_new_step", round(going_on - cut, 1))
    print(f"going on {going_on - cut:.1f} s after the loss, {going_on - joined:.1f} s after the replacement had joined")
