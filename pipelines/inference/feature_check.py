"""The record of the features that a model was trained on: shards may contain several of the same width."""

from __future__ import annotations

import json
from pathlib import Path

from pipelines.runtime.stage import StageError
from preprocessing.storage.atomic import write_json_atomic

READS = "reads.json"


def write_reads(directory: Path, member: str) -> None:
    """Record next to a model the key of the features that it was trained on."""
    write_json_atomic(directory / READS, {"features": member})


def require_features(feature: str, model: Path) -> None:
    """Refuse to give a model other features than it was trained on; imported models, without the record, get any.

    Args:
        feature: key of the features in the shards.
        model: its directory.

    Raises:
        StageError: it was trained on others.
    """
    path = model / READS
    if not path.is_file():
        return
    trained_on = json.loads(path.read_text(encoding="utf-8"))["features"]
    if trained_on != feature:
        raise StageError(
            f"{model}: this model was trained on the features {trained_on!r}, and the configuration gives it "
            f"{feature!r}: set features.model_reads, or name a configuration of its features after the model: "
            "--model MODEL FILE"
        )
