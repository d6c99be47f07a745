"""From what the machines say to one line a check: all is well, or what is wrong and how to mend it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from packaging.requirements import Requirement

from infra.node_facts import DISTRIBUTION, NodeFacts

# A stage writes aside and renames: below this the first shard may not fit.
FREE_BYTES = 10 * 10**9
# S3 refuses requests that are a quarter of an hour off; curves and logs of several machines want less.
CLOCK_SECONDS = 2.0


@dataclass(frozen=True)
class Finding:
    """The outcome of one check.

    Attributes:
        check: what was looked at.
        says: what was found.
        mend: what to do about it; "" where all is well.
    """

    check: str
    says: str
    mend: str = ""

    @property
    def is_well(self) -> bool:
        """Whether nothing needs to be done."""
        return not self.mend

    def line(self) -> str:
        """The finding on one line."""
        mark = "ok   " if self.is_well else "WRONG"
        return f"{mark} {self.check}: {self.says}" + (f"; {self.mend}" if self.mend else "")


def about_versions(nodes: Sequence[NodeFacts], declared: Sequence[str]) -> Finding:
    """Every machine has what is declared, and all have the same.

    Args:
        nodes: the machines, that of the driver first.
        declared: requirements of our distribution: "numpy>=2".
    """
    driver, problems = nodes[0], []
    for node in nodes:
        if not node.versions.get(DISTRIBUTION):
            problems.append(f"{node.node} has no {DISTRIBUTION}")
            continue
        for requirement in map(Requirement, declared):
            found = node.versions.get(requirement.name, "")
            if not found:
                problems.append(f"{node.node} has no {requirement.name}")
            elif not requirement.specifier.contains(found, prereleases=True):
                problems.append(f"{node.node} has {requirement.name} {found}, not {requirement.specifier}")
        for name, expected in driver.versions.items():
            found = node.versions.get(name, "")
            if expected and found and _public(found) != _public(expected):
                problems.append(f"{node.node} has {name} {found}, {driver.node} {expected}")
    if problems:
        return Finding("versions", _several(problems), "use one image on all machines, or `pip install` it anew there")
    facts = driver.versions
    return Finding("versions", f"{_nodes(nodes)}: Python {facts['python']}, ray {facts['ray']}, torch {facts['torch']}")


def about_gpus(nodes: Sequence[NodeFacts], wanted: float, promised: Mapping[str, float]) -> Finding:
    """There are the GPUs that the configuration asks for, and each computes.

    Args:
        nodes: the machines.
        wanted: GPUs that the configuration's actors or workers hold at a time.
        promised: machine -> GPUs that Ray believes it has; empty without a cluster.
    """
    problems = [f"{node.node}: {node.gpu_problem}" for node in nodes if node.gpu_problem]
    for node in nodes:
        if node.node in promised and len(node.gpus) < promised[node.node]:
            problems.append(f"{node.node}: Ray counts {promised[node.node]:g} GPUs, torch sees {len(node.gpus)}")
    if problems:
        return Finding("GPUs", _several(problems), "see whether `nvidia-smi` answers there, and use the gpu image")
    names = [name for node in nodes for name in node.gpus]
    if len(names) < wanted:
        return Finding(
            "GPUs",
            f"{len(names)} there, the configuration asks for {wanted:g}",
            "add machines, or lower features.actors, training.workers and their gpus_per_...",
        )
    kinds = ", ".join(f"{names.count(kind)} x {kind}" for kind in dict.fromkeys(names))
    return Finding("GPUs", f"{kinds or 'none'}; the configuration asks for {wanted:g}")


def about_disk(nodes: Sequence[NodeFacts], cache_bytes: float) -> Finding:
    """Every machine can write into its work folder, and has room there.

    Args:
        nodes: the machines.
        cache_bytes: what the configuration lets the shards take up.
    """
    problems = [f"{node.node}: {node.disk_problem}" for node in nodes if node.disk_problem]
    if problems:
        return Finding("disk", _several(problems), "give the folder to this user, or name another as work_dir")
    needed = FREE_BYTES + cache_bytes
    problems = [f"{n.node} has {n.free_bytes / 1e9:.1f} GB free" for n in nodes if n.free_bytes < needed]
    if problems:
        says = f"{_several(problems)}, {needed / 1e9:g} GB are wanted"
        return Finding("disk", says, "make room, name another work_dir, or lower storage.cache_gb")
    return Finding("disk", f"{_nodes(nodes)}: at least {min(node.free_bytes for node in nodes) / 1e9:.0f} GB free")


def about_storage(nodes: Sequence[NodeFacts], addresses: Sequence[str]) -> Finding:
    """Every machine can write, read and delete at every address."""
    if not addresses:
        return Finding("storage", "none is configured; work_dir is all there is")
    problems = [f"{node.node}: {problem}" for node in nodes for problem in node.storage_problems]
    if problems:
        return Finding("storage", _several(problems), "infra/s3/README.md lists the settings and the permissions")
    return Finding("storage", f"{_nodes(nodes)}: {', '.join(addresses)} written, read and deleted")


def about_clocks(offsets: Mapping[str, tuple[float, float]]) -> Finding:
    """The machines' clocks agree with the driver's.

    Args:
        offsets: machine or server -> seconds that its clock is ahead, and how far that may be off.
    """
    if not offsets:
        return Finding("clock", "nothing to compare with")
    wrong = [
        f"{name} is {abs(ahead):.1f} s {'ahead' if ahead > 0 else 'behind'}"
        for name, (ahead, doubt) in offsets.items()
        if abs(ahead) - doubt > CLOCK_SECONDS
    ]
    if wrong:
        return Finding("clock", _several(wrong), "let all machines follow a time server: `timedatectl set-ntp true`")
    return Finding("clock", f"{', '.join(offsets)} within {CLOCK_SECONDS:g} s of this machine")


def _public(version: str) -> str:
    """Without the build: 2.15.0+cpu is 2.15.0."""
    return version.partition("+")[0]


def _nodes(nodes: Sequence[NodeFacts]) -> str:
    return nodes[0].node if len(nodes) == 1 else f"{len(nodes)} machines"


def _several(problems: Sequence[str], most: int = 3) -> str:
    more = f", and {len(problems) - most} more" if len(problems) > most else ""
    return ", ".join(problems[:most]) + more
