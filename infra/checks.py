"""The facts of a machine (packages, GPUs, disk, storage), and their checks: one line each, with the remedy."""

import shutil
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

import torch
from packaging.requirements import Requirement

from pipelines.config import ConfigError
from pipelines.stages.preflight import check_storage as preflight_storage
from pipelines.stages.preflight import check_writable

DISTRIBUTION = "vse-pipeline"


@dataclass(frozen=True)
class NodeFacts:
    """The facts of one machine.

    `versions` holds "python" and every package that ours depends on, "" for one that is not installed; `free_bytes` are
    those of the work folder's disk; `problems` has what is wrong by the check that says it.
    """

    node: str
    versions: dict[str, str]
    gpus: list[str] = field(default_factory=list)
    free_bytes: int = 0
    problems: dict[str, list[str]] = field(default_factory=dict)


def node_facts(work_dir: Path, addresses: Sequence[str]) -> NodeFacts:
    """Collect the facts of this machine; `work_dir` is created, and each storage is written, read and deleted in."""
    gpus, gpu_problems = _gpus()
    disk = _refusals(check_writable, "work_dir", work_dir)
    storage = [problem for address in addresses for problem in _refusals(preflight_storage, "", address)]
    free = 0 if disk else shutil.disk_usage(work_dir).free
    problems = {"GPUs": gpu_problems, "disk": disk, "storage": storage}
    return NodeFacts(socket.gethostname(), _versions(), gpus, free, problems)


def _versions() -> dict[str, str]:
    try:
        declared = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        declared = []
    names = [Requirement(line).name for line in declared if "extra ==" not in line]
    packages = {name: _version(name) for name in (DISTRIBUTION, *names)}
    return {"python": ".".join(map(str, sys.version_info[:3])), **packages}


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _gpus() -> tuple[list[str], list[str]]:
    names = []
    try:
        for number in range(torch.cuda.device_count()):
            names.append(torch.cuda.get_device_name(number))
            ones = torch.ones(64, 64, device=f"cuda:{number}")
            if float((ones @ ones).sum()) != 64.0**3:
                return names, [f"GPU {number} computes a wrong matrix product"]
    except RuntimeError as error:  # raised for every failure of the driver
        return names, [str(error).strip().partition("\n")[0]]
    return names, []


def _refusals(check: Callable[..., None], *arguments: object) -> list[str]:
    try:
        check(*arguments)
    except ConfigError as error:
        return [str(error).removeprefix(": ")]
    return []


# A stage writes a temporary file and renames it: below this the first shard may not fit.
FREE_BYTES = 10 * 10**9


@dataclass(frozen=True)
class Finding:
    """The outcome of one check: its name, the observation, and the remedy; "" if the check passed."""

    check: str
    says: str
    remedy: str = ""

    @property
    def passed(self) -> bool:
        """Return whether nothing needs to be done."""
        return not self.remedy

    def line(self) -> str:
        """Format the finding on one line."""
        mark = "ok   " if self.passed else "WRONG"
        return f"{mark} {self.check}: {self.says}" + (f"; {self.remedy}" if self.remedy else "")


def check_versions(nodes: Sequence[NodeFacts]) -> Finding:
    """Check that every machine has the packages of the driver, which is the first, in the same versions."""
    driver, problems = nodes[0], []
    for node in nodes:
        if not node.versions.get(DISTRIBUTION):
            problems.append(f"{node.node} has no {DISTRIBUTION}")
            continue
        for name, expected in driver.versions.items():
            found = node.versions.get(name, "")
            if expected and _public(found) != _public(expected):
                has = f"{name} {found}" if found else f"no {name}"
                problems.append(f"{node.node} has {has}, {driver.node} {expected}")
    if problems:
        return Finding("versions", _several(problems), "use one image on all machines, or reinstall there")
    facts = driver.versions
    return Finding("versions", f"{_nodes(nodes)}: Python {facts['python']}, ray {facts['ray']}, torch {facts['torch']}")


def check_gpus(nodes: Sequence[NodeFacts], wanted: float, registered: Mapping[str, float]) -> Finding:
    """Check that the GPUs that the configuration asks for (`wanted` at a time) exist and compute.

    `registered` maps a machine to the GPUs that Ray has registered; it is empty without a cluster.
    """
    problems = _problems(nodes, "GPUs")
    for node in nodes:
        if node.node in registered and len(node.gpus) < registered[node.node]:
            problems.append(f"{node.node}: Ray counts {registered[node.node]:g} GPUs, torch sees {len(node.gpus)}")
    if problems:
        return Finding("GPUs", _several(problems), "check that `nvidia-smi` works there, and use the gpu image")
    names = [name for node in nodes for name in node.gpus]
    if len(names) < wanted:
        return Finding(
            "GPUs",
            f"{len(names)} available, the configuration asks for {wanted:g}",
            "add machines, or lower features.actors, training.workers and their gpus_per_...",
        )
    kinds = ", ".join(f"{names.count(kind)} x {kind}" for kind in dict.fromkeys(names))
    return Finding("GPUs", f"{kinds or 'none'}; the configuration asks for {wanted:g}")


def check_disk(nodes: Sequence[NodeFacts], cache_bytes: float) -> Finding:
    """Check that every machine can write to its work folder and has space for `cache_bytes` of shards."""
    if problems := _problems(nodes, "disk"):
        return Finding("disk", _several(problems), "make the folder writable for this user, or set another work_dir")
    needed = FREE_BYTES + cache_bytes
    problems = [f"{n.node} has {n.free_bytes / 1e9:.1f} GB free" for n in nodes if n.free_bytes < needed]
    if problems:
        says = f"{_several(problems)}, {needed / 1e9:g} GB are needed"
        return Finding("disk", says, "free disk space, set another work_dir, or lower storage.cache_gb")
    return Finding("disk", f"{_nodes(nodes)}: at least {min(node.free_bytes for node in nodes) / 1e9:.0f} GB free")


def check_storage(nodes: Sequence[NodeFacts], addresses: Sequence[str]) -> Finding:
    """Check that every machine can write, read and delete at every address."""
    if not addresses:
        return Finding("storage", "not configured; outputs stay in work_dir")
    if problems := _problems(nodes, "storage"):
        return Finding("storage", _several(problems), "docs/s3.md lists the settings and the permissions")
    return Finding("storage", f"{_nodes(nodes)}: {', '.join(addresses)} written, read and deleted")


def _problems(nodes: Sequence[NodeFacts], check: str) -> list[str]:
    return [f"{node.node}: {problem}" for node in nodes for problem in node.problems.get(check, ())]


def _public(version: str) -> str:
    """Return the version without the build: 2.15.0+cpu is 2.15.0."""
    return version.partition("+")[0]


def _nodes(nodes: Sequence[NodeFacts]) -> str:
    return nodes[0].node if len(nodes) == 1 else f"{len(nodes)} machines"


def _several(problems: Sequence[str], most: int = 3) -> str:
    more = f", and {len(problems) - most} more" if len(problems) > most else ""
    return ", ".join(problems[:most]) + more
