"""Hosts on one machine: each has a network, processes and a disk of its own, and can be lost.

A host is a network namespace on a common bridge, with a process namespace whose end is the end of all its processes.
Its disk is a folder that all hosts see under one path: Ray's temporary folder and a work folder.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.integration.debian import UnavailableError, require

HEAD = 1
# The address of what is not a host: servers of this process.
OUTSIDE = "10.77.0.254"
_RAY = str(Path(sys.executable).with_name("ray"))
# A head that tasks, actors and people keep away from.
_BARE_HEAD = (_RAY, "start", "--head", "--num-cpus", "0", "--include-dashboard", "false")
_START_SECONDS = 120.0
_PORT = 6379
_STARTED = "Ray runtime started"
# A host that has lost its power is missed after a second and a half, not after half a minute.
_SYSTEM = '{"health_check_initial_delay_ms": 0, "health_check_period_ms": 500, "health_check_failure_threshold": 3}'
_BOOT = 'mount --make-rprivate / && mount --bind "$0" "$1" && shift && exec "$@"'


class Hosts:
    """Hosts 10.77.0.1, 10.77.0.2 and so on; the first is the head of a Ray cluster, the others are its workers.

    Args:
        folder: for their disks and logs; with a short path, since sockets lie in it.
        environment: of all their processes.
        head: what starts Ray on the head; takes the options of `ray start`.

    Raises:
        UnavailableError: this machine does not allow it.
    """

    def __init__(self, folder: Path, environment: Mapping[str, str], head: Sequence[str] = _BARE_HEAD) -> None:
        if os.geteuid() != 0:
            raise UnavailableError("network namespaces are root's to make")
        require(("ip", "unshare", "nsenter", "mount"), ("iproute2", "util-linux"))
        self._folder, self._head = folder, head
        self._disk = folder / "disk"
        self.environment = {**os.environ, **environment, "RAY_TMPDIR": str(self._disk / "ray")}
        self._name = f"vse{os.getpid()}"
        self._hosts: dict[int, subprocess.Popen[bytes]] = {}
        self._namespaces: list[str] = []
        self._disk.mkdir(parents=True)
        self._add_namespace(self._bridge)
        self._ip("-n", self._bridge, "link", "add", "bridge", "type", "bridge")
        self._ip("-n", self._bridge, "link", "set", "bridge", "up")
        self._ip("-n", self._bridge, "address", "add", f"{OUTSIDE}/24", "dev", "bridge")

    @property
    def address(self) -> str:
        """The head's address, for RAY_ADDRESS."""
        return f"{_ip_of(HEAD)}:{_PORT}"

    @property
    def work_dir(self) -> Path:
        """The path of the work folder on every host."""
        return self._disk / "work"

    def disk_of(self, number: int) -> Path:
        """The work folder of a host, seen from outside."""
        return self._folder / f"host-{number}" / "work"

    def listen(self) -> socket.socket:
        """A socket of this process that listens to the hosts, at OUTSIDE and a free port."""

        def enter_and_listen() -> socket.socket:
            with Path(f"/run/netns/{self._bridge}").open("rb") as namespace:
                if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), 0):
                    raise OSError(ctypes.get_errno(), "setns")
            return socket.create_server((OUTSIDE, 0))

        with ThreadPoolExecutor(1) as thread:  # only this thread is in the hosts' network, and it ends here
            return thread.submit(enter_and_listen).result()

    def start(self, *numbers: int) -> None:
        """Start hosts with empty disks, the first time or after a loss, and wait until they belong to the cluster."""
        for number in numbers:
            if f"{self._name}-{number}" not in self._namespaces:
                self._connect(number)
            self._boot(number)
        deadline = time.monotonic() + _START_SECONDS
        for number in numbers:
            while _STARTED not in self._log(number).read_text(errors="replace"):
                if time.monotonic() > deadline:
                    raise RuntimeError(f"host {number} has not started: {self._log(number).read_text()[-2000:]}")
                if self._hosts[number].poll() is not None:
                    self._boot(number)  # Ray gives itself 30 seconds, which a busy machine may not have
                time.sleep(0.05)

    def run(self, *command: str, log: Path, host: int = HEAD) -> subprocess.Popen[bytes]:
        """Start a command on a host."""
        enter = ["nsenter", "--target", str(self._init_of(host)), "--net", "--pid", "--mount"]
        environment = {**self.environment, "RAY_ADDRESS": self.address}
        with log.open("wb") as output:
            return subprocess.Popen([*enter, "--", *command], env=environment, stdout=output, stderr=output)

    def cut_power(self, *numbers: int) -> None:
        """End all processes of hosts at once."""
        for number in numbers:
            self._hosts[number].kill()
        for number in numbers:
            self._hosts.pop(number).wait()

    def close(self) -> None:
        """End everything that was started here, and nothing else."""
        self.cut_power(*self._hosts)
        for name in reversed(self._namespaces):
            subprocess.run(["ip", "netns", "delete", name], check=False)

    @property
    def _bridge(self) -> str:
        return f"{self._name}-net"

    def _connect(self, number: int) -> None:
        name, port = f"{self._name}-{number}", f"port{number}"
        self._add_namespace(name)
        self._ip("link", "add", port, "netns", self._bridge, "type", "veth", "peer", "name", "eth0", "netns", name)
        self._ip("-n", self._bridge, "link", "set", port, "master", "bridge", "up")
        self._ip("-n", name, "address", "add", f"{_ip_of(number)}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            self._ip("-n", name, "link", "set", device, "up")

    def _boot(self, number: int) -> None:
        own = self._folder / f"host-{number}"
        shutil.rmtree(own, ignore_errors=True)
        for name in ("ray", "work"):
            (own / name).mkdir(parents=True)
        options = ["--node-ip-address", _ip_of(number), "--object-store-memory", "100000000", "--block"]
        if number == HEAD:
            start = [*self._head, "--port", str(_PORT), "--system-config", _SYSTEM, "--disable-usage-stats"]
        else:
            start = [_RAY, "start", "--address", self.address, "--num-cpus", "1"]
        enter = ["ip", "netns", "exec", f"{self._name}-{number}"]
        unshare = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        boot = ["bash", "-c", _BOOT, str(own), str(self._disk)]
        with self._log(number).open("wb") as log:
            self._hosts[number] = subprocess.Popen(
                [*enter, *unshare, *boot, *start, *options],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def _init_of(self, number: int) -> int:
        """The first process in a host's namespaces."""
        pid = self._hosts[number].pid
        return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])

    def _log(self, number: int) -> Path:
        return self._folder / f"{number}.log"

    def _add_namespace(self, name: str) -> None:
        self._ip("netns", "add", name)
        self._namespaces.append(name)

    def _ip(self, *arguments: str) -> None:
        done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
        if done.returncode:
            self.close()
            raise UnavailableError(f"`ip {' '.join(arguments)}` fails here: {done.stderr.strip()}")


def _ip_of(number: int) -> str:
    return f"10.77.0.{number}"
