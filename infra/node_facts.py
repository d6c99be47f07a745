"""Collect the facts of a machine: packages, GPUs, disk, clock, access to the storage."""

import shutil
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

from pipelines.stages.preflight import check_storage

DISTRIBUTION = "vse-pipeline"


@dataclass(frozen=True)
class NodeFacts:
    """The facts of one machine; a problem is "" where there is none.

    `versions` holds "python" and every package that ours depends on, "" for one that is not installed; `free_bytes` are
    those of the work folder's disk; `storage_problems` has a reason for each address that does not work.
    """

    node: str
    versions: dict[str, str]
    gpus: list[str] = field(default_factory=list)
    gpu_problem: str = ""
    free_bytes: int = 0
    disk_problem: str = ""
    storage_problems: list[str] = field(default_factory=list)


def node_facts(work_dir: Path, addresses: Sequence[str]) -> NodeFacts:
    """Collect the facts of this machine; `work_dir` is created, and each storage is written, read and deleted in."""
    gpus, gpu_problem = _gpus()
    free, disk_problem = _disk(work_dir)
    return NodeFacts(
        socket.gethostname(), _versions(), gpus, gpu_problem, free, disk_problem, _storage_problems(addresses)
    )


class Probe:
    """An actor on one machine of a cluster."""

    def facts(self, work_dir: Path, addresses: Sequence[str]) -> NodeFacts:
        """See :func:`node_facts`."""
        return node_facts(work_dir, addresses)

    def clock(self) -> float:
        """Return the seconds since 1970."""
        return time.time()


def requirements() -> list[str]:
    """Return the requirements of our package without extras ("numpy>=2"), or none if it is not installed."""
    try:
        declared = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        return []
    return [line for line in declared if "extra ==" not in line]


def _versions() -> dict[str, str]:
    names = [Requirement(line).name for line in requirements()]
    packages = {name: _version(name) for name in (DISTRIBUTION, *names)}
    return {"python": ".".join(map(str, sys.version_info[:3])), **packages}


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _gpus() -> tuple[list[str], str]:
    import torch

    names = []
    try:
        for number in range(torch.cuda.device_count()):
            names.append(torch.cuda.get_device_name(number))
            ones = torch.ones(64, 64, device=f"cuda:{number}")
            if float((ones @ ones).sum()) != 64.0**3:
                return names, f"GPU {number} computes a wrong matrix product"
    except RuntimeError as error:  # raised for every failure of the driver
        return names, str(error).strip().partition("\n")[0]
    return names, ""


def _disk(work_dir: Path) -> tuple[int, str]:
    try:
        work_dir.mkdir(parents=True, exist_ok=True)
        trial = work_dir / f".doctor-{socket.gethostname()}"
        trial.write_bytes(b"x")
        trial.unlink()
    except OSError as error:
        return 0, f"cannot write into {work_dir}: {error.strerror}"
    return shutil.disk_usage(work_dir).free, ""


def _storage_problems(addresses: Sequence[str]) -> list[str]:
    from pipelines.config import ConfigError

    problems = []
    for address in addresses:
        try:
            check_storage("", address)
        except ConfigError as error:
            problems.append(str(error).removeprefix(": "))
    return problems
