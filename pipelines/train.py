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
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from pipelines import extract, parse
from pipelines.config import PipelineConfig
from pipelines.config.training import HingeLoss
from pipelines.stage import MANIFEST, StageDir, StageError, StagePlan, StageReport, content_digest, fingerprint

if TYPE_CHECKING:
    from pipelines.tracking import Tracker
    from preprocessing.captions.encoder import CaptionEncoder
    from preprocessing.shards.reader import ShardReader

NAME = "train"
# Raised when the same inputs and settings would give another model.
VERSION = 1
# How a run is carried out, not what comes out of it.
_WITHOUT_EFFECT = {"workers", "cpus_per_worker", "gpus_per_worker", "checkpoint_steps", "log_steps"}
# A lost worker restarts the group from the last checkpoint; a run that keeps losing them has another problem.
_MAX_RESTARTS = 3


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
        done=epochs if stage.is_complete() else min(_finished_epochs(stage.path), epochs - 1),
        unit="epochs",
        size=f"{epochs} epochs, batch {config.training.batch_size}, {config.training.workers} worker(s)",
        outputs={"best": _best(stage)} if stage.is_complete() else {},
    )


def run(config: PipelineConfig, tracker: Tracker) -> StageReport:
    """Train, or go on with what an earlier run left; the manifest names the best checkpoint.

    Raises:
        StageError: training cannot start, or has ended in NaN or in collapse.
    """
    from pipelines.checkpoints import adopt_checkpoints, best_directory, offer_checkpoints

    features = extract.plan(config)
    stage = _stage(config, features)
    if stage.is_complete():
        return StageReport(NAME, stage.path, stage.read_manifest()["summary"], up_to_date=True)
    stage.create()
    train, evaluation = (features.outputs[split] for split in (config.dataset.train_split, config.dataset.eval_split))
    graphs = parse.plan(config).outputs if config.training_reads_graphs else {}
    train_graphs, eval_graphs = graphs.get(config.dataset.train_split), graphs.get(config.dataset.eval_split)
    offer_checkpoints(stage.path, config.mirror)
    with config.mirror.held(train, evaluation, *(path for path in (train_graphs,) if path is not None)):
        facts, total_steps = _prepare(config, train, evaluation, train_graphs, stage.path)
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
    outcome = _fit(config, job, total_steps)
    if "error" in outcome:
        raise StageError(f"{NAME}: {outcome['error']}")
    adopt_checkpoints(stage.path, config.mirror)
    history = outcome["history"]
    best = max(range(len(history)), key=lambda epoch: history[epoch]["rsum"])
    manifest = {
        **outcome,
        "best": best_directory(stage.path, best).name,
        **facts,
        "data_fingerprint": features.fingerprint,
        "seconds": round(time.monotonic() - began, 1),
        "summary": f"{config.dataset.eval_split} RSUM {history[best]['rsum']:.1f} (chance {outcome['chance']:.1f})"
        + _coverage(facts),
    }
    _log_outcome(config, stage.path, manifest, tracker)
    stage.complete(manifest)
    return StageReport(NAME, stage.path, manifest["summary"])


def best_model(config: PipelineConfig) -> Path:
    """The directory of the best checkpoint of the configured run, on this machine.

    Raises:
        StageError: the run has not finished.
    """
    stage = _stage(config, extract.plan(config))
    best = _best(stage)
    stage.mirror.pull_folder(best)
    return best


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
        "training": config.training.model_dump(mode="json", exclude=_WITHOUT_EFFECT),
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


def _finished_epochs(directory: Path) -> int:
    """Epochs that the newest checkpoint has behind it; read without importing torch, as planning has to be quick."""
    newest = max(directory.glob("checkpoints/step-*/progress.json"), default=None)
    return int(json.loads(newest.read_text(encoding="utf-8"))["epoch"]) if newest is not None else 0


def _prepare(
    config: PipelineConfig, train: Path, evaluation: Path, graphs: Path | None, directory: Path
) -> tuple[dict[str, float], int]:
    """Check that the shards can feed the run, and write what turns captions into tokens and components.

    Returns:
        Figures about the captions' tokens for the manifest, and the optimiser steps of the whole run.
    """
    from preprocessing.captions.encoder import save_caption_encoder
    from preprocessing.shards.reader import ShardReader
    from preprocessing.shards.sampler import BatchSampler

    readers = {
        split: ShardReader(path, config.features.member) for split, path in (("train", train), ("eval", evaluation))
    }
    batch, workers = config.training.batch_size, config.training.workers
    if readers["train"].num_captions < batch:
        raise StageError(
            f"{NAME}: the split {config.dataset.train_split} holds {readers['train'].num_captions} captions, fewer "
            f"than training.batch_size {batch}: lower it or add data"
        )
    if workers > batch // 2 or workers > len(readers["eval"]):
        raise StageError(
            f"{NAME}: training.workers {workers} are too many for batches of {batch} pairs and "
            f"{len(readers['eval'])} images of {config.dataset.eval_split}: lower it"
        )
    caption_encoder, facts = _caption_encoder(config, readers["train"], graphs, directory)
    save_caption_encoder(caption_encoder, directory)
    if graphs is not None:
        facts |= _write_negatives(config, readers["train"], graphs, directory)
    sampler = BatchSampler(readers["train"].num_captions, batch, config.seed)
    return facts, config.training.epochs * sampler.steps_per_epoch


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
    return itertools.chain.from_iterable(
        (caption["text"] for caption in reader.meta(image)["captions"]) for image in range(len(reader))
    )


def _fit(config: PipelineConfig, job: TrainingJob, total_steps: int) -> dict[str, Any]:
    """Run the workers on the cluster; returns what the first of them returns."""
    # The controller looks at the workers, and takes their reports, at this pace; Ray's own is 2 seconds.
    os.environ.setdefault("RAY_TRAIN_HEALTH_CHECK_INTERVAL_S", "0.5")
    from ray.train import FailureConfig, LoggingConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer
    from ray.train.v2.api.exceptions import TrainingFailedError

    from pipelines import cluster

    training = config.training
    cluster.connect(config)
    trainer = TorchTrainer(
        train_worker,
        train_loop_config=asdict(job),
        scaling_config=ScalingConfig(
            num_workers=training.workers,
            use_gpu=training.gpus_per_worker > 0,
            resources_per_worker={"CPU": training.cpus_per_worker, "GPU": training.gpus_per_worker},
        ),
        run_config=RunConfig(
            # Ray resumes a run of the same name by itself; resuming is ours to do, so every start has a new name.
            name=f"{Path(job.directory).name}-{time.strftime('%Y%m%dT%H%M%S')}",
            storage_path=str(config.work_dir / "ray"),
            failure_config=FailureConfig(max_failures=_MAX_RESTARTS),
            logging_config=LoggingConfig(log_level="WARNING"),
        ),
    )
    try:
        with _progress_bar(Path(job.directory), total_steps):
            outcome: dict[str, Any] = trainer.fit().return_value
    except TrainingFailedError as error:
        raise StageError(f"{NAME}: the workers failed: {error}") from error
    return outcome


@contextmanager
def _progress_bar(directory: Path, total_steps: int) -> Iterator[None]:
    """Follow the losses that the first worker writes, on the driver's terminal."""
    from tqdm import tqdm

    from pipelines.trainer import last_loss

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

    # Ray says in so many words that it has received each epoch's metrics; they are in MLflow and in the final table.
    logging.getLogger().setLevel(logging.WARNING)
    job = TrainingJob(**settings)
    config = PipelineConfig.model_validate(job.config)
    # Ray gives a worker one thread whatever it was promised.
    torch.set_num_threads(max(1, int(config.training.cpus_per_worker)))
    inputs = (job.train_shards, job.eval_shards, job.train_graphs, job.eval_graphs)
    with config.mirror.held(*(Path(path) for path in inputs if path is not None)):
        adopt_checkpoints(Path(job.directory), config.mirror)
        return _train(config, job)


def _train(config: PipelineConfig, job: TrainingJob) -> dict[str, Any]:
    """Train as one of the processes; everything that is read is on this machine."""
    import ray.train
    from ray.train.torch import get_device

    from pipelines.trainer import Splits, Trainer
    from preprocessing.captions.encoder import load_caption_encoder
    from preprocessing.shards.reader import ShardReader
    from vse_core.evaluation import chance_rsum
    from vse_core.training.collapse import CollapseError
    from vse_core.training.step import NonFiniteLossError

    feature, directory = config.features.member, Path(job.directory)
    splits = Splits(
        ShardReader(Path(job.train_shards), feature),
        ShardReader(Path(job.eval_shards), feature),
        None if job.train_graphs is None else Path(job.train_graphs),
        None if job.eval_graphs is None else Path(job.eval_graphs),
    )
    observer = RunObserver(job.run) if ray.train.get_context().get_world_rank() == 0 else None
    trainer = Trainer(
        config,
        splits,
        load_caption_encoder(directory),
        directory,
        get_device(),
        observer,
        # A barrier for all processes; it also tells Ray, and whoever watches it, that the run advances.
        on_epoch=ray.train.report,
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
        "steps_per_epoch": trainer.loader.steps_per_epoch,
    }


class RunObserver:
    """The first worker's ear: metrics go to MLflow.

    Args:
        run: handle of the MLflow run, as a mapping.
    """

    def __init__(self, run: Mapping[str, str]) -> None:
        from pipelines.tracking import RunHandle, Tracker

        self._tracker = Tracker(RunHandle(**run))

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Send metrics of a step to MLflow, in batches."""
        self._tracker.log_metrics(metrics, step)

    def flush(self) -> None:
        """Deliver what a checkpoint now covers, so that a resumed run repeats nothing in MLflow."""
        self._tracker.flush()

    def close(self) -> None:
        """Deliver what is left."""
        self._tracker.detach()


def _log_outcome(config: PipelineConfig, directory: Path, manifest: Mapping[str, Any], tracker: Tracker) -> None:
    """Log the curves and the checkpoints."""
    from pipelines.checkpoints import newest_checkpoint
    from pipelines.trainer import read_losses
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
