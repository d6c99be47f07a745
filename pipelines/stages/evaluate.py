r"""Evaluate a model on a split: recalls both ways, every query, contact sheets and the learned pooling weights.

As a stage it takes the best checkpoint of the configured training run:

    python pipelines/evaluate.py --config pipelines/config/data/flickr8k.yaml

With a model given it evaluates that one, a model directory or a registered model, on any split of the configured data:

    python pipelines/evaluate.py --config pipelines/config/data/flickr8k.yaml --model models:/flickr8k/1 --split dev

Every metric has its 95 % interval, and every query its row in a table. The protocols of the papers come on top by
name, where the split is the published one: flickr8k_1k, flickr30k_1k, coco_1k, coco_5k, msr_vtt, vatex, and cxc, which
wants the folder of Crisscrossed Captions (evaluation.cxc):

    python pipelines/evaluate.py --config pipelines/config/data/coco.yaml --model coco/1 --split test \
        --protocol coco_1k --protocol coco_5k

So do UniVSE's, of any split: retrieval under adversarial captions, of images by objects, attributes and relations, and
the resolution of dependencies by images:

    python pipelines/evaluate.py --config pipelines/config/data/flickr8k.yaml --model flickr8k/1 --protocol attack

With several models it also evaluates their ensemble, the mean of their similarities. Models of other features of the
same images name the configuration of these features:

    python pipelines/evaluate.py --config regions.yaml --model regions/1 --model regions/2 --model grids/1 grids.yaml
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.config import PipelineConfig
from pipelines.config.training import EVALUATION_PROTOCOLS
from pipelines.evaluation.evaluator import GALLERY, NAME, VERSION, evaluate_into, evaluation_content
from pipelines.runtime.stage import StageDir, StagePlan, StageReport, fingerprint, whole_plan
from pipelines.stages import train

if TYPE_CHECKING:
    from pipelines.tracking import Tracker

# Told by the stages that read what this one makes.
MISSING = "the model has not been evaluated; run the stages train and evaluate first"


def plan(config: PipelineConfig) -> StagePlan:
    """Say what evaluation would do now."""
    stage = _stage(config)
    return whole_plan(stage, "splits", f"split {config.dataset.eval_split}", {GALLERY: stage.path / GALLERY})


def run(config: PipelineConfig, tracker: Tracker) -> StageReport:
    """Evaluate the best checkpoint on the evaluation split; keeps the gallery, logs metrics and pictures.

    Raises:
        StageError: there is no trained model yet.
    """
    stage = _stage(config)
    if not stage.is_complete():
        evaluate_into(config, train.best_model(config), stage, tracker)
    return StageReport(NAME, stage.path, stage.read_manifest()["summary"])


def _stage(config: PipelineConfig) -> StageDir:
    content = {
        "version": VERSION,
        "train": train.plan(config).fingerprint,
        **evaluation_content(config),
    }
    return StageDir(config.work_dir, NAME, fingerprint(content), config.mirror)


def main() -> None:
    """Read the command line, and evaluate the configured model or the models that it names."""
    from pipelines.config import load_config
    from pipelines.evaluation.ensemble import Member, evaluate_members
    from pipelines.registry.models import find_model
    from pipelines.runtime.cli import make_parser
    from pipelines.stages.runner import run_stages

    parser = make_parser("Evaluate the best checkpoint of the configured run, any other model, or several together.")
    parser.add_argument(
        "--model",
        nargs="+",
        action="append",
        metavar=("MODEL", "FILE"),
        help="model directory, or NAME, NAME@ALIAS, NAME/VERSION in MLflow; FILE configures its data and features "
        "where they are not those of --config (repeatable: several models are also evaluated as an ensemble)",
    )
    parser.add_argument(
        "--protocol",
        action="append",
        default=[],
        choices=EVALUATION_PROTOCOLS[1:],
        help="evaluate by this protocol besides retrieval (repeatable; default: evaluation.protocols)",
    )
    parser.add_argument("--split", help="split to evaluate instead of dataset.eval_split (with --model)")
    options = parser.parse_args()
    protocols = f"evaluation.protocols=[{', '.join(['retrieval', *options.protocol])}]"
    overrides = [*options.set, *([protocols] if options.protocol else [])]
    if options.model is None:
        if options.split is not None:
            parser.error("--split goes with --model: the stage itself evaluates dataset.eval_split")
        run_stages(load_config(options.config, overrides), [NAME], options.dry_run)
        return
    if any(len(words) > 2 for words in options.model):
        parser.error("--model takes a model and at most one configuration; repeat --model for the next model")
    overrides += [f"dataset.eval_split={options.split}"] if options.split else []
    members = []
    for reference, *files in options.model:
        config = load_config(Path(files[0]) if files else options.config, overrides)
        members.append(Member(reference, config, find_model(reference, config.tracking_uri)))
    report = evaluate_members(members)
    sys.stdout.write(f"{report.summary}\n{report.directory}\n")
