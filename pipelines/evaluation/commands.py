"""The commands evaluate, compare and audit: models by their names, alone, as an ensemble, or against each other."""

from argparse import ArgumentTypeError
from collections.abc import Sequence
from pathlib import Path

from pipelines.config import PipelineConfig, load_config
from pipelines.config.training import EVALUATION_PROTOCOLS
from pipelines.evaluation import NAME
from pipelines.registry.models import check_model
from pipelines.registry.pretrained import require_pretrained, zero_shot_config
from pipelines.runtime.cli import file_or_packaged, make_parser, number_in, say
from pipelines.schema.weights import PRETRAINED
from pipelines.stages.preflight import check_before_start
from pipelines.stages.runner import run_stages

_MODEL = "model directory, NAME, NAME@ALIAS or NAME/VERSION in MLflow, or hf: and a folder or name of CLIP or SigLIP"


def evaluate_main() -> None:
    """Read the command line, and evaluate the configured model or the models that it names."""
    parser = make_parser()
    parser.add_argument(
        "--model",
        nargs="+",
        action="append",
        metavar=("MODEL", "FILE"),
        help=f"{_MODEL}; FILE configures its data and features if they are not those of --config, and a third word "
        "is its split if that is not --split (repeatable: several models are also evaluated as an ensemble)",
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
    if any(len(words) > 3 for words in options.model):
        parser.error("--model takes a model, a configuration and a split; repeat --model for the next model")
    try:
        named = [(words[0], _configured(words, options.config, options.split, overrides)) for words in options.model]
    except ArgumentTypeError as error:
        parser.error(f"--model: {error}")
    if options.dry_run:
        checked = [f"{check_named(*each)} on {each[1].name}, split {each[1].dataset.eval_split}" for each in named]
        say(f"would evaluate {'; '.join(checked)}")
        return
    from pipelines.evaluation.named_models import NamedModel, evaluate_models  # torch, which planning does without

    report = evaluate_models([NamedModel.find(*each) for each in named])
    say(f"{report.summary}\n{report.directory}")


def compare_main() -> None:
    """Read the command line, and compare two models."""
    parser = make_parser()
    parser.add_argument("first", metavar="MODEL", help=_MODEL)
    parser.add_argument("second", metavar="OTHER", help=f"the model to compare with: {_MODEL}")
    own = "data and features of the other model (default: --config)"
    parser.add_argument("--second-config", type=file_or_packaged("data"), metavar="FILE", help=own)
    parser.add_argument("--split", help="split to compare on instead of dataset.eval_split")
    options = parser.parse_args()
    config = _configured([options.first], options.config, options.split, options.set)
    second_config = _configured([options.second], options.second_config or options.config, options.split, options.set)
    if options.dry_run:
        first, second = check_named(options.first, config), check_named(options.second, second_config)
        say(f"would evaluate and compare {first} and {second} on split {config.dataset.eval_split}")
        return
    from pipelines.evaluation.named_models import NamedModel, compare_models  # torch, which planning does without

    report = compare_models(NamedModel.find(options.first, config), NamedModel.find(options.second, second_config))
    say(f"{report.summary}\n{report.directory}")


def audit_main() -> None:
    """Read the command line, and audit the training split."""
    parser = make_parser()
    parser.add_argument(
        "model", nargs="?", metavar="MODEL", help=f"{_MODEL}; by default two models are trained, each on half"
    )
    parser.add_argument("--split", help="split to audit instead of dataset.train_split")
    parser.add_argument(
        "--loss", type=number_in(float, 0, 1), default=0.05, help="share of good pairs that may be named (default 0.05)"
    )
    options = parser.parse_args()
    splits = [f"dataset.train_split={options.split}"] if options.split else []
    config = load_config(options.config, [*options.set, *splits])
    split = config.dataset.train_split
    if split == config.dataset.eval_split:
        parser.error(f"the pairs of dataset.eval_split ({split}) are those that others are measured by: audit another")
    if options.dry_run:
        check_before_start(config.for_dry_run(), trains=options.model is None)
        judge = "two models of halves" if options.model is None else check_named(options.model, config)
        say(f"would audit {split} by {judge}")
        return
    from pipelines.evaluation.audit import audit_by_halves, audit_by_model  # torch, which planning does without
    from pipelines.evaluation.named_models import NamedModel

    if options.model is None:
        report = audit_by_halves(config, options.loss)
    else:
        report = audit_by_model(NamedModel.find(options.model, config), options.loss)
    say(f"{report.summary}\n{report.directory}")


def check_named(reference: str, config: PipelineConfig) -> str:
    """Return the name of the model that `NamedModel.find` would find, for a dry run: nothing is fetched or written.

    Raises as that, and as `check_before_start` if the data and what else the configuration names are not there.
    """
    name = reference
    if reference.startswith(PRETRAINED):
        require_pretrained(config := zero_shot_config(config, reference.removeprefix(PRETRAINED)))
    else:
        name = check_model(reference, config.tracking_uri)
    check_before_start(config.for_dry_run(), trains=False)
    return name


def _configured(words: Sequence[str], file: Path | None, split: str | None, overrides: Sequence[str]) -> PipelineConfig:
    """Load the configuration of a model by the words of --model; file and split are the command's if it has none."""
    file, split = file_or_packaged("data")(words[1]) if len(words) > 1 else file, words[2] if len(words) > 2 else split
    return load_config(file, [*overrides, *([f"dataset.eval_split={split}"] if split else [])])
