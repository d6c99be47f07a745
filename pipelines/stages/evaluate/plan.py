"""Stage 4, evaluate, without its work: what decides an evaluation, and whether it is there."""

from pathlib import Path
from typing import Any

from pipelines.config import PipelineConfig
from pipelines.evaluation import CORRECTION_VERSION, GALLERY, NAME, PICTURES, VERSION
from pipelines.plugins import sources
from pipelines.reporting.published import RECALLS
from pipelines.runtime.stage import Plans, StageDir, StagePlan, content_digest, fingerprint, manifest_in
from pipelines.stages.extract.plan import kept_hashes
from pipelines.stages.stage import Stage
from pipelines.tracking import Tracker
from preprocessing.captions import adversarial
from preprocessing.datasets.crisscrossed import crisscrossed_files
from preprocessing.datasets.table import folder_of, read_header
from preprocessing.storage.address import is_s3
from preprocessing.storage.opening import open_storage


def plan(config: PipelineConfig, upstream: Plans) -> StagePlan:
    """Find whether the model is evaluated; `outputs` has the gallery and the figures."""
    stage = stage_dir(config, upstream)
    outputs = {name: stage.path / name for name in (GALLERY, PICTURES)}
    return StagePlan.of_one(stage, "splits", f"split {config.dataset.eval_split}", outputs)


def evaluation_content(config: PipelineConfig, upstream: Plans) -> dict[str, Any]:
    """Return what decides an evaluation besides the model and the features."""
    evaluation, split = config.evaluation, config.dataset.eval_split
    content = {"split": split, "folds": evaluation.folds, "protocols": evaluation.protocols}
    if "cxc" in evaluation.protocols and evaluation.cxc is not None:
        content["cxc"] = [content_digest(file) for file in crisscrossed_files(evaluation.cxc, split)]
    if evaluation.added:
        content["added"] = [settings.model_dump(mode="json") for settings in evaluation.added]
        content |= sources(evaluation)
    if columns := _columns(config):
        content["columns"] = columns
    if evaluation.hub_correction:
        content["hub_correction"] = CORRECTION_VERSION
    if evaluation.first_images is not None:
        content["first_images"] = evaluation.first_images
    if config.reads_graphs:
        content["graphs"] = upstream["parse"].fingerprint
    if "attack" in evaluation.protocols:
        content["adversarials"] = adversarial.VERSION
    if {"attack", "dependencies"}.intersection(evaluation.protocols):
        content["pools"] = config.pools.model_dump(mode="json")
    if "components" in evaluation.protocols and config.dataset.format == "karpathy" and config.dataset.instances:
        content["instances"] = [content_digest(file) for file in config.dataset.instances]
    return content


def _columns(config: PipelineConfig) -> list[str]:
    """Return the further columns of the evaluation split's table, and what it contains; nothing if it has none."""
    dataset = config.dataset
    if dataset.format != "table":
        return []
    table = dataset.table_of(dataset.eval_split)
    further = sorted(set(read_header(table)) - {dataset.image_column, *dataset.caption_columns, dataset.split_column})
    return [*further, *_content(config, table)] if further else []


def _content(config: PipelineConfig, table: str) -> list[str]:
    """Return what tells a table from an earlier one: its ETag on S3, here a hash, as it may be written again as it was.

    Nothing if the table has just been removed.
    """
    if is_s3(table):
        entry = open_storage(folder_of(table)).find(table.rpartition("/")[2])
        return [] if entry is None else [entry.version]
    with kept_hashes(config.work_dir, config.mirror.is_read_only) as hashes:
        return [stamp[1] for stamp in hashes.stamps([Path(table)]) if stamp is not None]


def stage_dir(config: PipelineConfig, upstream: Plans) -> StageDir:
    """Return the output directory of the stage under this configuration."""
    decided = {"version": VERSION, "train": upstream["train"].fingerprint}
    identity = fingerprint(decided | evaluation_content(config, upstream))
    return StageDir(config.work_dir, NAME, identity, config.mirror)


def _log_headlines(config: PipelineConfig, evaluated: StagePlan, tracker: Tracker) -> None:
    found = manifest_in(evaluated.directory)["metrics"]
    names = [name for name in ("rsum", "rsum_corrected", *RECALLS) if name in found]
    tracker.log_metrics({f"{config.dataset.eval_split}/{name}": found[name] for name in names})


EVALUATE = Stage(
    NAME, plan, "pipelines.stages.evaluate.run", is_reported=True, reads_model=True, log_headlines=_log_headlines
)
