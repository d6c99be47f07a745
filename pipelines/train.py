"""Train the configured model on the extracted shards with Ray Train; keeps the best and the newest checkpoint.

python pipelines/train.py --config pipelines/configs/flickr8k.yaml
"""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":  # run as a file: the repository, not this folder, is where imports begin
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import itertools
import json
import logging
import os
import secrets
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from pipelines import extract, parse
from pipelines.config import PipelineConfig
from pipelines.config.training import HingeLoss
from pipelines.stage import MANIFEST, StageDir, StageError, StagePlan, StageReport, content_digest, fingerprint
from preprocessing.shards import ShardError
from preprocessing.storage import StorageError

if TYPE_CHECKING:
    from ray.train import UserCallback
    from ray.train.v2.api.exceptions import TrainingFailedError

    from pipelines.tracking import Tracker
    from pipelines.trainer import Splits
    from preprocessing.captions.encoder import CaptionEncoder
    from preprocessing.shards.reader import ShardReader

log = logging.getLogger(__name__)

NAME = "train"
# Raised when the same inputs and settings would give another model.
VERSION = 1
# How a run is carried out, not what comes out of it.
_WITHOUT_EFFECT = {
    "workers",
    "cpus_per_worker",
    "gpus_per_worker",
    "gpu_type",
    "placement",
    "collective_timeout",
    "checkpoint_steps",
    "log_steps",
    "chunk_size",
    "compile",
    "profile_steps",
}
# A lost worker restarts the group from the last checkpoint; a run that loses so many without getting further has
# another problem.
_MAX_RESTARTS = 3
# Errors whose message says all the user needs.
_EXPECTED = (StageError, ShardError, StorageError)


@dataclass(frozen=True)
class TrainingJob:
    """What every training process is told: plain values, since it travels to other machines.

    Attributes:
        config: the pipeline's configuration as JSON.
        train_shards, eval_shards: directories of the two splits' features.
        train_graphs, eval_graphs: directories of their captions' graphs; None where nothing reads them.
        directory: output of the stage.
        run: handle of the MLflow run, as a mapping.
    """

    config: dict[str, Any]
    train_shards: str
    eval_shards: str
    train_graphs: str | None
    eval_graphs: str | None
    directory: str
    run: dict[str, str]


def plan(config: PipelineConfig) -> StagePlan:
    """Say what training would do now: its size, and how far an earlier run came."""
    features = extract.plan(config)
    stage = _stage(config, features)
    epochs = config.training.epochs
    return StagePlan(
        name=NAME,
        fingerprint=stage.fingerprint,
        directory=stage.path,
        total=epochs,
        done=epochs if stage.is_complete() else min(int(_newest_progress(stage.path)["epoch"]), epochs - 1),
        unit="epochs",
        size=f"{epochs} epochs, batch {config.training.batch_size}, {_workers(config)} worker(s)",
        outputs={"best": _best(stage)} if stage.is_complete() else {},
    )


def run(config: PipelineConfig, tracker: Tracker, callbacks: Sequence[UserCallback] = ()) -> StageReport:
    """Train, or go on with what an earlier run left; the manifest names the best checkpoint.

    Args:
        config: the pipeline's configuration.
        tracker: of the run.
        callbacks: told of every epoch by Ray Train.

    Raises:
        StageError: training cannot start, or has ended in NaN or in collapse.
    """
    from pipelines.checkpoints import adopt_checkpoints, offer_checkpoints
    from pipelines.training_data import open_splits

    features = extract.plan(config)
    stage = _stage(config, features)
    if stage.is_complete():
        return StageReport(NAME, stage.path, stage.read_manifest()["summary"], up_to_date=True)
    stage.create()
    train, evaluation = (features.outputs[split] for split in (config.dataset.train_split, config.dataset.eval_split))
    graphs = parse.plan(config).outputs if config.training_reads_graphs else {}
    train_graphs, eval_graphs = graphs.get(config.dataset.train_split), graphs.get(config.dataset.eval_split)
    offer_checkpoints(stage.path, config.mirror)
    with open_splits(config, train, evaluation, *_given(train_graphs)) as readers:
        facts, total_steps = _prepare(config, *readers, train_graphs, stage.path)
    config.mirror.push_missing(stage.path, leave=MANIFEST)  # the workers' machines need it
    tracker.log_params(config.model_dump(mode="json"))
    tracker.set_tags(
        {
            "vse.fingerprint": stage.fingerprint,
            "vse.data_fingerprint": features.fingerprint,
            "vse.split": config.dataset.eval_split,
            "vse.seed": config.seed,
        }
    )
    tracker.set_tags({f"vse.{name}": value for name, value in facts.items()})
    job = TrainingJob(
        config.model_dump(mode="json"),
        str(train),
        str(evaluation),
        None if train_graphs is None else str(train_graphs),
        None if eval_graphs is None else str(eval_graphs),
        str(stage.path),
        asdict(tracker.handle),
    )
    began = time.monotonic()
    outcome = _fit(config, job, total_steps, callbacks)
    if "error" in outcome:
        raise StageError(f"{NAME}: {outcome['error']}")
    adopt_checkpoints(stage.path, config.mirror)
    manifest = _manifest(config, outcome, facts) | {
        "data_fingerprint": features.fingerprint,
        "seconds": round(time.monotonic() - began, 1),
    }
    _log_outcome(config, stage.path, manifest, tracker)
    stage.complete(manifest)
    return StageReport(NAME, stage.path, manifest["summary"])


def _manifest(config: PipelineConfig, outcome: Mapping[str, Any], facts: Mapping[str, float]) -> dict[str, Any]:
    """What a finished run is remembered by: its history, its best checkpoint, and a summary."""
    from pipelines.checkpoints import best_directory

    history = outcome["history"]
    best = max(range(len(history)), key=lambda epoch: history[epoch]["rsum"])
    rsum, chance = history[best]["rsum"], outcome["chance"]
    return {
        **outcome,
        "best": best_directory(Path(), best).name,
        **facts,
        "summary": f"{config.dataset.eval_split} RSUM {rsum:.1f} (chance {chance:.1f}){_coverage(facts)}",
    }


def best_model(config: PipelineConfig) -> Path:
    """The directory of the best checkpoint of the configured run, on this machine.

    Raises:
        StageError: the run has not finished.
    """
    stage = _stage(config, extract.plan(config))
    best = _best(stage)
    stage.mirror.pull_folder(best)
    return best


def finished_epochs(config: PipelineConfig) -> list[dict[str, float]]:
    """The metrics of the epochs that the configured run has behind it, with their numbers as ``epoch``, from 1."""
    stage = _stage(config, extract.plan(config))
    reached = stage.read_manifest() if stage.is_complete() else _newest_progress(stage.path)
    history = reached["history"]
    return [{**metrics, "epoch": epoch} for epoch, metrics in enumerate(history, start=1)]


def _workers(config: PipelineConfig) -> str:
    fewest, most = config.training.fewest_workers, config.training.most_workers
    return f"{most}" if fewest == most else f"{fewest} to {most}"


def _best(stage: StageDir) -> Path:
    return stage.path / str(stage.read_manifest()["best"])


def _stage(config: PipelineConfig, features: StagePlan) -> StageDir:
    content = {
        "version": VERSION,
        "features": features.fingerprint,
        # Of several in the same shards.
        "reads": config.features.member,
        "splits": [config.dataset.train_split, config.dataset.eval_split],
        "seed": config.seed,
        "vocabulary": config.vocabulary.model_dump(mode="json"),
        "model": _model_content(config),
        "loss": config.loss.model_dump(mode="json"),
        # Without what is left open: a setting that is new leaves runs as they were.
        "training": config.training.model_dump(mode="json", exclude=_WITHOUT_EFFECT, exclude_none=True),
        "evaluation": config.evaluation.model_dump(mode="json", include={"folds"}),
    }
    if config.training_reads_graphs:
        content["graphs"] = parse.plan(config).fingerprint
    return StageDir(config.work_dir, NAME, fingerprint(content), config.mirror)


def _model_content(config: PipelineConfig) -> dict[str, Any]:
    """The model's settings, where files and folders go by what they hold and not by where they lie."""
    content = config.model.model_dump(mode="json")
    for side, key in (("image", "weights"), ("text", "weights"), ("text", "word_vectors")):
        path = content[side].get(key)
        if path is not None and Path(path).exists():
            content[side][key] = content_digest(Path(path))
    return content


def _newest_progress(directory: Path) -> dict[str, Any]:
    """How far the newest checkpoint came; read without importing torch, as planning has to be quick."""
    newest = max(directory.glob("checkpoints/step-*/progress.json"), default=None)
    if newest is None:
        return {"epoch": 0, "history": []}
    progress: dict[str, Any] = json.loads(newest.read_text(encoding="utf-8"))
    return progress


def _prepare(
    config: PipelineConfig, train: ShardReader, evaluation: ShardReader, graphs: Path | None, directory: Path
) -> tuple[dict[str, float], int]:
    """Check that the shards can feed the run, and write what turns captions into tokens and components.

    Returns:
        Figures about the captions' tokens for the manifest, and the optimiser steps of the whole run.
    """
    from preprocessing.captions.encoder import save_caption_encoder
    from preprocessing.shards.sampler import BatchSampler

    batch, workers = config.training.batch_size, config.training.most_workers
    if train.num_captions < batch:
        raise StageError(
            f"{NAME}: the split {config.dataset.train_split} holds {train.num_captions} captions, fewer "
            f"than training.batch_size {batch}: lower it or add data"
        )
    if workers > batch // 2 or workers > len(evaluation):
        raise StageError(
            f"{NAME}: training.workers {workers} are too many for batches of {batch} pairs and "
            f"{len(evaluation)} images of {config.dataset.eval_split}: lower it"
        )
    caption_encoder, facts = _caption_encoder(config, train, graphs, directory)
    save_caption_encoder(caption_encoder, directory)
    if graphs is not None:
        facts |= _write_negatives(config, train, graphs, directory)
    sampler = BatchSampler(train.num_captions, batch, config.seed)
    return facts, config.training.epochs * config.training.steps_per_epoch(sampler.steps_per_epoch)


def _caption_encoder(
    config: PipelineConfig, reader: ShardReader, graphs: Path | None, directory: Path
) -> tuple[CaptionEncoder, dict[str, float]]:
    """The vocabulary of the training captions, or the tokenizer of BERT's weights; with figures about it.

    UniVSE's vocabulary holds the words of the captions' components as well.
    """
    from preprocessing.captions.vocabulary import Vocabulary, VocabularyError
    from preprocessing.captions.word_vectors import WordVectors, WordVectorsError, read_word_vectors
    from preprocessing.captions.wordpiece import WordPiece, WordPieceError

    text = config.model.text
    try:
        if text.name == "bert":
            tokenizer = WordPiece.from_pretrained(text.weights)
            return tokenizer, {"vocabulary_size": len(tokenizer)}
        minimum = config.vocabulary.min_count
        words = _component_words(reader, graphs, minimum) if graphs is not None and config.model.is_unified else ()
        vocabulary = Vocabulary.build(_captions(reader), minimum, words)
        facts: dict[str, float] = {"vocabulary_size": len(vocabulary)}
        if text.word_vectors is not None:
            vectors = read_word_vectors(text.word_vectors, vocabulary, text.word_dim)
            vectors.save(directory / WordVectors.FILE)
            facts["word_vector_coverage"] = round(vectors.coverage, 4)
    except (VocabularyError, WordPieceError, WordVectorsError) as error:
        raise StageError(f"{NAME}: {error}") from error
    return vocabulary, facts


def _component_words(reader: ShardReader, graphs: Path, minimum: int) -> list[str]:
    """The words of components that are frequent enough."""
    from pipelines.text_input import graphs_of
    from preprocessing.captions.components import component_words

    return component_words(itertools.chain.from_iterable(graphs_of(graphs, reader)), minimum)


def _write_negatives(config: PipelineConfig, reader: ShardReader, graphs: Path, directory: Path) -> dict[str, float]:
    """Write what negatives are drawn from, pools of words and VSE-C's adversarial captions; figures about them."""
    from pipelines.negatives import ADVERSARIAL, write_adversarial_texts
    from pipelines.text_input import graphs_of
    from preprocessing.captions.pools import Pools, PoolsError

    try:
        pools = Pools.build(itertools.chain.from_iterable(graphs_of(graphs, reader)))
    except PoolsError as error:
        raise StageError(f"{NAME}: {error}") from error
    pools.save(directory / Pools.FILE)
    if config.loss.name != "vse_c":
        return {}
    report = write_adversarial_texts(graphs, pools, config.seed, directory / ADVERSARIAL)
    return {
        "adversarial_captions": report.adversarials,
        # Of three attacks on every caption.
        "adversarial_attacks": report.captions,
        "adversarial_attacks_impossible": sum(report.impossible.values()),
    }


def _coverage(facts: Mapping[str, float]) -> str:
    coverage = facts.get("word_vector_coverage")
    return "" if coverage is None else f", word vectors for {coverage:.0%} of the vocabulary"


def _captions(reader: ShardReader) -> Iterator[str]:
    return itertools.chain.from_iterable((caption["text"] for caption in meta["captions"]) for meta in reader.metas())


def _fit(
    config: PipelineConfig, job: TrainingJob, total_steps: int, callbacks: Sequence[UserCallback]
) -> dict[str, Any]:
    """Run the workers on the cluster; returns what the first of them returns.

    Ray starts the group again where it has lost a worker, a few times; we go on with that for as long as the run gets
    further in between. A machine that goes while the group is starting ends Ray's run as well.
    """
    # The controller looks at the workers, and takes their reports, at this pace; Ray's own is 2 seconds.
    os.environ.setdefault("RAY_TRAIN_HEALTH_CHECK_INTERVAL_S", "0.5")
    os.environ["RAY_TRAIN_COLLECTIVE_TIMEOUT_S"] = str(config.training.collective_timeout)
    from ray.train.v2.api.exceptions import TrainingFailedError

    from pipelines import cluster

    cluster.connect(config)
    directory = Path(job.directory)
    with _progress_bar(directory, total_steps):
        while True:
            before = _saved_steps(config, directory)
            try:
                return _ray_run(config, job, callbacks)
            except TrainingFailedError as error:
                if _saved_steps(config, directory) == before:
                    raise StageError(f"{NAME}: the workers failed: {_reason(error)}") from error
                log.warning("%s: the workers failed, and start again from the last checkpoint: %s", NAME, error)


def _ray_run(config: PipelineConfig, job: TrainingJob, callbacks: Sequence[UserCallback]) -> dict[str, Any]:
    from ray.train import FailureConfig, LoggingConfig, RunConfig
    from ray.train.torch import TorchTrainer

    from pipelines.worker_group import GroupConfig, scaling

    training = config.training
    trainer = TorchTrainer(
        train_worker,
        train_loop_config=asdict(job),
        torch_config=GroupConfig(backend=training.backend, timeout_s=training.collective_timeout),
        scaling_config=scaling(training),
        run_config=RunConfig(
            # Ray resumes a run of the same name by itself; resuming is ours to do, so every start has a new name.
            name=f"{Path(job.directory).name}-{time.strftime('%Y%m%dT%H%M%S')}-{secrets.token_hex(2)}",
            storage_path=str(config.work_dir / "ray"),
            failure_config=FailureConfig(max_failures=_MAX_RESTARTS),
            logging_config=LoggingConfig(log_level="WARNING"),
            callbacks=list(callbacks),
        ),
    )
    outcome: dict[str, Any] = trainer.fit().return_value
    return outcome


def _saved_steps(config: PipelineConfig, directory: Path) -> int:
    """The steps that the newest checkpoint has behind it, here or on the storage."""
    stored = (Path(name).parent for name in config.mirror.stored(directory) if name.startswith("checkpoints/step-"))
    here = directory.glob("checkpoints/step-*")
    return max((int(path.name.removeprefix("step-")) for path in itertools.chain(stored, here)), default=0)


def _reason(error: TrainingFailedError) -> str:
    """What the user can mend, where a worker has said so; what the others met then only follows from it."""
    for failure in getattr(error, "worker_failures", {}).values():
        cause = getattr(failure, "_base_exc", failure)
        if isinstance(cause, _EXPECTED):
            return str(cause)
    return str(error)


@contextmanager
def _progress_bar(directory: Path, total_steps: int) -> Iterator[None]:
    """Follow the losses that the first worker writes, on the driver's terminal."""
    from tqdm import tqdm

    from pipelines.loss_log import last_loss

    ended = threading.Event()

    def follow() -> None:
        """Move the bar to the last step in the file, every second, and once more at the end."""
        found = last_loss(directory)
        with tqdm(desc=NAME, total=total_steps, initial=found["step"] if found else 0, unit="step") as bar:
            while True:
                last = ended.wait(1.0)
                found = last_loss(directory)
                if found and found["step"] < bar.n:  # back at the checkpoint that an interrupted run goes on from
                    bar.initial = bar.n = found["step"]
                elif found and found["step"] > bar.n:
                    bar.set_postfix(loss=f"{found['loss']:.4g}", refresh=False)
                    bar.update(found["step"] - bar.n)
                if last:
                    return

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def train_worker(settings: dict[str, Any]) -> dict[str, Any]:
    """What every training process runs; the first one's return value is the outcome of the run."""
    import torch

    from pipelines.checkpoints import adopt_checkpoints
    from pipelines.trainer import Splits
    from pipelines.training_data import open_splits

    # Ray says in so many words that it has received each epoch's metrics; they are in MLflow and in the final table.
    logging.getLogger().setLevel(logging.WARNING)
    job = TrainingJob(**settings)
    config = PipelineConfig.model_validate(job.config)
    # Ray gives a worker one thread whatever it was promised.
    torch.set_num_threads(max(1, int(config.training.cpus_per_worker)))
    graphs = [None if path is None else Path(path) for path in (job.train_graphs, job.eval_graphs)]
    with open_splits(config, Path(job.train_shards), Path(job.eval_shards), *_given(*graphs)) as readers:
        adopt_checkpoints(Path(job.directory), config.mirror)
        return _train(config, job, Splits(*readers, *graphs))


def _given(*paths: Path | None) -> tuple[Path, ...]:
    return tuple(path for path in paths if path is not None)


def _train(config: PipelineConfig, job: TrainingJob, splits: Splits) -> dict[str, Any]:
    """Train as one of the processes."""
    import ray.train
    from ray.train.torch import get_device

    from pipelines.trainer import Trainer
    from preprocessing.captions.encoder import load_caption_encoder
    from vse_core.evaluation import chance_rsum
    from vse_core.training.collapse import CollapseError
    from vse_core.training.step import NonFiniteLossError

    directory = Path(job.directory)
    observer = RunObserver(job.run) if ray.train.get_context().get_world_rank() == 0 else None
    trainer = Trainer(
        config,
        splits,
        load_caption_encoder(directory),
        directory,
        get_device(),
        observer,
        # A barrier for all processes; it also tells Ray, and whoever watches it, that the run advances.
        on_epoch=lambda metrics: ray.train.report({**metrics, "epoch": len(trainer.progress.history)}),
    )
    try:
        history = trainer.run()
    except (CollapseError, NonFiniteLossError) as error:
        # Every process meets it at the same step; a restart would meet it again, so it is an outcome, not a failure.
        return {"error": str(error)}
    finally:
        if observer is not None:
            observer.close()
    return {
        "history": list(history),
        "chance": chance_rsum(splits.evaluation.caption_counts.tolist()),
        "steps_per_epoch": trainer.steps_per_epoch,
    }


def _machine_is_drained() -> bool:
    """Whether Ray has been told that a machine of the group is about to be taken away.

    `ray.train.get_preemption_info` tells the same, but every process has to ask at once, and waits for the others.
    """
    from ray.train.v2._internal.execution.context import get_train_context

    return get_train_context().preemption_context.preemption_info is not None


class RunObserver:
    """The first worker's ear: metrics go to MLflow, and processes that are told to end ask for a checkpoint.

    Args:
        run: handle of the MLflow run, as a mapping.
    """

    def __init__(self, run: Mapping[str, str]) -> None:
        from pipelines.preemption import CheckpointRequests
        from pipelines.tracking import RunHandle, Tracker

        self._tracker = Tracker(RunHandle(**run))
        self._requests = CheckpointRequests(_machine_is_drained)

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Send metrics of a step to MLflow, in batches."""
        self._tracker.log_metrics(metrics, step)

    def log_artifact(self, path: Path, folder: str) -> None:
        """Copy a file into a folder of the run's artifacts."""
        self._tracker.log_artifact(path, folder)

    def flush(self) -> None:
        """Deliver what a checkpoint now covers, or keep it on disk: a resumed run does not log it again."""
        self._tracker.detach(force=False)

    def wants_checkpoint(self) -> bool:
        """Whether a process of the group ends now, and needs a checkpoint before."""
        return self._requests.is_wanted()

    def checkpoint_is_safe(self) -> None:
        """Let the process that asked for it end."""
        self._requests.answer()

    def close(self) -> None:
        """Deliver what is left."""
        self._tracker.detach()


def _log_outcome(config: PipelineConfig, directory: Path, manifest: Mapping[str, Any], tracker: Tracker) -> None:
    """Log the curves and the checkpoints."""
    from pipelines.checkpoints import newest_checkpoint
    from pipelines.loss_log import read_losses
    from vse_core.evaluation.plots import plot_loss_curve, plot_recall_curves

    losses = read_losses(directory)
    if losses:
        marks: dict[str, Any] = {}
        if isinstance(config.loss, HingeLoss):
            marks["all_negatives_steps"] = config.loss.all_negatives.steps(manifest["steps_per_epoch"])
            marks["plateau"] = config.loss.plateau(config.training.batch_size)
        tracker.log_figure(plot_loss_curve(losses, **marks), "plots/loss.png")
    tracker.log_figure(plot_recall_curves(manifest["history"], manifest["chance"]), "plots/recall.png")
    for name, path in (("best", directory / manifest["best"]), ("last", newest_checkpoint(directory))):
        for file in sorted(path.iterdir()) if path is not None else []:
            tracker.log_artifact(file, f"checkpoints/{name}")


if __name__ == "__main__":
    from pipelines.command import main

    main(NAME)
