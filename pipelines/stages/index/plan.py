"""Stage 5, index, without its work: whether the gallery of the evaluated model is indexed."""

from pipelines.config import PipelineConfig
from pipelines.runtime.stage import Plans, StageDir, StagePlan, fingerprint
from pipelines.stages.stage import Stage

NAME = "index"

# Raised when the same gallery would give another index.
VERSION = 1


def plan(config: PipelineConfig, upstream: Plans) -> StagePlan:
    """Find whether the gallery is indexed."""
    stage = stage_dir(config, upstream)
    return StagePlan.of_one(
        stage, "indices", f"gallery of split {config.dataset.eval_split}", {NAME: stage.path / NAME}
    )


def stage_dir(config: PipelineConfig, upstream: Plans) -> StageDir:
    """Return the output directory of the stage under this configuration."""
    # The kind was a setting of earlier versions, whose indices are found again.
    content = {"version": VERSION, "evaluate": upstream["evaluate"].fingerprint, "kind": "auto"}
    if config.index.compress:
        content["compress"] = config.index.compress
    return StageDir(config.work_dir, NAME, fingerprint(content), config.mirror)


INDEX = Stage(NAME, plan, "pipelines.stages.index.run", needs="embeddings", reads_model=True)
