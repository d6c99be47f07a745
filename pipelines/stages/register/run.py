"""The work of stage 6, register: the best checkpoint in MLflow, a model of raw texts and images with its gallery."""

import itertools
from collections.abc import Mapping
from pathlib import Path

from pipelines.config import PipelineConfig
from pipelines.config.features import Features
from pipelines.evaluation import GALLERY
from pipelines.inference.embedder import write_extractor
from pipelines.registry.models import CORRECTION, MODEL_CARD
from pipelines.registry.registration import active_run, register_bundle
from pipelines.runtime.stage import MANIFEST, Plans, StageError, StageReport, disk_errors, manifest_in
from pipelines.serving.requirements import pip_requirements
from pipelines.stages.register import card as model_card
from pipelines.stages.register.plan import NAME, card_of, stage_dir
from pipelines.tracking import Tracker, code_version
from pipelines.tracking.client import named_outages
from preprocessing.storage.atomic import link_tree, write_bytes_atomic
from vse_core.digests import DIGESTS, check_digests, write_digests

EXTRACTOR = "extractor"


def run(config: PipelineConfig, upstream: Plans, tracker: Tracker) -> StageReport:
    """Put the best checkpoint, its extractor and its gallery together, log them as a pyfunc and register it.

    Raises StageError if there is no trained and evaluated model yet, or MLflow does not take it.
    """
    stage = stage_dir(config, upstream)
    parts = {
        "model": upstream["train"].output("best"),
        "gallery": upstream["evaluate"].output(GALLERY),
        "index": upstream["index"].output("index"),
    }
    config.mirror.pull_folder(parts["model"])
    for folder in itertools.chain.from_iterable(plan.folders for plan in upstream.values()):
        config.mirror.pull_file(folder / MANIFEST)
    for name in ("evaluate", "index"):
        config.mirror.pull(upstream[name].directory)
    if (correction := upstream["evaluate"].directory / CORRECTION).is_dir():
        parts[CORRECTION] = correction
    metrics = manifest_in(upstream["evaluate"].directory)["metrics"]
    split = config.dataset.eval_split
    tags = _tags(config, upstream, metrics["rsum"])
    named = {f"{split}/{name}": value for name, value in metrics.items()}
    card = stage.path / MODEL_CARD
    with disk_errors(NAME, stage.path):
        _write_bundle(config.features, parts, stage.create())
        write_bytes_atomic(card, _card(config, upstream, metrics, tags).encode())
    tracker.log_artifact(card)
    with named_outages(config.tracking_uri, "register the model", StageError), active_run(tracker):
        registered = register_bundle(
            stage.path,
            config.registered_model,
            stage.fingerprint,
            pip_requirements(stage.path),
            tags,
            named,
            model_card.description(card.read_text(encoding="utf-8")),
        )
    summary = f"{registered.name} version {registered.version}, {split} RSUM {metrics['rsum']:.1f}"
    tracker.set_tags({"vse.model_uri": registered.uri})
    version = {"model_uri": registered.uri, "model_id": registered.model_id}
    record = {"summary": summary, **version, "card": card_of(config)}
    stage.complete(record, [*parts, EXTRACTOR, DIGESTS, MODEL_CARD])
    return StageReport(NAME, stage.path, summary)


def _tags(config: PipelineConfig, upstream: Plans, rsum: float) -> dict[str, str]:
    return {
        "vse.preset": config.preset,
        "vse.split": config.dataset.eval_split,
        "vse.rsum": f"{rsum:.2f}",
        "vse.folds": str(config.evaluation.folds),
        "vse.seed": str(config.seed),
        "vse.data_fingerprint": upstream["extract"].fingerprint,
        "vse.train_fingerprint": upstream["train"].fingerprint,
        **code_version(),
    }


def _card(config: PipelineConfig, upstream: Plans, metrics: Mapping[str, float], tags: Mapping[str, str]) -> str:
    dataset, features, training = config.dataset, config.features, manifest_in(upstream["train"].directory)
    splits = {name: manifest_in(folder) for name, folder in upstream["extract"].outputs.items()}
    weights = model_card.pretrained(features, config.model)
    sections = {
        "Intended use": [config.registry.card.intended_use or model_card.INTENDED_USE],
        "Metrics": model_card.metrics_table(metrics, dataset.eval_split, config.evaluation.folds),
        "Data": model_card.data_table(dataset, features.member, splits),
        "Configuration": model_card.training_list(config.training, config.loss, config.model, training),
        "Licences": model_card.licences(config.registry.card, dataset.format, weights),
        "Origin": [f"- {name.removeprefix('vse.')}: `{value}`" for name, value in sorted(tags.items())],
    }
    model = config.model
    summary = (
        f"A model of images and sentences in one space ({config.preset}): image side {model.image.name}, text side "
        f"{model.text.name}, {model.embed_dim or 'its own'} dimensions."
    )
    return model_card.model_card(config.registered_model, summary, sections)


def _write_bundle(features: Features, parts: Mapping[str, Path], directory: Path) -> None:
    """Write the parts of a bundle, and the list that binds them; those of a killed run are overwritten."""
    for name, source in parts.items():
        check_digests(source)
        link_tree(source, directory / name)
    write_extractor(directory / EXTRACTOR, features.extractor, {**features.options(), **features.limits})
    write_digests(directory, *parts, EXTRACTOR)
