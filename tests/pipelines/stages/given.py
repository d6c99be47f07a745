"""Plans of finished stages, for the tests of the stage after them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pipelines.runtime.stage import StagePlan


def given(folder: Path, **outputs: Mapping[str, Path]) -> dict[str, StagePlan]:
    """Return plans of finished stages with these outputs, each in a directory of its own name."""
    return {
        name: StagePlan(name, f"fingerprint of {name}", folder / name, 1, 1, "parts", "", parts)
        for name, parts in outputs.items()
    }
