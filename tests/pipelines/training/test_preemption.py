"""A process that is told to end waits for the checkpoint that the first one makes, and ends."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
import torch.distributed as dist
import torch.multiprocessing as mp

from pipelines.training import preemption
from tests.ports import free_port


def run_rank(rank: int, port: int, folder: str) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo")
    dist.init_process_group("gloo", rank=rank, world_size=2)
    preemption.watch()
    checkpoint = Path(folder, "checkpoint")
    if rank == 1:
        os.kill(os.getpid(), signal.SIGTERM)
        while True:  # its steps go on, and it does not end before there is a checkpoint
            time.sleep(0.01)
            if not checkpoint.exists():
                Path(folder, "still-there").touch()
    requests = preemption.CheckpointRequests()
    while not requests.is_wanted():
        time.sleep(0.01)
    time.sleep(1)
    Path(folder, "still-there").unlink()
    time.sleep(1)
    assert Path(folder, "still-there").exists()
    checkpoint.touch()
    requests.answer()
    assert not requests.is_wanted()


@pytest.mark.integration
def test_the_checkpoint_comes_before_the_end(tmp_path: Path) -> None:
    port = free_port()
    context = mp.spawn(run_rank, args=(port, str(tmp_path)), nprocs=2, join=False)
    first, second = context.processes
    second.join(60)
    assert second.exitcode == 128 + signal.SIGTERM
    first.join(60)
    assert first.exitcode == 0


def test_one_process_alone_is_never_asked() -> None:
    assert not preemption.CheckpointRequests().is_wanted()
