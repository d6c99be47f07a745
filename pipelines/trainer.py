"""The training loop of one process: build or restore, train an epoch, evaluate, keep the best.

Everything random or scheduled is a function of (seed, epoch, step), so a run that was killed anywhere goes on from its
last checkpoint with the losses of one that never stopped, on any number of processes. Only dropout, where an encoder
has it, differs between numbers of processes, as it does between seeds.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from pipelines.checkpoints import Checkpoints, newest_checkpoint
from pipelines.config import PipelineConfig
from pipelines.config.model import ModelConfig
from pipelines.image_input import image_source
from pipelines.loss_schedule import LossSchedule
from pipelines.negatives import ADVERSARIAL, adversarial_texts, negative_sampler
from pipelines.text_input import component_table, text_batches
from preprocessing.captions.adversarial.pool import AdversarialPool
from preprocessing.captions.components import ComponentTable
from preprocessing.captions.encoder import CaptionEncoder
from preprocessing.captions.negatives import NegativeSampler
from preprocessing.captions.word_vectors import WordVectors
from preprocessing.shards.batch import Batch
from preprocessing.shards.loader import TrainLoader, caption_batches, image_batches
from preprocessing.shards.reader import ShardReader
from preprocessing.shards.sampler import BatchSampler, rank_slice
from preprocessing.shards.storage import write_bytes_atomic
from vse_core.evaluation import embed_images, embed_texts, evaluate_retrieval
from vse_core.models import AdversarialModel, Components, TwoTower, build_model, load_weights
from vse_core.training.gather import gather_rows, rank, world_size
from vse_core.training.optim import build_optimizer, set_learning_rate
from vse_core.training.schedule import Schedule, constant, cosine_decay, fixed_blocks, step_decay, with_warmup
from vse_core.training.state import Progress, load_state
from vse_core.training.step import StepResult, training_step

LOSSES = "losses.jsonl"
EVALUATION_BATCH = 128


class Observer(Protocol):
    """Where the loop reports to; the first process of a run has one."""

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Take metrics of a step; may be buffered."""

    def flush(self) -> None:
        """A checkpoint now holds everything logged so far."""

    def wants_checkpoint(self) -> bool:
        """Whether a checkpoint is needed after this very step, and at once where it is safe."""

    def checkpoint_is_safe(self) -> None:
        """The checkpoint that was wanted is there, on the storage too."""


@dataclass(frozen=True)
class Splits:
    """The shards of the two splits that training reads.

    Attributes:
        train, evaluation: features.
        train_graphs, evaluation_graphs: directories of the captions' graphs, where something reads them.
    """

    train: ShardReader
    evaluation: ShardReader
    train_graphs: Path | None = None
    evaluation_graphs: Path | None = None


class Trainer:
    """One process's part of a training run.

    Args:
        config: the pipeline's configuration.
        splits: readers of the training and the evaluation split.
        caption_encoder: gives the captions' tokens.
        directory: the stage's output: ``checkpoints/step-*`` to resume from, ``best-*``, ``losses.jsonl``.
        device: where to compute.
        observer: where to report to; None on all processes but the first.
        on_epoch: called by every process with the metrics of each finished epoch.
    """

    def __init__(
        self,
        config: PipelineConfig,
        splits: Splits,
        caption_encoder: CaptionEncoder,
        directory: Path,
        device: torch.device,
        observer: Observer | None,
        on_epoch: Callable[[dict[str, float]], None],
    ) -> None:
        self.config = config
        self.splits = splits
        self.caption_encoder = caption_encoder
        self.directory = directory
        self.device = device
        self.observer = observer
        self.on_epoch = on_epoch
        training = config.training
        specification = {
            "feature_dim": None if splits.train.is_pictures else splits.train.feature_dim,
            "vocabulary_size": len(caption_encoder),
            **config.model.specification(),
        }
        self.checkpoints = Checkpoints(
            directory, specification, caption_encoder, config.parsing.pipeline, config.mirror
        )
        torch.manual_seed(config.seed)
        self.model = build_model(**specification).to(device)
        self.sampler = BatchSampler(
            splits.train.num_captions,
            training.batch_size,
            config.seed,
            splits.train.shard_captions,
            training.shuffle_shards,
        )
        self.loader = TrainLoader(
            splits.train,
            image_source(
                self.model,
                splits.train,
                config.seed,
                training.image_augmentation,
                training.size_augmentation,
                training.feature_dropout,
            ),
            caption_encoder,
            self.sampler,
            rank=rank(),
            world=world_size(),
            seed=config.seed,
            caption_augmentation=training.caption_augmentation,
            components=self._negatives(),
            adversarial=self._adversarial(),
        )
        self.evaluation_images = image_source(self.model, splits.evaluation)
        self.evaluation_components = self._components(splits.evaluation, splits.evaluation_graphs)
        self._set_word_vectors()
        self.optimizer = build_optimizer(
            self.model, training.learning_rate, training.weight_decay, rate_factors(config.model)
        )
        self.schedule = build_schedule(config, self.loader.steps_per_epoch)
        self.losses = LossSchedule(config.loss, self.loader.steps_per_epoch)
        self.progress = Progress()

    def run(self) -> tuple[dict[str, float], ...]:
        """Train to the last epoch, from the last checkpoint where there is one; returns the metrics of every epoch.

        Raises:
            NonFiniteLossError: the loss or gradient is not finite; the weights of the last checkpoint are sound.
            CollapseError: the embeddings have collapsed.
        """
        self._restore()
        wrapped, fixed = None, 0
        for epoch in range(self.progress.epoch, self.config.training.epochs):
            if wrapped is None or self._fixed_blocks(epoch) != fixed:
                wrapped = None  # it lets go of the parameters before the next one takes them
                fixed = self._fixed_blocks(epoch)
                wrapped = self._wrapped(fixed)
            self._train_epoch(wrapped, epoch)
            self._finish_epoch(epoch)
        if self.observer is not None:
            self.checkpoints.wait()
        return self.progress.history

    def _components(self, reader: ShardReader, graphs: Path | None) -> ComponentTable | None:
        """The components of a split's captions; None where the model takes none."""
        if not self.config.model.is_unified:
            return None
        assert graphs is not None, "UniVSE is trained on parsed captions"
        return component_table(graphs, reader, self.caption_encoder)

    def _negatives(self) -> NegativeSampler | None:
        """What draws the negatives of captions' components; None where the model takes none."""
        table = self._components(self.splits.train, self.splits.train_graphs)
        if table is None:
            return None
        return negative_sampler(self.config, table, self.caption_encoder, self.directory)

    def _adversarial(self) -> AdversarialPool | None:
        """What draws adversarial captions; None where the loss takes none."""
        loss = self.config.loss
        if loss.name != "vse_c":
            return None
        texts = adversarial_texts(self.directory / ADVERSARIAL, self.splits.train)
        return AdversarialPool(texts, self.caption_encoder, self.config.seed, loss.adversarial_captions)

    def _set_word_vectors(self) -> None:
        text = self.config.model.text
        if text.name != "bert" and text.word_vectors is not None:
            vectors = WordVectors.load(self.directory / WordVectors.FILE)
            encoder: Any = self.model.text_encoder
            words_W, vectors_WE = torch.from_numpy(vectors.words_W), torch.from_numpy(vectors.vectors_WE)
            encoder.set_word_vectors(words_W.to(self.device), vectors_WE.to(self.device))

    def _fixed_blocks(self, epoch: int) -> int:
        image = self.config.model.image
        return fixed_blocks(epoch, image.frozen_epochs, image.block_epochs) if image.name == "backbone" else 0

    def _wrapped(self, fixed: int) -> nn.Module:
        """The model ready for steps in which so many blocks of a backbone stay fixed."""
        encoder: Any = self.model.image_encoder
        if self.config.model.image.name == "backbone":
            encoder.fix_blocks(fixed)
        trained: nn.Module = self.model
        if self.config.loss.name == "vse_c" and isinstance(self.model, TwoTower):
            trained = AdversarialModel(self.model)
        if world_size() == 1:
            return trained
        devices = [self.device] if self.device.type == "cuda" else None
        # Buffers are the statistics of the global batch, the same everywhere: nothing to broadcast.
        return DistributedDataParallel(trained, device_ids=devices, broadcast_buffers=False)

    def _train_epoch(self, wrapped: nn.Module, epoch: int) -> None:
        self.model.train()
        meter = _Throughput(self.loader)
        for step, batch in enumerate(self.loader.epoch(epoch, self.progress.step), start=self.progress.step):
            result = self._step(wrapped, batch, epoch, step)
            size = len(self.sampler.batch(epoch, step))
            meter.add(size)
            done = epoch * self.loader.steps_per_epoch + step + 1
            plateau_steps = self.losses.check(done - 1, result.loss.item(), size)
            self.progress = replace(self.progress, epoch=epoch, step=step + 1, plateau_steps=plateau_steps)
            is_last = done == self.config.training.epochs * self.loader.steps_per_epoch
            if self.observer is not None and (is_last or done % self.config.training.log_steps == 0):
                self._log_step(self.observer, result, done, meter.take())
            if done % self.config.training.checkpoint_steps == 0:
                self._save(done)
            if self.observer is not None and self.observer.wants_checkpoint():
                self._save(done)
                self.checkpoints.wait()
                self.observer.checkpoint_is_safe()

    def _step(self, wrapped: nn.Module, batch: Batch, epoch: int, step: int) -> StepResult:
        done = epoch * self.loader.steps_per_epoch + step
        set_learning_rate(self.optimizer, self.config.training.learning_rate * self.schedule(done))
        seed_dropout(self.config.seed, done, rank())
        batch = (batch.pin() if self.device.type == "cuda" else batch).to(self.device)
        return training_step(
            wrapped,
            self.losses.at(done),
            self.optimizer,
            self._model_inputs(batch, done),
            batch.image_indices_B,
            [
                len(rank_slice(self.sampler.batch(epoch, step), process, world_size()))
                for process in range(world_size())
            ],
            self.config.training.gradient_clip,
        )

    def _model_inputs(self, batch: Batch, step: int) -> tuple[Any, ...]:
        """What the model is called with in a step, counted from 0."""
        inputs = (batch.images, batch.elements, batch.tokens_BL, batch.token_lengths_B)
        if batch.components is not None:
            return (*inputs, Components(**batch.components))
        if batch.adversarial is not None and self.losses.takes_adversarial(step):
            return (*inputs, *batch.adversarial)
        return inputs

    def _log_step(self, observer: Observer, result: StepResult, step: int, throughput: dict[str, float]) -> None:
        metrics = {"train/loss": result.loss.item(), "train/gradient_norm": result.gradient_norm.item()}
        metrics |= {f"train/{name}": part.item() for name, part in result.parts.items()}
        metrics["train/learning_rate"] = self.optimizer.param_groups[0]["lr"]
        with (self.directory / LOSSES).open("a", encoding="utf-8") as file:
            file.write(json.dumps({"step": step, "loss": metrics["train/loss"]}) + "\n")
        observer.log(metrics | throughput, step)

    def _finish_epoch(self, epoch: int) -> None:
        metrics = self._evaluate()
        self.progress = replace(self.progress, epoch=epoch + 1, step=0, history=(*self.progress.history, metrics))
        step = (epoch + 1) * self.loader.steps_per_epoch
        if self.observer is not None:
            split = self.config.dataset.eval_split
            self.observer.log(
                {f"{split}/{name}": value for name, value in metrics.items()} | {"epoch": epoch + 1}, step
            )
            if self.progress.best_epoch == epoch:
                self.checkpoints.save_best(epoch, self.model)
        self._save(step)
        self.on_epoch(metrics)

    def _save(self, step: int) -> None:
        if self.observer is not None:
            self.checkpoints.save(step, self.model, self.optimizer, self.progress)
            self.observer.flush()

    def _restore(self) -> None:
        """Go back to the newest checkpoint; what was logged after it will be logged again."""
        checkpoint = newest_checkpoint(self.directory)
        if checkpoint is not None:
            load_weights(self.model, checkpoint)
            self.progress = load_state(self.optimizer, checkpoint)
            self.losses.resume(self.progress.plateau_steps)
        if self.observer is not None:
            forget_losses(self.directory, self.progress.epoch * self.loader.steps_per_epoch + self.progress.step)

    def _evaluate(self) -> dict[str, float]:
        """Metrics of the evaluation split; the processes share its encoding and all get the result."""
        self.model.eval()
        reader = self.splits.evaluation
        edges = [share * len(reader) // world_size() for share in range(world_size() + 1)]
        images = range(edges[rank()], edges[rank() + 1])
        images_bKD = embed_images(self.model, image_batches(self.evaluation_images, EVALUATION_BATCH, images))
        tokens = caption_batches(reader, self.caption_encoder, EVALUATION_BATCH, images)
        first = int(reader.caption_starts[images.start])
        texts_cD = embed_texts(self.model, text_batches(tokens, self.evaluation_components, first))
        result = evaluate_retrieval(
            self._gathered(images_bKD, edges),
            self._gathered(texts_cD, reader.caption_starts[edges].tolist()),
            reader.caption_counts.tolist(),
            folds=self.config.evaluation.folds,
        )
        return result.as_dict()

    def _gathered(self, local: Tensor, edges: list[int]) -> Tensor:
        counts = [stop - start for start, stop in itertools.pairwise(edges)]
        return gather_rows(local.to(self.device), counts).cpu()


class _Throughput:
    """Samples a second and the share of the time spent waiting for data, since the last look."""

    def __init__(self, loader: TrainLoader) -> None:
        self.loader = loader
        self.samples = 0
        self.began = time.perf_counter()
        self.waited = loader.wait_seconds

    def add(self, samples: int) -> None:
        """Count the samples of a step."""
        self.samples += samples

    def take(self) -> dict[str, float]:
        """The metrics since the last call; begins anew."""
        seconds = time.perf_counter() - self.began
        metrics = {
            "train/samples_per_second": self.samples / seconds,
            "train/data_wait_share": (self.loader.wait_seconds - self.waited) / seconds,
        }
        self.samples, self.began, self.waited = 0, time.perf_counter(), self.loader.wait_seconds
        return metrics


def rate_factors(model: ModelConfig) -> dict[str, float]:
    """The parts of the model that train at a share of the learning rate."""
    factors = {}
    if model.text.name == "bert":
        factors["text_encoder.bert"] = model.text.learning_rate_factor
    if model.image.name == "backbone":
        factors["image_encoder.backbone"] = model.image.learning_rate_factor
    return factors


def seed_dropout(seed: int, step: int, process: int) -> None:
    """Make what a model draws in a step a function of these numbers, so that a resumed run draws the same."""
    torch.manual_seed(int(np.random.SeedSequence((seed, step, process)).generate_state(1, np.uint64)[0]))


def build_schedule(config: PipelineConfig, steps_per_epoch: int) -> Schedule:
    """The configured learning-rate schedule, in steps."""
    training, image, decay = config.training, config.model.image, config.training.decay
    if decay.name == "step":
        schedule = step_decay([point.steps(steps_per_epoch) for point in decay.at], decay.factor)
    elif decay.name == "cosine":
        schedule = cosine_decay(training.epochs * steps_per_epoch, decay.floor)
    else:
        schedule = constant()
    schedule = with_warmup(schedule, training.warmup.steps(steps_per_epoch))
    if image.name != "backbone":
        return schedule
    return with_warmup(schedule, image.release_warmup.steps(steps_per_epoch), image.frozen_epochs * steps_per_epoch)


def read_losses(directory: Path) -> list[dict[str, float]]:
    """The logged losses of a run: ``step`` (from 1) and ``loss``, in order."""
    path = directory / LOSSES
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def last_loss(directory: Path) -> dict[str, float] | None:
    """The newest whole entry of the logged losses, read from the end of the file; None before the first."""
    path = directory / LOSSES
    if not path.exists():
        return None
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 1000))
        whole = [
            line for line in file.read().splitlines(keepends=True) if line.startswith(b"{") and line.endswith(b"}\n")
        ]
    return json.loads(whole[-1]) if whole else None


def forget_losses(directory: Path, after: int) -> None:
    """Drop the losses of steps beyond a checkpoint, which a resumed run writes again, and a line that a kill cut."""
    path = directory / LOSSES
    if path.exists():
        whole = [line for line in path.read_text(encoding="utf-8").splitlines(keepends=True) if line.endswith("}\n")]
        write_bytes_atomic(path, "".join(line for line in whole if json.loads(line)["step"] <= after).encode())
