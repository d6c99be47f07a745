"""The recipe of a run: in what its configuration differs from the preset, and the whole of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import yaml
from pydantic import TypeAdapter

from pipelines.config import PipelineConfig
from pipelines.config.layers import merged, preset_layers
from pipelines.config.model import ModelConfig
from pipelines.config.training import TrainingConfig
from pipelines.kinds import LossConfig
from pipelines.reporting.page import Html, Section, details, heading, joined, paragraph, preformatted, table
from pipelines.reporting.run import Run

# What a preset is about; data, features and places are the user's own.
_SECTIONS: dict[str, Any] = {"model": ModelConfig, "loss": LossConfig, "training": TrainingConfig}
_ABSENT = "not there"


def recipe(run: Run) -> Section:
    """What was trained, on what, and how."""
    config = run.config
    rows = [
        ("name", config.name),
        ("preset", config.preset),
        ("seed", str(config.seed)),
        ("data set", config.dataset.format),
        ("splits", f"{config.dataset.train_split} to train on, {config.dataset.eval_split} to evaluate on"),
        ("features", config.features.extractor),
    ]
    whole = yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True, width=110)
    changed = differences(config)
    shown = table(("key", f"preset {config.preset}", "this run"), changed) if changed else paragraph("None.")
    return Section(
        "Recipe",
        joined(
            table(("", ""), rows),
            heading(f"Differences from the preset {config.preset} in model, loss and training"),
            shown,
            details("The whole configuration, defaults included", preformatted(whole)),
        ),
    )


def differences(config: PipelineConfig) -> list[tuple[str, str, str]]:
    """The keys in which model, loss and training differ from the preset's: key, value there, value here."""
    preset = _preset(config)
    rows = []
    for section, kind in _SECTIONS.items():
        adapter: TypeAdapter[Any] = TypeAdapter(kind)
        there = dict(_flat(adapter.dump_python(adapter.validate_python(preset[section]), mode="json"), section))
        here = dict(_flat(getattr(config, section).model_dump(mode="json"), section))
        keys = [*here, *(key for key in there if key not in here)]
        rows += [
            (key, there.get(key, _ABSENT), here.get(key, _ABSENT)) for key in keys if there.get(key) != here.get(key)
        ]
    return rows


def _preset(config: PipelineConfig) -> dict[str, Any]:
    """The preset's settings, and with them the file that a preset of HGR leaves for the user to name."""
    preset = merged(preset_layers(config.preset))
    text = preset["model"].get("text", {})
    if config.model.text.name == "role_graphs" == text.get("name"):
        named = {"graphs": str(config.model.text.graphs), **text}
        return {**preset, "model": {**preset["model"], "text": named}}
    return preset


def _flat(values: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, str]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}.{key}")
        else:
            yield f"{prefix}.{key}", "none" if value is None else str(value)


def lead(run: Run) -> Html:
    """What the run has come to, above everything else."""
    rows = [(name, plan.status, run.manifest(name).get("summary", plan.size)) for name, plan in run.plans.items()]
    return table(("stage", "status", "result"), rows)
