"""The configuration of a run: its differences from the preset, and all of it."""

from collections.abc import Iterator, Mapping
from typing import Any

import yaml
from pydantic import TypeAdapter, ValidationError

from pipelines.config.layers import merged, preset_layers
from pipelines.config.model import ModelConfig
from pipelines.config.training import TrainingConfig
from pipelines.kinds import LossConfig
from pipelines.reporting.run import Run

# The sections of a preset; data, features and folders are the user's own.
_SECTIONS: dict[str, Any] = {"model": ModelConfig, "loss": LossConfig, "training": TrainingConfig}
_ABSENT = "not there"


def configuration(run: Run) -> dict[str, Any]:
    """Return the values of `report/configuration.html`."""
    config = run.config
    return {
        "facts": [
            ("name", config.name),
            ("preset", config.preset),
            ("seed", str(config.seed)),
            ("data set", config.dataset.format),
            ("splits", f"{config.dataset.train_split} to train on, {config.dataset.eval_split} to evaluate on"),
            ("features", config.features.extractor),
        ],
        "preset": config.preset,
        "differences": differences(config.preset, config.model, config.loss, config.training),
        "complete": yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True, width=110),
    }


def differences(
    preset: str, model: ModelConfig, loss: LossConfig, training: TrainingConfig
) -> list[tuple[str, str, str]]:
    """Return the keys in which model, loss and training differ from the preset: key, its value, the run's value."""
    values = merged(preset_layers(preset))
    rows = []
    for own, (section, kind) in zip((model, loss, training), _SECTIONS.items(), strict=True):
        here = dict(_flat(own.model_dump(mode="json"), section))
        adapter: TypeAdapter[Any] = TypeAdapter(kind)
        try:
            complete = adapter.dump_python(adapter.validate_python(values[section]), mode="json")
            there = dict(_flat(complete, section))
            keys = [*here, *(key for key in there if key not in here)]
        except ValidationError:  # it leaves something to name, such as a file: no defaults
            there = dict(_flat(values[section], section))
            keys = list(there)
        rows += [
            (key, there.get(key, _ABSENT), here.get(key, _ABSENT)) for key in keys if there.get(key) != here.get(key)
        ]
    return rows


def _flat(values: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, str]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}.{key}")
        else:
            yield f"{prefix}.{key}", "none" if value is None else str(value)
