"""The group of training processes: the set-up of each."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from typing import Any

import psutil
import ray
from ray.train.torch import TorchConfig

from pipelines.training import preemption

_TorchBackend: Any = TorchConfig().backend_cls


@dataclass
class GroupConfig(TorchConfig):
    """Ray's process group for torch, in processes that are prepared first (see :func:`prepare_process`)."""

    @property
    def backend_cls(self) -> type[_Backend]:
        """The class that Ray starts the group with."""
        return _Backend


class _Backend(_TorchBackend):
    def on_start(self, worker_group: Any, backend_config: GroupConfig) -> None:
        """Prepare the processes, then let them meet."""
        worker_group.execute(prepare_process)
        super().on_start(worker_group, backend_config)


def prepare_process() -> None:
    """Watch for signals (in the main thread), and meet other processes at the address that Ray knows this one by."""
    preemption.watch()
    # gloo looks its own address up by the host name, which many systems resolve to 127.0.1.1.
    address = ray.util.get_node_ip_address()
    for interface, found in psutil.net_if_addrs().items():
        if any(each.family == socket.AF_INET and each.address == address for each in found):
            os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
