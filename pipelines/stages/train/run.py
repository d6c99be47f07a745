"""The work of stage 3, train: the configured model on the extracted shards; keeps the best and newest checkpoint."""

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pipelines.config import PipelineConfig
from pipelines.evaluation.pairs import pair_similarities
from pipelines.inference.embedder import default_device
from pipelines.inference.text_embedder import TextEmbedder
from pipelines.kinds.inputs import SplitPaths
from pipelines.runtime.lock import exclusive
from pipelines.runtime.outputs import record_outputs
from pipelines.runtime.stage import Plans, StageError, StageReport, check_outputs, empty_folder, manifest_in, move_up
from pipelines.stages.on_worker import on_worker
from pipelines.stages.train.plan import NAME, plan, stage_dir
from pipelines.tracking import PipelineRuns, Tracker
from pipelines.training.checkpoints import best_directory
from pipelines.training.launch import Fit, fit
from pipelines.training.left_out import Pair, left_out_pairs, number_dropped, pairs_of, write_pairs
from pipelines.training.loss_log import LOSSES
from pipelines.training.prepare import make_tables, prepare, require_captions
from pipelines.training.readers import open_captions, split_reader
from pipelines.training.run_folder import RunFolder
from pipelines.training.worker import TrainingJob
from preprocessing.storage.address import require_inner_name
from preprocessing.storage.atomic import write_json_atomic
from vse_core.digests import DIGESTS, DigestError, check_digests, recorded, write_digests
from vse_core.models import load_model

PREPARED, DROPPED = "prepared.json", "dropped.csv"
# MLflow takes no longer digest of data.
_DIGEST_CHARACTERS = 36


def run(
    config: PipelineConfig, upstream: Plans, tracker: Tracker, by: Fit | None = None, first_by: Fit | None = None
) -> StageReport:
    """Train, or resume an earlier run; the manifest names the best checkpoint.

    `by` runs the training, a group of workers on Ray by default, and `first_by` the one on all captions, if the worst
    are dropped. Raises StageError if training cannot start, or has ended in NaN or in collapse.
    """
    stage, given = stage_dir(config, upstream), config
    if config.training.drop_worst is not None:
        config = _without_worst(config, upstream, tracker, stage.create(), first_by)
    folder = RunFolder(stage.path, config.mirror)
    folder.publish(config.training.initial)
    folder.recover()
    splits = _splits(config, upstream)
    prepared = _prepared(config, stage.path) or _prepare(config, upstream, splits, stage.path)
    facts, total_steps = prepared["facts"], prepared["total_steps"]
    record_outputs(config.mirror, *(config.work_dir / tables for tables in prepared["tables"].values()))
    train, evaluation = (replace(split, tables=config.work_dir / prepared["tables"][name]) for name, split in splits)
    config.mirror.push_missing(stage.path, [*recorded(stage.path), DIGESTS])  # the workers' machines need it
    _log_settings(given, tracker, upstream["extract"].fingerprint, facts)
    split = config.dataset.eval_split
    digest = manifest_in(upstream["extract"].outputs[split])["fingerprint"][:_DIGEST_CHARACTERS]
    job = TrainingJob(
        config.training_settings, train, evaluation, folder, tracker.handle, (f"{config.name} {split}", digest)
    )
    outcome = (by or fit)(job, config.ray.address, total_steps)
    if "error" in outcome:
        raise StageError(f"{NAME}: {outcome['error']}")
    folder.recover()
    manifest = _manifest(config, outcome, facts) | {"data_fingerprint": upstream["extract"].fingerprint}
    for file in sorted((stage.path / manifest["best"]).iterdir()):
        tracker.log_artifact(file, "checkpoints/best")
    outputs = [*recorded(stage.path), DIGESTS, LOSSES, DROPPED, manifest["best"]]
    made = [name for name in outputs if (stage.path / name).exists()]
    stage.complete(manifest, made, config.mirror.stored(stage.path))
    return StageReport(NAME, stage.path, manifest["summary"])


def _without_worst(
    config: PipelineConfig, upstream: Plans, tracker: Tracker, directory: Path, by: Fit | None
) -> PipelineConfig:
    """Train on all captions, in a run below, and return the configuration that leaves out those that fit it worst.

    The first training is that of the configuration without `training.drop_worst`, and is not repeated. StageError,
    before it begins, if too few captions would stay for the second one.
    """
    first = config.model_copy(update={"training": config.training.model_copy(update={"drop_worst": None})})
    stage, file = stage_dir(first, upstream), directory / DROPPED
    shards = upstream["extract"].outputs[config.dataset.train_split]
    reader = split_reader(config.mirror, shards, config.features.member)
    # Read here: the file need not be on a worker's machine.
    left_out = left_out_pairs(config.training.leave_out, reader)
    with exclusive(config.mirror, stage.path):
        if not stage.is_complete():
            require_captions(config.training, reader.num_captions - len(left_out))
            with (
                PipelineRuns(config.experiment, stage.fingerprint, f"{NAME}, all captions", tracker.run_id) as runs,
                runs.parent as below,
            ):
                record_outputs(config.mirror, runs.folder, stage.path)
                run(first, upstream, below, by)
    config.mirror.pull_file(file)
    if not file.is_file():
        asked = config, shards, plan(first, upstream).output("best"), left_out
        # A trial of one worker is that worker, and holds its resources.
        is_worker = by is not None and config.training.most_workers == 1
        write_pairs(file, _worst(*asked) if is_worker else on_worker(config, _worst, *asked))
        config.mirror.push(file)
    return first.model_copy(update={"training": first.training.model_copy(update={"leave_out": file})})


def _worst(config: PipelineConfig, shards: Path, model: Path, left_out: set[Pair]) -> list[Pair]:
    """Return `training.drop_worst` of the captions, least like their images to a model, and those left out anyway."""
    config.mirror.pull_folder(model)
    reader = split_reader(config.mirror, shards, config.features.member)
    embedder = TextEmbedder(load_model(model, default_device()), model)
    similarities_C, _ = pair_similarities(embedder, reader, range(len(reader)), list(reader.texts()))
    found = zip(similarities_C.tolist(), pairs_of(reader), strict=True)
    ranked = sorted((similarity, pair) for similarity, pair in found if pair not in left_out)
    dropped = number_dropped(config.training.drop_worst, len(ranked))
    return sorted(left_out | {pair for _, pair in ranked[:dropped]})


def _splits(config: PipelineConfig, upstream: Plans) -> list[tuple[str, SplitPaths]]:
    graphs = upstream["parse"].outputs if config.kind.reads_graphs else {}
    names = (config.dataset.train_split, config.dataset.eval_split)
    return [(name, SplitPaths(upstream["extract"].outputs[name], graphs.get(name))) for name in names]


def _prepared(config: PipelineConfig, directory: Path) -> dict[str, Any] | None:
    """Return the record of an earlier start's preparation; None if there is none, or some of it was changed."""
    with contextlib.suppress(DigestError, StageError):
        check_digests(directory, PREPARED)
        check_digests(directory)
        prepared: dict[str, Any] = json.loads((directory / PREPARED).read_bytes())
        for tables in prepared["tables"].values():
            require_inner_name(tables, f"{directory / PREPARED}, tables", StageError)
            config.mirror.pull(config.work_dir / tables)
            check_outputs(config.work_dir / tables)
        return prepared
    return None


def _prepare(
    config: PipelineConfig, upstream: Plans, splits: Sequence[tuple[str, SplitPaths]], directory: Path
) -> dict[str, Any]:
    """Write what the workers read, and the record of it: a restart does not read the captions again."""
    settings, shards = config.training_settings, upstream["extract"].shards
    paths = (path for _, path in splits)
    with (
        empty_folder(directory) as made,
        open_captions(config.mirror, settings.feature, config.training.shuffle_shards, *paths) as data,
    ):
        caption_encoder, facts, total_steps = prepare(settings, *data, made)
        # The vocabulary, word vectors, negatives.
        names = move_up(made)
        kind = settings.kind, settings.kind_settings
        tables = {
            name: make_tables(config.work_dir, name, shards[name], split, caption_encoder, directory, *kind)
            for (name, _), split in zip(splits, data, strict=True)
        }
    folders = {name: path.relative_to(config.work_dir).as_posix() for name, path in tables.items()}
    prepared = {"facts": facts, "total_steps": total_steps, "tables": folders}
    write_json_atomic(directory / PREPARED, prepared)
    (directory / DIGESTS).unlink(missing_ok=True)
    write_digests(directory, *names, PREPARED)
    return prepared


def _log_settings(config: PipelineConfig, tracker: Tracker, features: str, facts: Mapping[str, float]) -> None:
    tracker.log_params(config.model_dump(mode="json"))
    tags = {
        "vse.data_fingerprint": features,
        "vse.split": config.dataset.eval_split,
        "vse.seed": config.seed,
    }
    tracker.set_tags(tags | {f"vse.{name}": value for name, value in facts.items()})


def _manifest(config: PipelineConfig, outcome: Mapping[str, Any], facts: Mapping[str, float]) -> dict[str, Any]:
    history = outcome["history"]
    best = max(range(len(history)), key=lambda epoch: history[epoch]["rsum"])
    rsum, chance = history[best]["rsum"], outcome["chance"]
    untrained = "" if config.training.epochs else f"{config.model.untrained(config.training.initial)}: "
    return {
        **outcome,
        "best": best_directory(Path(), best).name,
        **facts,
        "summary": f"{untrained}{config.dataset.eval_split} RSUM {rsum:.1f} (chance {chance:.1f}){_of_captions(facts)}",
    }


def _of_captions(facts: Mapping[str, float]) -> str:
    coverage, truncated = facts.get("word_vector_coverage"), facts["captions_truncated"]
    left_out = facts.get("captions_left_out")
    known = "" if left_out is None else f", {left_out:,} captions left out"
    known += "" if coverage is None else f", word vectors for {coverage:.0%} of the vocabulary"
    return f"{known}, {truncated:,} captions cut short" if truncated else known
