"""The record of the features that a model was trained on: others may have the same width."""

from pathlib import Path

from pipelines.runtime.stage import StageError
from preprocessing.reading import damage_as, parse_json
from preprocessing.storage.atomic import write_json_atomic

TRAINED_ON = "reads.json"


def write_feature_key(directory: Path, feature: str) -> None:
    """Record next to a model the key of the features that it was trained on."""
    write_json_atomic(directory / TRAINED_ON, {"features": feature})


def require_features(feature: str, model: Path) -> None:
    """Raise StageError if a model was trained on other features; imported models, without the record, get any."""
    path = model / TRAINED_ON
    if not path.is_file():
        return
    with damage_as(StageError, f"{path} does not say which features the model was trained on", "restore the folder"):
        trained_on = parse_json(path.read_bytes())["features"]
    if trained_on != feature:
        raise StageError(
            f"{model}: this model was trained on the features {trained_on!r}, and the configuration gives it "
            f"{feature!r}: name the configuration of its own features, or, to retrain on other features, a model of "
            "its own (registry.name)"
        )
