"""The results of a search: trials, settings with their means over seeds, and the table on disk."""

import csv
import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from pipelines.runtime.stage import StageError
from preprocessing.plain_text import csv_cell
from preprocessing.reading import damage_as, parse_json
from vse_core.evaluation.protocols import RECALLS

_FIXED = ("trial", "seed", "rsum", "best_epoch", "epochs", "stopped_early", "problem")


@dataclass(frozen=True)
class Trial:
    """One training: RSUM and recalls of its best epoch (from 1), none if it failed, for the reason in `problem`."""

    trial: str
    settings: Mapping[str, Any]
    seed: int
    rsum: float | None
    best_epoch: int
    epochs: int
    stopped_early: bool
    problem: str = ""
    recalls: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Setting:
    """The trainings of one setting: means, deviation and most epochs; no mean if one failed, for its `problem`."""

    settings: Mapping[str, Any]
    mean: float | None
    deviation: float | None
    epochs: int
    trainings: int
    problem: str
    recalls: Mapping[str, float]


def by_setting(trials: Sequence[Trial]) -> list[Setting]:
    """Return the settings of a search, the highest mean RSUM first, the failed ones last.

    A setting that was drawn twice is one training for each seed, and has its most epochs.
    """
    groups: dict[str, dict[int, Trial]] = {}
    for trial in sorted(trials, key=lambda trial: trial.epochs):
        groups.setdefault(json.dumps(trial.settings, sort_keys=True), {})[trial.seed] = trial
    settings = [_setting(list(group.values())) for group in groups.values()]
    return sorted(settings, key=lambda setting: (setting.mean is None, -(setting.mean or 0.0)))


def write_results(trials: Sequence[Trial], path: Path) -> None:
    """Write a row for each trial: its name, seed and outcome, then the settings as JSON."""
    keys = list(trials[0].settings) if trials else []
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow([*_FIXED, *RECALLS, *keys])
        for trial in trials:
            cells = [getattr(trial, name) for name in _FIXED]
            cells += [trial.recalls.get(name) for name in RECALLS]
            cells += [json.dumps(value, sort_keys=True) for value in trial.settings.values()]
            rows.writerow([csv_cell(cell) if isinstance(cell, str) else cell for cell in cells])


def read_results(path: Path) -> list[Trial]:
    """Read what `write_results` has written; StageError if it is damaged."""
    remedy = "run the search again, or restore the file from MLflow"
    with (
        damage_as(StageError, f"{path} is not a table of a search", remedy),
        path.open(newline="", encoding="utf-8") as file,
    ):
        return [_trial(row) for row in csv.DictReader(file)]


def value_text(value: Any) -> str:
    """Return the label of a value in tables and plots; of a mapping its values, the name first: ``kmax 10``."""
    if isinstance(value, Mapping):
        return " ".join(value_text(value[key]) for key in sorted(value, key=lambda key: (key != "name", key)))
    return f"{value:g}" if isinstance(value, float) else str(value)


def _trial(row: dict[str, str]) -> Trial:
    fixed = {name: row[name] for name in _FIXED} | {"rsum": row["rsum"] or None}
    settings = {key: parse_json(value) for key, value in row.items() if key not in (*_FIXED, *RECALLS)}
    recalls = {name: row[name] for name in RECALLS if row[name]}
    return TypeAdapter(Trial).validate_python({**fixed, "settings": settings, "recalls": recalls})


def _setting(trials: Sequence[Trial]) -> Setting:
    rsums = [trial.rsum for trial in trials if trial.rsum is not None]
    complete = len(rsums) == len(trials)
    return Setting(
        trials[0].settings,
        statistics.mean(rsums) if complete else None,
        statistics.stdev(rsums) if complete and len(rsums) > 1 else None,
        max(trial.epochs for trial in trials),
        len(trials),
        next((trial.problem for trial in trials if trial.problem), ""),
        {
            name: statistics.mean(trial.recalls[name] for trial in trials)
            for name in RECALLS
            if all(name in trial.recalls for trial in trials)
        },
    )
