"""The runs that go, against rules written out naively."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from pipelines.retention.choice import Disk, Rules, Run, choose, removable

START = datetime(2026, 1, 1, tzinfo=UTC)
# What a run is: whether it has registered a version, whether something needs it, and whether the schedule began it.
KINDS = st.tuples(st.booleans(), st.booleans(), st.booleans(), st.sets(st.sampled_from("abcdef")))
LIMITS = st.none() | st.integers(1, 5)


@given(st.lists(KINDS, max_size=8), LIMITS, LIMITS, st.none() | st.integers(0, 200))
def test_runs_that_go(kinds: list[tuple[bool, bool, bool, set[str]]], keep: int, age: int, size: int) -> None:
    runs, disk, version = [], Disk(), 0
    for night, (is_version, is_needed, is_repeated, shared) in enumerate(kinds):
        version += is_version
        folders = frozenset({f"own-{night}", *shared})
        at = START + timedelta(days=night)
        needed = "an alias" if is_needed else ""
        runs.append(Run(f"run-{night}", "shop", version if is_version else None, at, folders, needed, is_repeated))
        disk.add(f"own-{night}", night, 20)
        disk.add(f"own-{night}", "a shard that all have", 7)
    runs.append(Run("other", "another model", 1, START, frozenset({"a"})))
    for folder in "abcdef":
        disk.add(folder, folder, 10)
    before = None if age is None else START + timedelta(days=age)
    going = choose(runs, "shop", Rules(keep, before, size), disk)

    versions = [run.version for run in runs[:-1] if run.version is not None]
    expected: list[Run] = []
    for night, run in enumerate(runs[:-1]):
        later = sum(number > (run.version or sum(v for v, *_ in kinds[:night])) for number in versions)
        by_number = keep is None or (later >= keep and (run.version is not None or run.is_repeated))
        by_age = age is None or night < age
        left = {folder for other in runs if other not in expected for folder in other.folders}
        own = [folder for folder in left if folder.startswith("own")]
        used = 20 * len(own) + 7 * bool(own) + 10 * len({*"abcdef"} - ({f for r in expected for f in r.folders} - left))
        if by_number and by_age and not run.needed and (size is None or used > size):
            expected.append(run)
    assert going == expected
    assert removable(going, runs) == {f for r in going for f in r.folders} - {
        f for r in runs if r not in going for f in r.folders
    }
