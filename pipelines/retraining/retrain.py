"""Scheduled retraining: if the data has grown, train a challenger, and promote it if it is better."""

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, fields
from functools import partial
from pathlib import Path
from typing import Any

from pipelines.config import PipelineConfig, load_config
from pipelines.registry.models import CHAMPION, aliases_of, find_model, versions_of
from pipelines.retention.choice import Rules
from pipelines.retention.prune import prune
from pipelines.retraining.journal import START, Journal, now
from pipelines.retraining.new_pairs import NewPairs
from pipelines.retraining.notify import notify
from pipelines.retraining.promotion import Decision, judge, unreadable
from pipelines.runtime.cli import console, make_parser, say
from pipelines.runtime.commands import command
from pipelines.runtime.lock import exclusive
from pipelines.runtime.logs import about
from pipelines.runtime.outputs import record_outputs
from pipelines.runtime.stage import Plans, StageError, fingerprint, manifest_in
from pipelines.stages.extract.plan import kept_hashes
from pipelines.stages.runner import known_stages, plan_stages, run_stages
from pipelines.tracking import PipelineRuns, Tracker
from preprocessing.datasets import build_dataset
from preprocessing.extraction.identity import image_stamps
from preprocessing.extraction.split_hashes import DataManifest, DatasetDiff
from preprocessing.storage.base import BusyError
from preprocessing.storage.redaction import RedactedError, redacted
from vse_core.digests import DigestError

NAME = "retrain"


def retrain(config: PipelineConfig) -> str:
    """Retrain if data or settings are new; return the outcome in a line.

    Raises BusyError if another retraining of this model is running, and StageError if a stage cannot do its work, or if
    the model is of a kind that is not registered.
    """
    _require_registered(config)
    journal = _journal(config)
    with exclusive(config.mirror, journal.folder):
        try:
            journal.share()
            text = _retrain(config, journal)
        except BusyError as error:  # another command is at a stage of it: nothing has failed, and --wait tries again
            journal.status("interrupted", reason=redacted(str(error)))
            raise
        except BaseException as error:
            outcome = "failed" if isinstance(error, Exception) else "interrupted"
            reason = redacted(f"{type(error).__name__}: {error}")
            if outcome == "failed":
                _tell(config, outcome, reason)  # first: the journal may have failed
            journal.status(outcome, reason=reason)
            journal.log(outcome, reason)
            if outcome == "failed":
                _prune(config)
            raise
        _prune(config)
        return text


def _prune(config: PipelineConfig) -> None:
    """Remove what `retrain.keep` leaves no room for; what goes wrong is told, and does not change the outcome."""
    if config.retrain.keep is None:
        return
    try:
        say(prune(config, Rules(keep=config.retrain.keep), is_real=True))
    except (RedactedError, BusyError, DigestError, OSError) as error:
        console(stderr=True).print(f"{config.registered_model}: nothing more is pruned: {error}", soft_wrap=True)


def preview(config: PipelineConfig) -> str:
    """Return in a line what a retraining would do; nothing is done, and a running one is not disturbed."""
    _require_registered(config)
    config = config.for_dry_run()
    journal = _journal(config)
    last = journal.last()
    if last is not None and last["identity"] == identity_of(config):
        return f"nothing new: {_as_before(last)}"
    growth = _growth(_manifests(config, journal, last), journal, last)
    return f"would retrain: {_changes(growth)}"


def identity_of(config: PipelineConfig) -> str:
    """Return the identity of a retraining: data and settings, without its initial model."""
    evaluation = plan_stages(config, last="evaluate")["evaluate"]
    return fingerprint([NAME, config.retrain.start, evaluation.fingerprint, config.registered_model])


def _require_registered(config: PipelineConfig) -> None:
    if not config.kind.has_embeddings:
        raise StageError(
            f"{NAME}: {config.kind.title}'s model has no embeddings and is not registered, and a new one is compared "
            f"with a registered champion; train it by `{command('full')}`"
        )


def _journal(config: PipelineConfig) -> Journal:
    return Journal(config.work_dir / NAME / config.registered_model, config.mirror)


def _retrain(config: PipelineConfig, journal: Journal) -> str:
    with _failed_run(config, journal):
        identity, last = identity_of(config), journal.last()
    if last is not None and last["identity"] == identity:
        text = _as_before(last)
        journal.status("nothing new", last=last["ended"])
        journal.log("nothing new", text)
        if (starts := journal.idle_starts()) % config.retrain.notify_after == 0:
            _tell(config, "nothing new", f"{starts} starts in a row: {text}")
        return f"nothing new: {text}"
    journal.status("running", identity=identity)
    record = _train_and_judge(config, journal, identity, last)
    journal.finish(identity, record)
    journal.status(record["outcome"], record=record)
    text = _summary(record)
    journal.log(record["outcome"], text)
    _tell(config, record["outcome"], text)
    return f"{record['outcome']}: {text}"


def _tell(config: PipelineConfig, outcome: str, text: str) -> None:
    if (target := config.retrain.notify) is not None:
        told = {"outcome": outcome, "model": config.registered_model, "host": socket.gethostname(), "at": now()}
        notify(target, {**told, "text": f"{config.registered_model}: {outcome}: {text}"})


@contextmanager
def _failed_run(config: PipelineConfig, journal: Journal) -> Iterator[None]:
    """Leave a failed run in MLflow, on record, if a ``with`` fails before the run of the retraining is opened."""
    try:
        yield
    except Exception:
        identity = fingerprint([NAME, now()])
        with suppress(Exception), PipelineRuns(config.experiment, identity, f"{NAME}-failed") as runs, runs.parent:
            record_outputs(config.mirror, journal.of(identity), model=config.registered_model)
            raise
        raise


def _train_and_judge(
    config: PipelineConfig, journal: Journal, identity: str, last: dict[str, Any] | None
) -> dict[str, Any]:
    """Bring all stages up to date and compare the challenger with the champion; returns the record."""
    began, clock = now(), time.monotonic()
    with (
        PipelineRuns(config.experiment, identity, f"{NAME}-{began[:10]}-{identity[:8]}") as runs,
        runs.parent as tracker,
        about(NAME, tracker.run_id),
    ):
        record_outputs(config.mirror, journal.of(identity), model=config.registered_model)
        manifests = _manifests(config, journal, last)
        growth = _growth(manifests, journal, last)
        for split, manifest in manifests.items():
            journal.keep_data(identity, split, manifest)
        tracker.set_tags({"vse.new": _changes(growth)})
        start = journal.once(identity, START, lambda: _starting_model(config), partial(_is_there, config))
        plans = run_stages(config, ["extract"], within=tracker.run_id)
        changed = manifests[config.dataset.train_split].new_images
        new = NewPairs(config, journal, identity, last, plans["extract"].outputs, changed)
        new.keep()
        audit = _audited(new, start, tracker)
        left_out = new.left_out()
        started = _started(config, start["version"], left_out)
        plans = run_stages(started, known_stages(), within=tracker.run_id)
        version = manifest_in(plans["register"].directory)["model_uri"].rpartition("/")[2]
        decision = judge(started, f"{config.registered_model}/{version}")
        record = {
            "identity": identity,
            "outcome": "promoted" if _is_champion(decision) else "refused",
            "began": began,
            "ended": now(),
            "seconds": round(time.monotonic() - clock, 1),
            "start": start,
            "audit": audit,
            "changes": _changes(growth),
            "data": {split: _data_record(plans, split, each) for split, each in growth.items()},
            "decision": asdict(decision),
            "metrics": manifest_in(plans["evaluate"].directory)["metrics"],
            "run": tracker.run_url(),
        }
        _log(record, tracker)
    return record


def _manifests(config: PipelineConfig, journal: Journal, last: dict[str, Any] | None) -> dict[str, DataManifest]:
    """Return the hashes of what each split consists of, and what is new in it since the last retraining."""
    dataset = build_dataset(config.dataset.format, **config.dataset.options())
    splits = dict.fromkeys((config.dataset.train_split, config.dataset.eval_split))
    with kept_hashes(config.work_dir, config.mirror.is_read_only) as hashes:
        stamps = image_stamps(dataset, hashes)
        return {split: DataManifest.of(dataset, split, stamps, _before(journal, last, split)) for split in splits}


def _growth(
    manifests: dict[str, DataManifest], journal: Journal, last: dict[str, Any] | None
) -> dict[str, DatasetDiff]:
    """Return the changes of each split since the last retraining."""
    return {split: manifest.since(_before(journal, last, split)) for split, manifest in manifests.items()}


def _before(journal: Journal, last: dict[str, Any] | None, split: str) -> DataManifest | None:
    return None if last is None else journal.data(last["identity"], split)


def _as_before(last: dict[str, Any]) -> str:
    return f"data and settings are those of {last['ended']} ({last['outcome']})"


def _changes(growth: dict[str, DatasetDiff]) -> str:
    return "; ".join(f"{split} {each}" for split, each in growth.items())


def _starting_model(config: PipelineConfig) -> dict[str, Any]:
    """Return the champion if it can be loaded, and the version that training starts from; None for either."""
    name, uri = config.registered_model, config.tracking_uri
    champion = aliases_of(name, uri).get(CHAMPION)
    if champion is not None and (problem := unreadable(f"{name}/{champion}", uri)):
        told = f"{name}/{champion}, the champion, cannot be loaded: training starts from scratch ({problem})"
        console(stderr=True).print(told, soft_wrap=True)
        champion = None
    return {"champion": champion, "version": champion if config.retrain.start == "champion" else None}


def _is_there(config: PipelineConfig, start: dict[str, Any]) -> bool:
    """Return whether what `_starting_model` gave is still registered, if the data is again what it was long ago."""
    versions = versions_of(config.registered_model, config.tracking_uri)
    return {start.get("champion"), start["version"]} - {None} <= versions


def _audited(new: NewPairs, start: dict[str, Any], tracker: Tracker) -> dict[str, Any] | None:
    """Audit what came new, if there is a champion to do it; returns its record."""
    champion = start.get("champion", start["version"])
    if new.config.retrain.audit == "none" or champion is None or not new.config.kind.has_embeddings:
        return None
    return new.audit(champion, tracker)


def _started(config: PipelineConfig, version: int | None, left_out: Path | None) -> PipelineConfig:
    """Return the configuration with the initial model, and the captions that are not trained on."""
    changes: dict[str, Path | None] = {"leave_out": left_out}
    if version is not None:
        _, changes["initial"] = find_model(f"{config.registered_model}/{version}", config.tracking_uri)
    return config.model_copy(update={"training": config.training.model_copy(update=changes)})


def _is_champion(decision: Decision) -> bool:
    """Return whether the challenger has won: now, or in an earlier start that was killed."""
    return decision.promoted or decision.challenger == decision.champion


def _data_record(plans: Plans, split: str, growth: DatasetDiff) -> dict[str, Any]:
    """Return the size of a split, what is new in it, and how many of its shards were reused."""
    manifests = {name: manifest_in(plan.outputs[split]) for name, plan in plans.items() if split in plan.shards}
    counts = {name: {**manifest, **manifest["counts"]} for name, manifest in manifests.items()}
    extracted = manifests["extract"]
    return {
        **asdict(growth),
        "fingerprint": extracted["fingerprint"],
        "images": extracted["counts"]["images"],
        "captions": extracted["counts"]["captions"],
        "skipped": len(extracted["skipped"]),
        "shards": {name: {"all": each["shards"], "reused": each["reused_shards"]} for name, each in counts.items()},
    }


def _log(record: dict[str, Any], tracker: Tracker) -> None:
    tracker.set_tags({"vse.outcome": record["outcome"]})
    tracker.describe(_summary(record))
    counts = (*(field.name for field in fields(DatasetDiff)), "images", "captions")
    tracker.log_metrics(
        {f"{NAME}/{split}_{name}": data[name] for split, data in record["data"].items() for name in counts}
    )
    tracker.log_metrics({f"{NAME}/{name}": value for name, value in record["metrics"].items()})
    tracker.log_dict(record, "record.json")


def _summary(record: dict[str, Any]) -> str:
    """Return the record in a line of text."""
    decision, start = record["decision"], record["start"]["version"]
    audit = f"; {record['audit']['summary']}" if record.get("audit") else ""
    begun = "scratch" if start is None else f"version {start}"
    return (
        f"version {decision['challenger']} from {begun}: {decision['reason']} [{record['changes']}{audit}; "
        f"{record['seconds']:,.0f} s] {record['run']}"
    )


def main() -> None:
    """Read the command line, and retrain if there is new data."""
    options = make_parser().parse_args()
    config = load_config(options.config, options.set)
    say(preview(config) if options.dry_run else retrain(config))
