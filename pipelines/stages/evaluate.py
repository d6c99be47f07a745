"""Stage 4, evaluate: the best checkpoint on the evaluation split; makes gallery, metrics, query tables and figures."""

from functools import partial
from pathlib import Path
from typing import Any

from pipelines.config import PipelineConfig
from pipelines.evaluation.evaluator import GALLERY, NAME, PICTURES, VERSION, EvaluationData, evaluate_into
from pipelines.evaluation.protocol_files import protocol_files
from pipelines.plugins import sources
from pipelines.runtime.stage import Plans, StageDir, StagePlan, StageReport, check_outputs, content_digest, fingerprint
from pipelines.stages.extractor_identity import read_extractor
from pipelines.stages.shard_work import log_splits
from pipelines.tracking import Tracker
from preprocessing.captions import adversarial


def plan(config: PipelineConfig, upstream: Plans) -> StagePlan:
    """Find whether the model is evaluated; `outputs` has the gallery and the figures."""
    stage = _stage(config, upstream)
    outputs = {name: stage.path / name for name in (GALLERY, PICTURES)}
    return StagePlan.of_one(stage, "splits", f"split {config.dataset.eval_split}", outputs)


def run(config: PipelineConfig, upstream: Plans, tracker: Tracker) -> StageReport:
    """Evaluate the best checkpoint on the evaluation split; keeps the gallery, logs metrics and figures.

    Raises StageError where there is no trained model yet.
    """
    best = upstream["train"].output("best")
    config.mirror.pull_folder(best)
    return evaluate_directory(config, upstream, best, _stage(config, upstream), tracker)


def evaluate_directory(
    config: PipelineConfig, upstream: Plans, model: Path, stage: StageDir, tracker: Tracker
) -> StageReport:
    """Evaluate any model directory on the evaluation split, and complete an output directory with the results.

    Raises StageError where the model does not fit the features, or a protocol the split, and DigestError where a file
    of the model or of the shards was changed.
    """
    dataset, graphs = config.dataset, upstream["parse"].outputs if config.reads_graphs else {}
    shards = upstream["extract"].outputs[dataset.eval_split]
    tracker.set_tags(
        {
            "vse.fingerprint": stage.fingerprint,
            "vse.data_fingerprint": upstream["extract"].fingerprint,
            "vse.split": dataset.eval_split,
            "vse.protocol": f"image-text recall, {config.evaluation.folds} fold(s)",
            "vse.seed": config.seed,
        }
    )
    feature = config.features.member
    log_splits(config.name, dataset, feature, upstream["extract"], {dataset.eval_split: "evaluation"}, tracker)
    text, pools = config.model.text, config.pools
    data = EvaluationData(
        dataset, config.evaluation, shards, feature, graphs, text, pools, partial(read_extractor, config.features)
    )
    with config.mirror.pinned(shards, *graphs.values()):
        check_outputs(shards, *graphs.values())
        summary = evaluate_into(data, model, stage, tracker)
    return StageReport(NAME, stage.path, summary)


def evaluation_content(config: PipelineConfig, upstream: Plans) -> dict[str, Any]:
    """Return what decides an evaluation besides the model and the features."""
    evaluation, split = config.evaluation, config.dataset.eval_split
    content = {"split": split, "folds": evaluation.folds, "protocols": evaluation.protocols}
    for name, files in protocol_files(evaluation, split).items():
        content[name] = [content_digest(file) for file in files]
    if evaluation.added:
        content["added"] = [settings.model_dump(mode="json") for settings in evaluation.added]
        content |= sources(evaluation)
    if evaluation.first_images is not None:
        content["first_images"] = evaluation.first_images
    if config.reads_graphs:
        content["graphs"] = upstream["parse"].fingerprint
    if "attack" in evaluation.protocols:
        content["adversarials"] = adversarial.VERSION
        content["pools"] = config.pools.model_dump(mode="json")
    return content


def _stage(config: PipelineConfig, upstream: Plans) -> StageDir:
    content = {
        "version": VERSION,
        "train": upstream["train"].fingerprint,
        **evaluation_content(config, upstream),
    }
    return StageDir(config.work_dir, NAME, fingerprint(content), config.mirror)
