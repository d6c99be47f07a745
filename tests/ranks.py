"""Processes of a group of torch.distributed on this machine, as Ray Train would start them."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from tests.ports import free_port

_IMPORTED = ["torch._dynamo", "pipelines.training.trainer"]


def run_ranks(function: Callable[..., None], world: int, *args: object, threads: int = 1) -> None:
    """Call ``function(rank, *args)``, pickled, in each process of a group on gloo; all have ended when it returns.

    They are forks of a process without threads that has imported what takes ten seconds.

    Raises:
        ProcessRaisedException: one of them did; it has that one's traceback.
    """
    mp.get_context("forkserver").set_forkserver_preload(_IMPORTED)
    arguments = (world, free_port(), threads, dict(os.environ), function, args)
    mp.start_processes(_rank, args=arguments, nprocs=world, start_method="forkserver")


def _rank(
    rank: int,
    world: int,
    port: int,
    threads: int,
    environment: dict[str, str],
    function: Callable[..., None],
    args: tuple[Any, ...],
) -> None:
    torch.set_num_threads(threads)
    os.environ.clear()
    os.environ.update(environment)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo")
    dist.init_process_group("gloo", rank=rank, world_size=world)
    function(rank, *args)
    dist.barrier()
    # Not by way of Python's end: a thread of gloo that frees the tensors of its last collective then aborts the process
    # ("terminate called without an active exception"), about once in 20 runs.
    os._exit(0)
