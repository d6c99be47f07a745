"""Stage 4, evaluate, without its work: what decides an evaluation, and whether it is there."""

from typing import Any

from pipelines.config import PipelineConfig
from pipelines.config.datasets import TableDataset
from pipelines.evaluation import CORRECTION_VERSION, GALLERY, NAME, PICTURES, VERSION
from pipelines.plugins import sources
from pipelines.reporting.published import RECALLS
from pipelines.runtime.stage import Plans, StageDir, StagePlan, content_digest, fingerprint, manifest_in
from pipelines.stages.stage import Stage
from pipelines.tracking import Tracker
from preprocessing.captions import adversarial
from preprocessing.datasets.crisscrossed import crisscrossed_files
from preprocessing.datasets.table import folder_of, read_header
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
    if isinstance(config.dataset, TableDataset) and (columns := _columns(config.dataset)):
        content["columns"] = columns
    if evaluation.hub_correction:
        content["hub_correction"] = CORRECTION_VERSION
    if evaluation.first_images is not None:
        content["first_images"] = evaluation.first_images
    if config.reads_graphs:
        content["graphs"] = upstream["parse"].fingerprint
    if "attack" in evaluation.protocols:
        content["adversarials"] = adversarial.VERSION
        content["pools"] = config.pools.model_dump(mode="json")
    return content


def _columns(dataset: TableDataset) -> list[str]:
    """Return the further columns of the evaluation split's table, and its version; nothing if it has none."""
    table = dataset.table_of(dataset.eval_split)
    further = sorted(set(read_header(table)) - {dataset.image_column, *dataset.caption_columns})
    entry = open_storage(folder_of(table)).find(table.rpartition("/")[2])
    return [*further, entry.version] if further and entry is not None else []


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
