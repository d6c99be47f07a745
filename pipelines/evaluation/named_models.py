"""The evaluation of named models, alone, as an ensemble or against each other: the commands evaluate and compare."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pipelines.config import PipelineConfig, load_config
from pipelines.config.training import EVALUATION_PROTOCOLS
from pipelines.evaluation.comparison import compare
from pipelines.evaluation.ensemble import EvaluatedModel, evaluate_ensemble, in_one_order
from pipelines.evaluation.evaluator import GALLERY, NAME, VERSION
from pipelines.evaluation.pretrained import PREFIX, save_pretrained_model, zero_shot_config
from pipelines.evaluation.rsum import Rsum
from pipelines.inference.feature_check import require_features
from pipelines.kinds import saved_kind
from pipelines.runtime.cli import make_parser, say
from pipelines.runtime.lock import exclusive
from pipelines.runtime.stage import StageDir, StageError, StageReport, fingerprint, manifest_in
from pipelines.stages.evaluate.plan import evaluation_content
from pipelines.stages.evaluate.run import evaluate_directory
from pipelines.stages.preflight import check_before_start
from pipelines.stages.runner import run_stages
from pipelines.tracking import PipelineRuns
from preprocessing.datasets import build_dataset
from vse_core.digests import DigestError

_MODEL = "model directory, NAME, NAME@ALIAS or NAME/VERSION in MLflow, or hf: and a folder or name of CLIP or SigLIP"


@dataclass(frozen=True)
class NamedModel:
    """A model with the configuration of its data and features."""

    reference: str
    config: PipelineConfig
    model: Path

    @classmethod
    def find(cls, reference: str, config: PipelineConfig) -> NamedModel:
        """Find a model directory, a registered model, or a pretrained dual encoder (hf:NAME or hf:FOLDER).

        A name alone whose champion cannot be read means the newest version. Raises RegistryError if there is no such
        model; ConfigError if there is no such folder; StageError if the pretrained weights cannot be used.
        """
        from pipelines.registry.models import find_model, without_champion

        if reference.startswith(PREFIX):
            config = zero_shot_config(config, reference.removeprefix(PREFIX))
            return cls(reference, config, save_pretrained_model(config))
        try:
            name, model = find_model(reference, config.tracking_uri)
        except DigestError as error:
            newest = without_champion(reference, error, config.tracking_uri)
            name, model = find_model(newest, config.tracking_uri)
        return cls(name, config, model)


def check_named(reference: str, config: PipelineConfig) -> str:
    """Return the name of the model that `NamedModel.find` would find, for a dry run: nothing is fetched or written.

    Raises as that, and as `check_before_start` if the data and what else the configuration names are not there.
    """
    from pipelines.registry.models import check_model

    name = reference
    if reference.startswith(PREFIX):
        config = zero_shot_config(config, reference.removeprefix(PREFIX))
    else:
        name = check_model(reference, config.tracking_uri)
    check_before_start(config.for_dry_run())
    return name


def evaluate_model(named: NamedModel) -> EvaluatedModel:
    """Evaluate any model on the evaluation split of its configuration; missing features are extracted first.

    The model has its own caption encoder; the features must be those it was trained on.

    Raises StageError if the model does not fit the features, or was trained on others.
    """
    from pipelines.training.checkpoints import weights_digest

    config, model = named.config, named.model
    require_features(config.features.member, model)
    plans = run_stages(config, ["extract", "parse"] if config.reads_graphs else ["extract"])
    content = {
        "version": VERSION,
        "model": weights_digest(model),
        "features": plans["extract"].fingerprint,
        # Of several in the same shards.
        "reads": config.features.member,
        **evaluation_content(config, plans),
    }
    stage = StageDir(config.work_dir, NAME, fingerprint(content), config.mirror)
    if not stage.is_complete():
        with (
            exclusive(config.mirror, stage.path),
            PipelineRuns(config.experiment, stage.fingerprint) as runs,
            runs.parent as tracker,
        ):
            tracker.set_tags({"vse.model": str(model)})
            evaluate_directory(config, plans, model, stage, tracker)
    stage.pull()
    return EvaluatedModel(named.reference, model, saved_kind(model), plans["extract"].fingerprint, stage.path)


def evaluate_models(models: Sequence[NamedModel]) -> StageReport:
    """Evaluate each model by itself, and all together where there are several.

    Raises StageError if a model does not fit its features, or the images, captions or protocols differ.
    """
    require_same_settings(models, "folds", "protocols", "cxc")
    require_same_items(models)
    evaluated = [evaluate_model(named) for named in models]
    if len(evaluated) > 1:
        config = models[0].config
        split, place = config.dataset.eval_split, (config.mirror, config.experiment)
        return evaluate_ensemble(evaluated, config.evaluation, split, *place, config.seed)
    directory = evaluated[0].directory
    return StageReport(NAME, directory, manifest_in(directory)["summary"])


def compare_models(first: NamedModel, second: NamedModel) -> StageReport:
    """Evaluate two models where they are not evaluated yet, and compare them.

    Raises StageError if a model does not fit its features, or the images, captions or protocols differ.
    """
    require_same_settings([first, second], "folds")
    config, evaluated = first.config, (evaluate_model(first), evaluate_model(second))
    folds, split = config.evaluation.folds, config.dataset.eval_split
    return compare(evaluated, folds, split, config.mirror, config.experiment)


def compare_references(config: PipelineConfig, first: str, second: str) -> StageReport:
    """Find two models, and compare them on the data and features of one configuration.

    Raises StageError if there is no such model, or it does not fit the features.
    """
    return compare_models(NamedModel.find(first, config), NamedModel.find(second, config))


def measure_reference(config: PipelineConfig, reference: str) -> Rsum:
    """Find a model, evaluate it if it is not evaluated yet, and return its RSUM next to that of a random ranking.

    Raises StageError if there is no such model, or it does not fit the features.
    """
    from pipelines.retrieval.gallery import Gallery
    from vse_core.evaluation.recall import chance_rsum

    directory = evaluate_model(NamedModel.find(reference, config)).directory
    metrics, folds = manifest_in(directory)["metrics"], config.evaluation.folds
    counts = [len(record.captions) for record in Gallery.load(directory / GALLERY).records]
    size = len(counts) // folds
    chances = [chance_rsum(counts[start : start + size]) for start in range(0, folds * size, size)]
    return Rsum(metrics["rsum"], metrics["rsum_low"], metrics["rsum_high"], sum(chances) / folds)


def require_same_settings(models: Sequence[NamedModel], *keys: str) -> None:
    """Refuse models that are to be evaluated differently.

    Raises StageError with the first key of `evaluation` that differs.
    """
    for key in keys:
        values = list(dict.fromkeys(getattr(named.config.evaluation, key) for named in models))
        if len(values) > 1:
            raise StageError(
                f"{NAME}: evaluation.{key} differs between the configurations: {values[0]} and {values[1]}; make it one"
            )


def require_same_items(models: Sequence[NamedModel]) -> None:
    """Refuse models whose splits have different images or captions, before any of them is evaluated.

    Raises StageError with the first two models that differ.
    """
    import torch

    from pipelines.retrieval.gallery import Gallery

    if len(models) < 2:
        return
    galleries = []
    for named in models:
        settings = named.config.dataset
        records = tuple(build_dataset(settings.format, **settings.options()).records(settings.eval_split))
        captions = sum(len(record.captions) for record in records)
        # Nothing is embedded yet: vectors of width 0.
        galleries.append(Gallery(torch.empty(len(records), 1, 0), torch.empty(captions, 0), records))
    in_one_order([named.reference for named in models], galleries)


def evaluate_main() -> None:
    """Read the command line, and evaluate the configured model or the models that it names."""
    parser = make_parser()
    parser.add_argument(
        "--model",
        nargs="+",
        action="append",
        metavar=("MODEL", "FILE"),
        help=f"{_MODEL}; FILE configures its data and features where they are not those of --config, and a third word "
        "is its split where that is not --split (repeatable: several models are also evaluated as an ensemble)",
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
    named = [(words[0], _configured(words, options.config, options.split, overrides)) for words in options.model]
    if options.dry_run:
        checked = [f"{check_named(*each)} on {each[1].name}, split {each[1].dataset.eval_split}" for each in named]
        say(f"would evaluate {'; '.join(checked)}")
        return
    _print(evaluate_models([NamedModel.find(*each) for each in named]))


def _configured(words: Sequence[str], file: Path | None, split: str | None, overrides: Sequence[str]) -> PipelineConfig:
    """Load the configuration of a model by the words of --model; file and split are the command's if it has none."""
    file, split = Path(words[1]) if len(words) > 1 else file, words[2] if len(words) > 2 else split
    return load_config(file, [*overrides, *([f"dataset.eval_split={split}"] if split else [])])


def compare_main() -> None:
    """Read the command line, and compare two models."""
    parser = make_parser()
    parser.add_argument("first", metavar="MODEL", help=_MODEL)
    parser.add_argument("second", metavar="OTHER", help=f"the model to compare with: {_MODEL}")
    parser.add_argument(
        "--second-config", type=Path, metavar="FILE", help="data and features of the other model (default: --config)"
    )
    parser.add_argument("--split", help="split to compare on instead of dataset.eval_split")
    options = parser.parse_args()
    overrides = [*options.set, *([f"dataset.eval_split={options.split}"] if options.split else [])]
    config = load_config(options.config, overrides)
    second_config = load_config(options.second_config or options.config, overrides)
    if options.dry_run:
        first, second = check_named(options.first, config), check_named(options.second, second_config)
        say(f"would evaluate and compare {first} and {second} on split {config.dataset.eval_split}")
        return
    _print(compare_models(NamedModel.find(options.first, config), NamedModel.find(options.second, second_config)))


def _print(report: StageReport) -> None:
    say(f"{report.summary}\n{report.directory}")
