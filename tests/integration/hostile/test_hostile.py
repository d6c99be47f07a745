"""Hostile input, item by item: refused with one message, skipped with the reason, or repaired; never in silence."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.hostile.case import Case, all_cases
from tests.integration.hostile.judge import Judged, judge
from tests.integration.hostile.table import RESULT, counted, written
from tests.integration.hostile.world import World, make_world

JUDGED: list[Judged] = []


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A small pipeline run to its end, about a minute; afterwards the table of all cases is printed."""
    yield make_world(tmp_path_factory.mktemp("hostile") / "world")
    print(f"\nhostile input: {counted(JUDGED)}")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("case", all_cases(), ids=lambda case: f"{case.item}: {case.name}")
def test_hostile(case: Case, world: World, tmp_path: Path) -> None:
    judged = judge(case, world, tmp_path / "case")
    JUDGED.append(judged)
    assert not judged.faults, "; ".join([*judged.faults, f"it printed: {judged.printed[-3000:]}"])
    shutil.rmtree(tmp_path / "case")


def test_the_published_table_is_of_these_cases() -> None:
    """`python tests/integration/hostile/table.py` writes both anew."""
    assert written() == [(case.item, case.name, case.outcome) for case in all_cases()], f"{RESULT} is of other cases"
