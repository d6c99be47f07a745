"""Stage 6, register, without its work: whether the model is registered."""

from dataclasses import replace
from typing import Any

from pipelines.config import PipelineConfig
from pipelines.runtime.stage import Plans, StageDir, StagePlan, fingerprint, manifest_in
from pipelines.stages.stage import Stage
from pipelines.tracking import Tracker
from pipelines.tracking.client import database_of
from preprocessing.storage.redaction import SecretAddress

NAME = "register"

# Raised when the same checkpoint would be registered as something else.
VERSION = 4


def plan(config: PipelineConfig, upstream: Plans) -> StagePlan:
    """Find whether the model is registered with this card, and the database of its registration still exists."""
    stage = stage_dir(config, upstream)
    size = f"registered model {config.registered_model!r}"
    found = StagePlan.of_one(stage, "models", size, {"bundle": stage.path})
    database = database_of(config.tracking_uri)
    is_gone = database is not None and not database.is_file()
    card = card_of(config)
    is_other = found.complete and stage.read_manifest().get("card", card) != card  # earlier releases kept none
    return replace(found, done=0) if is_gone or is_other else found


def card_of(config: PipelineConfig) -> dict[str, Any]:
    """Return what the configuration says in the model's card."""
    return config.registry.card.model_dump(mode="json")


def stage_dir(config: PipelineConfig, upstream: Plans) -> StageDir:
    """Return the output directory of the stage under this configuration."""
    content = {
        "version": VERSION,
        "train": upstream["train"].fingerprint,
        "index": upstream["index"].fingerprint,
        "name": config.registered_model,
        "tracking": SecretAddress(config.tracking_uri).without_user,
    }
    return StageDir(config.work_dir, NAME, fingerprint(content), config.mirror)


def _log_headlines(_config: PipelineConfig, registered: StagePlan, tracker: Tracker) -> None:
    if model := manifest_in(registered.directory).get("model_id"):
        tracker.link_model(model)


REGISTER = Stage(
    NAME,
    plan,
    "pipelines.stages.register.run",
    needs="embeddings",
    is_reported=True,
    log_headlines=_log_headlines,
    reads_model=True,
)
