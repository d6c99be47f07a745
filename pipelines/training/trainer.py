"""The training loop of one process: build or restore, train an epoch, evaluate, keep the best.

Everything random or scheduled is a function of (seed, epoch, step), so a run that was killed anywhere resumes from its
last checkpoint with the losses of one that never stopped, on any number of processes. Only dropout, if an encoder
has it, differs between numbers of processes, as it does between seeds.
"""

import contextlib
import itertools
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from pipelines.config.training import TrainingSettings
from pipelines.inference.feature_check import write_feature_key
from pipelines.inference.image_inputs import image_source
from pipelines.inference.learned_values import write_learned_values
from pipelines.inference.start import keep_start, write_start
from pipelines.inference.text_embedder import text_batches
from pipelines.kinds.inputs import SplitData
from pipelines.runtime.cluster import is_connected
from pipelines.tracking import LoggedData, Tracker
from pipelines.training.checkpoints import Checkpoints
from pipelines.training.initial_weights import (
    INITIAL,
    initial_learned_values,
    start_from_feature_mean,
    start_from_initial,
    start_from_word_vectors,
)
from pipelines.training.left_out import kept_captions
from pipelines.training.loss_log import append_loss, forget_losses
from pipelines.training.metrics import Scalars, StepReport, ThroughputMeter, tell_ray
from pipelines.training.preemption import CheckpointRequests
from pipelines.training.prepare import model_specification
from pipelines.training.schedules import LossSchedule, build_schedule
from pipelines.training.trained_pairs import keep_trained_pairs
from preprocessing.captions.encoder import CaptionEncoder
from preprocessing.loading.batch import Batch, prefetch_to_device
from preprocessing.loading.loader import TrainLoader, image_batches
from preprocessing.loading.sampler import BatchSampler, rank_slice
from preprocessing.randomness import dropout_seed
from vse_core.distributed import first_says, gather_output, rank, world_size
from vse_core.evaluation.recall import evaluate_retrieval
from vse_core.losses import GlobalLoss
from vse_core.models import build_model
from vse_core.outputs import embed
from vse_core.pooling.masks import reads_padding
from vse_core.precision import use_tf32
from vse_core.training.collapse import CollapseError
from vse_core.training.graphs import GraphedSteps
from vse_core.training.mixed_precision import MixedPrecision
from vse_core.training.optim import build_optimizer, set_learning_rate
from vse_core.training.sharding import forget_gathered, shard
from vse_core.training.shares import read_shares
from vse_core.training.state import Progress, load_state
from vse_core.training.step import LocalBatch, NonFiniteLossError, StepResult, check_finite, training_step

EVALUATION_BATCH = 128
# Of a worker with a GPU, which leaves its cores to them.
_LOADING_THREADS = 4

IntArray = npt.NDArray[np.int64]
# Takes a step of a loss over local batches; says whether it is diagnosed.
TakeStep = Callable[[GlobalLoss, list[LocalBatch], bool], StepResult]
# Gives the inputs of an encoder for a range of images or captions.
Batches = Callable[[range], Iterator[tuple[Any, ...]]]


class Trainer:
    """One process's part of a training run, whose output is in ``checkpoints/step-*``, ``best-*`` and ``losses.jsonl``.

    Only the first process has a tracker; `evaluated` is what MLflow knows the evaluation split by. Every process calls
    `on_epoch` with the metrics of each finished epoch.
    """

    def __init__(
        self,
        settings: TrainingSettings,
        train: SplitData,
        evaluation: SplitData,
        caption_encoder: CaptionEncoder,
        directory: Path,
        device: torch.device,
        tracker: Tracker | None,
        on_epoch: Callable[[dict[str, float]], None],
        evaluated: LoggedData,
    ) -> None:
        self.settings = settings
        self.training = training = settings.training
        self.kind = settings.kind.behaviour
        self.evaluation = evaluation
        self.caption_encoder = caption_encoder
        self.directory = directory
        self.device = device
        self.tracker = tracker
        self.on_epoch = on_epoch
        self.evaluated = evaluated
        self.requests = CheckpointRequests()
        specification = model_specification(settings.model, train.reader, caption_encoder)
        self.checkpoints = Checkpoints(directory, self._write_sidecars, settings.mirror, training.checkpoint_minutes)
        torch.manual_seed(settings.seed)
        self.model = build_model(**specification).to(device)
        self._is_graphed = training.cuda_graphs and can_be_graphed(self.model, device, training.precision)
        captions, window = train.reader.shard_captions, training.shuffle_shards
        self.sampler = BatchSampler(
            train.reader.num_captions, training.batch_size, settings.seed, captions, window, kept_captions(directory)
        )
        self.loader = self._loader(train)
        self.steps_per_epoch = training.steps_per_epoch(self.loader.steps_per_epoch)
        self.evaluation_images = image_source(self.model, evaluation.reader)
        self.evaluation_inputs = self.kind.text_inputs(settings.model.text, evaluation, caption_encoder, self.model)
        self._checkpoint = self.checkpoints.resume()
        if self._checkpoint is None:
            start_from_word_vectors(self.model, directory)
            start_from_feature_mean(self.model, directory)
            start_from_initial(self.model, caption_encoder, directory)
        self._is_sharded = training.parallelism == "fsdp2" and world_size() > 1
        if self._is_sharded:
            shard(self.model)
        if self._checkpoint is not None:
            read_shares(self.model.state_dict(), self._checkpoint)
        self.losses = LossSchedule(settings.loss, self.steps_per_epoch, device)
        if self._checkpoint is None:
            self.losses.start_from(initial_learned_values(directory))
        rates = (training.learning_rate, training.weight_decay, settings.model.rate_factors())
        self.optimizer = build_optimizer(self.model, *rates, self.losses.parameters(), self._is_graphed)
        use_tf32(training.precision == "tf32")
        self.precision = MixedPrecision(training.precision, device)
        self.schedule = build_schedule(training, settings.model.image, self.steps_per_epoch)
        self.progress = Progress()
        self._clock = time.monotonic()
        self._reports: deque[StepReport] = deque()
        self._logged = ThroughputMeter()
        self._skipped = 0

    def run(self) -> tuple[dict[str, float], ...]:
        """Train to the last epoch, from the last checkpoint if there is one; returns the metrics of every epoch.

        Raises NonFiniteLossError or CollapseError; the weights of the last checkpoint are sound.
        """
        with contextlib.closing(self.checkpoints):
            self._restore()
            take, frozen = None, False
            for epoch in range(self.progress.epoch, self.training.epochs):
                if take is None or self.settings.model.image.is_frozen(epoch) != frozen:
                    take = None  # it lets go of the parameters before the next one takes them
                    frozen = self.settings.model.image.is_frozen(epoch)
                    take = self._steps(self._wrapped(frozen))
                self._train_epoch(take, epoch)
                self._finish_epoch(epoch)
            if not self.training.epochs and not self.progress.history:
                self._finish_epoch(0)
            if self.tracker is not None:
                self.checkpoints.finish()
            return self.progress.history

    def _loader(self, train: SplitData) -> TrainLoader:
        training, seed = self.training, self.settings.seed
        assert train.tokens is not None
        return TrainLoader(
            train.reader,
            image_source(
                self.model,
                train.reader,
                seed,
                training.image_augmentation,
                training.size_augmentation,
                training.feature_dropout,
                self._is_graphed,
            ),
            train.tokens,
            self.caption_encoder,
            self.sampler,
            rank=rank(),
            world=world_size(),
            seed=seed,
            caption_augmentation=training.caption_augmentation,
            extra=self.kind.train_inputs(self.settings.kind_settings, train, self.caption_encoder, self.directory),
            threads=min(_LOADING_THREADS, torch.get_num_threads()) if self.device.type == "cuda" else 1,
            pin=self.device.type == "cuda",
            few_shapes=self._is_graphed,
        )

    def _write_sidecars(self, directory: Path, progress: Progress) -> None:
        self.caption_encoder.save(directory / self.caption_encoder.FILE)
        write_feature_key(directory, self.settings.feature)
        keep_trained_pairs(self.directory, directory)
        write_learned_values(directory, progress.learned)
        if self.training.initial is None:
            write_start(directory, self.settings.model)
        else:
            keep_start(self.directory / INITIAL, directory)
        self.kind.save_sidecars(directory, self.settings.kind_settings)

    def _wrapped(self, frozen: bool) -> nn.Module:
        """Return the model ready for steps in which a backbone is trained, or stays as it is."""
        freeze = getattr(self.model.image_encoder, "freeze", None)
        if freeze is not None:
            freeze(frozen)
        trained = self.kind.trained(self.model)
        if world_size() == 1 or self._is_sharded:
            return trained
        devices = [self.device] if self.device.type == "cuda" else None
        # Buffers are the statistics of the global batch, the same everywhere: nothing to broadcast.
        return DistributedDataParallel(trained, device_ids=devices, forward_sync_buffers=False)

    def _steps(self, wrapped: nn.Module) -> TakeStep:
        """Return what takes a step of a model: from CUDA graphs, or operator by operator."""
        arguments = (self.optimizer, self.training.gradient_clip, self.precision)
        if self._is_graphed:
            return GraphedSteps(wrapped, *arguments)
        return lambda loss, batches, diagnosed: training_step(
            wrapped, loss, self.optimizer, batches, self.training.gradient_clip, self.precision, diagnosed
        )

    def _train_epoch(self, take: TakeStep, epoch: int) -> None:
        self.model.train()
        self._logged = ThroughputMeter(waited=self.loader.wait_seconds)
        meter = self._logged
        first = min(self.progress.step * self.training.accumulation, self.loader.steps_per_epoch)
        loaded = self.loader.epoch(epoch, first)
        with contextlib.closing(loaded), contextlib.closing(prefetch_to_device(loaded, self.device)) as batches:
            for step in range(self.progress.step, self.steps_per_epoch):
                done = epoch * self.steps_per_epoch + step + 1
                sampled = self._sampled(epoch, step)
                rates = set_learning_rate(self.optimizer, self.training.learning_rate * self.schedule(done - 1))
                result = self._step(take, list(itertools.islice(batches, len(sampled))), sampled, done)
                samples = sum(map(len, sampled))
                meter = meter.after(samples, self.loader.wait_seconds)
                self._reports.append(StepReport(done, samples / len(sampled), rates, Scalars(result), meter))
                self.progress = replace(self.progress, epoch=epoch, step=step + 1)
                self._read_reports(pending=1)
                self._save_if_due(done)
        self._read_reports()
        if self.tracker is not None and isinstance(take, GraphedSteps):
            counts = {"train/replayed_steps": float(take.replayed), "train/eager_steps": float(take.eager)}
            self.tracker.log_metrics(counts, (epoch + 1) * self.steps_per_epoch)

    def _save_if_due(self, done: int) -> None:
        is_first = self.tracker is not None
        is_asked_for = is_first and self.requests.is_wanted()
        is_due = is_asked_for or (is_first and self.checkpoints.is_due())
        # Processes that share the weights save together.
        if first_says(is_due) if self._is_sharded else is_due:
            # If a step has failed nothing is saved; all processes raise it together, after the next step.
            with contextlib.suppress(NonFiniteLossError, CollapseError):
                self._save(done)
        if is_asked_for:
            self.checkpoints.wait()
            self.requests.answer()

    def _sampled(self, epoch: int, step: int) -> list[IntArray]:
        first = step * self.training.accumulation
        last = min(first + self.training.accumulation, self.loader.steps_per_epoch)
        return [self.sampler.batch(epoch, batch) for batch in range(first, last)]

    def _step(self, take: TakeStep, batches: list[Batch], sampled: list[IntArray], done: int) -> StepResult:
        """Take the step after which `done` are done."""
        step = done - 1
        torch.manual_seed(dropout_seed(self.settings.seed, step, rank()))
        world = world_size()
        local_batches = [
            LocalBatch(
                self._model_inputs(batch, step),
                batch.image_indices_B,
                [len(rank_slice(captions, process, world)) for process in range(world)],
            )
            for batch, captions in zip(batches, sampled, strict=True)
        ]
        return take(self.losses.at(step), local_batches, self._is_logged(done))

    def _is_logged(self, done: int) -> bool:
        return done % self.training.log_steps == 0 or done == self.training.epochs * self.steps_per_epoch

    def _read_reports(self, pending: int = 0) -> None:
        """Read all reports but the last `pending`, and check their losses; all processes stop together on an error."""
        while len(self._reports) > pending:
            report = self._reports[0]
            values = report.scalars.read()
            try:
                if not check_finite(values["loss"], values["gradient_norm"], values["scale"]):
                    self._skipped += 1
            except NonFiniteLossError as error:
                raise NonFiniteLossError(f"step {report.step}: {error}") from error
            plateau_steps = self.losses.check(report.step - 1, values, report.batch_size)
            self.progress = replace(self.progress, plateau_steps=plateau_steps)
            if self.tracker is not None and self._is_logged(report.step):
                self._log_step(self.tracker, report, values)
            self._reports.popleft()

    def _model_inputs(self, batch: Batch, step: int) -> tuple[Any, ...]:
        extra = self.kind.step_inputs(self.settings.loss, batch, step, self.steps_per_epoch)
        return (batch.images, batch.lengths_or_mask, batch.tokens_BL, batch.token_lengths_B, *extra)

    def _log_step(self, tracker: Tracker, report: StepReport, values: dict[str, float]) -> None:
        append_loss(self.directory, report.step, values["loss"])
        metrics = report.metrics(values) | report.meter.speed_since(self._logged)
        if self.training.precision == "fp16":
            metrics["train/skipped_steps"] = self._skipped
        if self.device.type == "cuda":
            metrics["system/gpu_memory_peak_gb"] = torch.cuda.max_memory_allocated(self.device) / 1e9
        self._logged = report.meter
        tracker.log_metrics(metrics, report.step)
        if is_connected():
            tell_ray(metrics, tracker.run_id)

    def _finish_epoch(self, epoch: int) -> None:
        finished = min(epoch + 1, self.training.epochs)
        step = finished * self.steps_per_epoch
        metrics = self._evaluate()
        if self._is_sharded:
            forget_gathered(self.model)
        self.progress = replace(self.progress, epoch=epoch + 1, step=0, history=(*self.progress.history, metrics))
        is_best = self.progress.best_epoch == epoch
        if self.tracker is not None:
            named = {f"{self.settings.eval_split}/{name}": value for name, value in metrics.items()}
            self.tracker.log_metrics({"epoch": finished}, step)
            if is_best:
                self.tracker.log_model("best", named, step, self.evaluated)
            else:
                self.tracker.log_metrics(named, step)
        self._save(step, is_best)
        self.on_epoch(metrics)

    def _save(self, step: int, is_best: bool = False) -> None:
        self._read_reports()
        seconds, self._clock = self.progress.seconds + time.monotonic() - self._clock, time.monotonic()
        scaler, learned = self.precision.scaler.state_dict(), self.losses.state()
        self.progress = replace(self.progress, scaler=scaler, learned=learned, seconds=seconds)
        if self.tracker is not None:
            # What a checkpoint covers is delivered or kept on disk before: a resumed run does not log it again.
            self.tracker.detach(force=False)
        self.checkpoints.save(step, self.model, self.optimizer, self.progress, is_best)

    def _restore(self) -> None:
        """Go back to the newest checkpoint; what was logged after it will be logged again."""
        if self._checkpoint is not None:
            self.progress = load_state(self.optimizer, self._checkpoint)
            self.losses.resume(self.progress)
            if self.progress.scaler:
                self.precision.scaler.load_state_dict(self.progress.scaler)
        if self.tracker is not None:
            forget_losses(self.directory, self.progress.epoch * self.steps_per_epoch + self.progress.step)

    def _evaluate(self) -> dict[str, float]:
        """Return the metrics of the evaluation split; the processes share its encoding and all get the result."""
        self.model.eval()
        reader, tokens = self.evaluation.reader, self.evaluation.tokens
        assert tokens is not None
        edges = [share * len(reader) // world_size() for share in range(world_size() + 1)]
        caption_edges = reader.caption_starts[edges].tolist()
        pad_id, inputs = self.caption_encoder.pad_id, self.evaluation_inputs
        result = evaluate_retrieval(
            self._encoded(
                self.model.encode_images,
                lambda images: image_batches(self.evaluation_images, EVALUATION_BATCH, images),
                edges,
            ),
            self._encoded(
                self.model.encode_texts,
                lambda captions: text_batches(tokens, pad_id, inputs, EVALUATION_BATCH, captions),
                caption_edges,
            ),
            reader.caption_counts.tolist(),
            folds=self.settings.folds,
        )
        return result.as_dict()

    def _encoded(self, encode: Callable[..., Any], batches: Batches, edges: list[int]) -> Any:
        """Return a method's output for all images or captions; a process encodes those between its two edges."""
        counts = [stop - start for start, stop in itertools.pairwise(edges)]
        first, count = edges[rank()], counts[rank()]
        # Each call gathers the weights of a network that processes share, so all of them make equally many calls.
        calls = -(-max(counts) // EVALUATION_BATCH)
        local = embed(self.model, encode, _repeated(batches(range(first, first + max(1, count))), calls))
        return gather_output(local[:count].to(self.device), counts)


def can_be_graphed(model: nn.Module, device: torch.device, precision: str) -> bool:
    """Return whether steps can be replayed from CUDA graphs, with the losses of steps that are not.

    A step in a graph is the GPU's alone: processes wait for each other within one, and fp16 for the host. Batches of
    few shapes have more padding, which a model must not read.
    """
    is_alone = device.type == "cuda" and world_size() == 1 and precision != "fp16"
    return is_alone and not reads_padding(model)


def _repeated(batches: Iterator[tuple[Any, ...]], number: int) -> Iterator[tuple[Any, ...]]:
    """Yield one batch or more, then the last one again until there are `number`."""
    for batch in batches:
        yield batch
        number -= 1
    yield from itertools.repeat(batch, number)
