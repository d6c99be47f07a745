"""What the loss of a model has learned in training, next to the model: its temperature is used in searches."""

import math
from collections.abc import Mapping
from pathlib import Path

from pipelines.runtime.stage import StageError
from preprocessing.reading import damage_as, parse_json
from preprocessing.storage.atomic import write_json_atomic

LEARNED = "learned.json"


def write_learned_values(directory: Path, values: Mapping[str, float]) -> None:
    """Record next to a model the values of its loss's parameters, by name; nothing if the loss has none."""
    if values:
        write_json_atomic(directory / LEARNED, dict(values))


def read_learned_values(model: Path) -> dict[str, float]:
    """Return the values recorded next to a model, by name; empty without a record, StageError if it is damaged."""
    path = model / LEARNED
    if not path.is_file():
        return {}
    with damage_as(StageError, f"{path} does not say what the loss has learned", "restore the folder"):
        return {str(name): float(value) for name, value in parse_json(path.read_bytes()).items()}


def learned_temperature(model: Path) -> float | None:
    """Return the temperature that was learned with a model; None if its loss learns none, or it was not recorded."""
    learned = learned_logits(model)
    return math.exp(-learned["logit_scale"]) if learned else None


def learned_logits(model: Path) -> dict[str, float]:
    """Return `logit_scale`, and `logit_bias` of the sigmoid loss, that were learned with a model; empty as above.

    What else a loss learns, as a plugin's may, belongs to that loss alone.
    """
    values = read_learned_values(model)
    if "logit_scale" not in values:
        return {}
    return {"logit_scale": values["logit_scale"], **({"logit_bias": values["bias"]} if "bias" in values else {})}
