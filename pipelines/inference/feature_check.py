"""Which features a model reads, noted beside it: shards may hold several of one width, and a model takes them all."""

from __future__ import annotations

import json
from pathlib import Path

from pipelines.config import PipelineConfig
from pipelines.runtime.stage import StageError
from preprocessing.storage.atomic import write_json_atomic

READS = "reads.json"


def write_reads(directory: Path, member: str) -> None:
    """Note beside a model the name in the shards of the features that it was trained on."""
    write_json_atomic(directory / READS, {"features": member})


def require_features(config: PipelineConfig, model: Path) -> None:
    """Refuse to give a model other features than it was trained on; without a note, as of imported models, all pass.

    Raises:
        StageError: it was trained on others.
    """
    path = model / READS
    if not path.is_file():
        return
    trained_on = json.loads(path.read_text(encoding="utf-8"))["features"]
    if trained_on != config.features.member:
        raise StageError(
            f"{model}: this model reads the features {trained_on!r}, and the configuration {config.name!r} gives it "
            f"{config.features.member!r}: set features.model_reads, or name a configuration of its features behind it: "
            "--model MODEL FILE"
        )
