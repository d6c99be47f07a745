"""One hostile case: what is damaged and how, what is run, and what must come of it; as it stands in a YAML file."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field

CASES = Path(__file__).with_name("cases")
Outcome = Literal["refused", "skipped", "repaired", "harmless"]


class Case(BaseModel):
    """A case; `{root}`, `{work}` and `{photos}` in its strings are folders of its copy of the world.

    Outcomes: refused (a status other than 0 and one message), skipped (status 0, the item is named with the reason),
    repaired (status 0, it is said, and the results are bit for bit those of the undamaged world), harmless (status 0,
    and the results are these as well).
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    item: int = Field(ge=1, le=15)
    damage: list[dict[str, Any]] = []
    run: list[str]
    outcome: Outcome
    message: str = ""  # a regular expression, searched for in all that was printed
    absent: str = ""  # one that must not be found there
    status: int | None = None  # by default 1 where it is refused, otherwise 0
    same: list[str] = []  # files of the world, as patterns, that must have the bytes of the undamaged one afterwards
    unwritten: bool = False  # nothing in the work folder may change

    @property
    def expected_status(self) -> int:
        """The exit status."""
        return self.status if self.status is not None else int(self.outcome == "refused")


@cache
def all_cases() -> tuple[Case, ...]:
    """Return the cases of all files, in the order of the items."""
    found = [Case(**each) for path in sorted(CASES.glob("*.yaml")) for each in yaml.safe_load(path.read_text("utf-8"))]
    assert len({case.name for case in found}) == len(found), "two cases have one name"
    return tuple(sorted(found, key=lambda case: case.item))
