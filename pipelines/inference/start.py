"""The record of the pretrained weights that a model began with, next to the model."""

from pathlib import Path
from typing import Any

from pipelines.config.model import ModelConfig
from pipelines.runtime.stage import StageError, content_digest
from preprocessing.reading import damage_as, parse_json
from preprocessing.storage.atomic import write_json_atomic

START = "start.json"


def write_start(directory: Path, model: ModelConfig) -> None:
    """Record next to a model the names or folders of its encoders' pretrained weights, these with their digests."""
    named = dict.fromkeys(getattr(side, "weights", None) for side in (model.image, model.text))
    weights = {name: content_digest(Path(name)) if Path(name).exists() else None for name in named if name is not None}
    if weights:
        write_json_atomic(directory / START, weights)


def keep_start(initial: Path, directory: Path) -> None:
    """Record next to a model what the model began with that its own training began with."""
    if start := read_start(initial):
        write_json_atomic(directory / START, start)


def read_start(directory: Path) -> dict[str, str | None]:
    """Return the weights that a model began with, by name, with the digest of a folder; empty without the record."""
    if not (path := directory / START).is_file():
        return {}
    with damage_as(StageError, f"{path} does not say what the model began with", "restore the folder"):
        start: dict[str, Any] = parse_json(path.read_bytes())
    return start
