"""Stage 3, train, without its work: the identity of a training, its size, and how far an earlier start has come."""

import contextlib
import json
from pathlib import Path
from typing import Any

from pipelines.config import PipelineConfig
from pipelines.plugins import sources
from pipelines.runtime.stage import Plans, StageDir, StageError, StagePlan, content_digest, fingerprint, manifest_in
from pipelines.stages.stage import Stage
from preprocessing.captions import subwords
from preprocessing.storage.address import require_inner_name
from vse_core.digests import DigestError, check_digests

NAME = "train"

# Raised when the same inputs and settings would give another model.
VERSION = 3

# Settings of how a run is carried out, which do not change the model.
_WITHOUT_EFFECT = {
    "workers",
    "cpus_per_worker",
    "gpus_per_worker",
    "collective_timeout",
    "checkpoint_minutes",
    "cuda_graphs",
    "log_steps",
}


def plan(config: PipelineConfig, upstream: Plans) -> StagePlan:
    """Find the size of the training and the progress of an earlier run; `outputs` has the best checkpoint."""
    stage = stage_dir(config, upstream)
    # Without epochs there is one evaluation.
    total = max(1, config.training.epochs)
    return StagePlan(
        name=NAME,
        fingerprint=stage.fingerprint,
        directory=stage.path,
        total=total,
        done=total if stage.is_complete() else min(int(newest_progress(stage.path)["epoch"]), total - 1),
        unit="epochs",
        size=_size(config),
        outputs={"best": _best(stage)} if stage.is_complete() else {},
    )


def _best(stage: StageDir) -> Path:
    name = stage.read_manifest().get("best")
    return stage.path / require_inner_name(name, f"{stage.path}/manifest.json, best", StageError)


def finished_epochs(trained: StagePlan) -> list[dict[str, float]]:
    """Return the metrics of the epochs that a training has finished, with their numbers as ``epoch``, from 1."""
    reached = manifest_in(trained.directory) if trained.complete else newest_progress(trained.directory)
    return [{**metrics, "epoch": epoch} for epoch, metrics in enumerate(reached["history"], start=1)]


def _size(config: PipelineConfig) -> str:
    training = config.training
    if not training.epochs:
        return f"no epochs ({config.model.untrained(training.initial)}), one evaluation"
    fewest, most = training.fewest_workers, training.most_workers
    workers = f"{most}" if fewest == most else f"{fewest} to {most}"
    twice = (
        "" if training.drop_worst is None else f", again without the worst {training.drop_worst:.0%} of the captions"
    )
    return f"{training.epochs} epochs{twice}, batch {training.batch_size}, {workers} worker(s)"


def stage_dir(config: PipelineConfig, upstream: Plans) -> StageDir:
    """Return the output directory of the stage under this configuration."""
    content = {
        "version": VERSION,
        "features": upstream["extract"].fingerprint,
        # Shards may have several features.
        "reads": config.features.member,
        "splits": [config.dataset.train_split, config.dataset.eval_split],
        "seed": config.seed,
        "vocabulary": config.vocabulary.model_dump(mode="json"),
        "model": model_content(config),
        "loss": config.loss.model_dump(mode="json"),
        "training": _training_content(config),
        "evaluation": config.evaluation.model_dump(mode="json", include={"folds"}),
    }
    if config.kind.reads_graphs:
        content["graphs"] = upstream["parse"].fingerprint
        content["pools"] = config.pools.model_dump(mode="json")
    content |= config.kind.versions | sources(config.model, config.loss)
    return StageDir(config.work_dir, NAME, fingerprint(content), config.mirror)


def model_content(config: PipelineConfig) -> dict[str, Any]:
    """Return the model's settings, with the contents of files and folders instead of their paths."""
    content = config.model.model_dump(mode="json")
    for side, settings in (("image", config.model.image), ("text", config.model.text)):
        for key in settings.files:
            path = content[side][key]
            if path is not None and Path(path).exists():
                content[side][key] = content_digest(Path(path))
    if config.model.text.tokenizer is not None:
        content["text"]["tokenizer"] = subwords.FORMAT
    return content


def _training_content(config: PipelineConfig) -> dict[str, Any]:
    """Return the training settings, with the contents of the initial model instead of its path."""
    # Without unset values: a new setting leaves the fingerprints of earlier runs as they were.
    content = config.training.model_dump(mode="json", exclude=_WITHOUT_EFFECT, exclude_none=True)
    # Neither does it change the model, but fingerprints of earlier runs have it.
    content["parallelism"] = "ddp"
    if config.training.initial is not None:
        content["initial"] = content_digest(config.training.initial)
    if config.training.leave_out is not None and config.training.leave_out.is_file():
        content["leave_out"] = content_digest(config.training.leave_out)
    return content


def newest_progress(directory: Path) -> dict[str, Any]:
    """Return the progress of the newest checkpoint that tells it; without torch, as planning has to be quick."""
    for checkpoint in sorted(directory.glob("checkpoints/step-*"), reverse=True):
        with contextlib.suppress(DigestError):
            check_digests(checkpoint, "progress.json")
            progress: dict[str, Any] = json.loads((checkpoint / "progress.json").read_bytes())
            return progress
    return {"epoch": 0, "history": []}


def _check_cluster(config: PipelineConfig) -> None:
    from pipelines.training.capacity import require_room

    require_room(config.training)


TRAIN = Stage(NAME, plan, "pipelines.stages.train.run", is_reported=True, check_cluster=_check_cluster)
