"""The work of stage 4, evaluate: gallery, metrics, query tables and figures of a model on the evaluation split."""

from pathlib import Path

from pipelines.config import PipelineConfig
from pipelines.evaluation import NAME
from pipelines.evaluation.evaluator import evaluate_into
from pipelines.kinds.inputs import SplitPaths
from pipelines.runtime.stage import Plans, StageDir, StageReport, check_outputs
from pipelines.stages.evaluate.plan import stage_dir
from pipelines.tracking import Tracker


def run(config: PipelineConfig, upstream: Plans, tracker: Tracker) -> StageReport:
    """Evaluate the best checkpoint on the evaluation split; StageError before a model is trained."""
    best = upstream["train"].output("best")
    config.mirror.pull_folder(best)
    return evaluate_directory(config, upstream, best, stage_dir(config, upstream), tracker, may_choose=True)


def evaluate_directory(
    config: PipelineConfig, upstream: Plans, model: Path, stage: StageDir, tracker: Tracker, *, may_choose: bool = False
) -> StageReport:
    """Evaluate any model directory on the evaluation split, and complete an output directory with the results.

    `may_choose` allows to choose the temperature of hub correction on this split, on which models are selected. Raises
    StageError if the model does not fit the features, or a protocol the split, and DigestError if a file was changed.
    """
    dataset, graphs = config.dataset, upstream["parse"].outputs if config.reads_graphs else {}
    shards = upstream["extract"].outputs[dataset.eval_split]
    tracker.set_tags(
        {
            "vse.model": str(model),
            "vse.data_fingerprint": upstream["extract"].fingerprint,
            "vse.split": dataset.eval_split,
            "vse.protocol": f"image-text recall, {config.evaluation.folds} fold(s)",
            "vse.seed": config.seed,
        }
    )
    with config.mirror.pinned(shards, *graphs.values()):
        check_outputs(shards, *graphs.values())
        train = SplitPaths(upstream["extract"].outputs[dataset.train_split], graphs.get(dataset.train_split))
        summary = evaluate_into(config, shards, graphs, train, model, stage, tracker, may_choose)
    return StageReport(NAME, stage.path, summary)
