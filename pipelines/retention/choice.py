"""The choice of the runs that go: by number, age and size, of those that nothing needs."""

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True)
class Run:
    """A run that has made folders, their names below work_dir, and the newest version that it has registered, if any.

    `needed` is the reason why it stays under any rule, or "". One that is `repeated` is a part of the schedule, which
    has gone on without it if later versions are there: it has failed, was killed, or has judged an old model.
    """

    name: str
    model: str
    version: int | None
    at: datetime
    folders: frozenset[str]
    needed: str = ""
    is_repeated: bool = False
    is_going: bool = False


@dataclass(frozen=True)
class Rules:
    """The newest versions that stay, the time of what is too old, and the bytes that may stay; None asks for nothing.

    Versions go by number and age if both allow it, and by size as well only until what is left fits.
    """

    keep: int | None = None
    before: datetime | None = None
    size: int | None = None


class Disk:
    """The files of a work folder by the folders of runs; a file with several links is there until the last one goes."""

    def __init__(self) -> None:
        self._names: dict[str, list[Hashable]] = {}
        self._bytes: dict[Hashable, int] = {}
        self._links: Counter[Hashable] = Counter()

    def add(self, folder: str, file: Hashable, size: int) -> None:
        """Add a file, "" being the folder of those that belong to no run; links to one file are equal."""
        self._names.setdefault(folder, []).append(file)
        self._bytes[file] = size
        self._links[file] += 1

    def __contains__(self, folder: str) -> bool:
        return folder in self._names

    @property
    def total(self) -> int:
        """Bytes of all files."""
        return sum(self._bytes.values())

    def freed(self, folders: Iterable[str]) -> int:
        """Return the bytes that the removal of folders frees."""
        gone = Counter(file for folder in folders for file in self._names.get(folder, ()))
        return sum(self._bytes[file] for file, links in gone.items() if links == self._links[file])


def removable(going: Sequence[Run], runs: Sequence[Run]) -> set[str]:
    """Return the folders of runs that go which no other run uses."""
    kept = {folder for run in runs if run not in going for folder in run.folders}
    return {folder for run in going for folder in run.folders} - kept


def choose(runs: Sequence[Run], model: str, rules: Rules, disk: Disk) -> list[Run]:
    """Return the runs of a model that go, the oldest first."""
    own = sorted((run for run in runs if run.model == model), key=lambda run: run.at)
    kept = sorted({run.version for run in own if run.version is not None}, reverse=True)[: rules.keep]
    since = min((run.at for run in own if run.version in kept), default=None)

    def is_beyond(run: Run) -> bool:
        """Return whether a run is older than the versions that are kept; any is if no number of them was given."""
        if rules.keep is None:
            return True
        if run.version is not None:
            return run.version not in kept
        return run.is_repeated and len(kept) == rules.keep and since is not None and run.at < since

    going: list[Run] = []
    for run in (run for run in own if not run.needed):
        may_go = is_beyond(run) and (rules.before is None or run.at < rules.before)
        if may_go and rules.size is not None:
            may_go = disk.total - disk.freed(removable(going, runs)) > rules.size
        if run.is_going or may_go:
            going.append(run)
    return going
