"""Training steps that a GPU replays from CUDA graphs, so that it does not wait for the host to start each operator."""

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from vse_core.losses.global_pairs import GlobalLoss
from vse_core.training.mixed_precision import MixedPrecision
from vse_core.training.step import LocalBatch, StepResult, training_step

# Steps of a kind that run as they are before one is captured: they choose kernels and make the optimiser's state.
WARM_UP = 2

Record = Callable[[Callable[[], StepResult]], tuple[Callable[[], None], StepResult]]
"""Records work without doing it; returns what does it again, and where its result will then be."""


@dataclass(frozen=True)
class _Graph:
    replay: Callable[[], None]
    batches: Sequence[LocalBatch]
    result: StepResult


class GraphedSteps:
    """Steps of one model and optimiser as :func:`~vse_core.training.step.training_step` takes them, from graphs.

    Everything from the first encoder to the weights is one graph for each kind of step: shapes of the batches, the
    loss and whether it is diagnosed. A step of a kind seen less often than :data:`WARM_UP` times before, or of inputs
    that are more than tensors (components, whose numbers differ in every batch), runs eagerly; both are counted, in
    ``replayed`` and ``eager``. Results are the same, dropout among them: a replay asks the same generator.

    The result of a step holds until the next one. Graphs share one pool of memory, of the size of the largest step.

    For one process, precisions without a scale of the loss, and an optimiser that is ``capturable``
    (:func:`~vse_core.training.optim.build_optimizer`).
    """

    def __init__(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, gradient_clip: float, precision: MixedPrecision
    ) -> None:
        self._model, self._optimizer = model, optimizer
        self._gradient_clip, self._precision = gradient_clip, precision
        self._record = cuda_recorder()
        self._seen: Counter[Hashable] = Counter()
        self._graphs: dict[Hashable, _Graph] = {}
        self._held: dict[Hashable, Tensor] = {}
        self.replayed = self.eager = 0

    def __call__(self, loss: GlobalLoss, local_batches: Sequence[LocalBatch], diagnosed: bool) -> StepResult:
        """Take a step; see :func:`~vse_core.training.step.training_step`."""
        kind = _kind(loss, local_batches, diagnosed)
        if kind is None or self._seen[kind] < WARM_UP:
            self._seen[kind] += 1
            self.eager += 1
            return self._take(loss, local_batches, diagnosed)
        if kind not in self._graphs:
            self._graphs[kind] = self._captured(loss, local_batches, diagnosed)
        graph = self._graphs[kind]
        for held, batch in zip(graph.batches, local_batches, strict=True):
            for here, there in zip(_tensors(held), _tensors(batch), strict=True):
                here.copy_(there, non_blocking=True)
        graph.replay()
        self.replayed += 1
        return graph.result

    def _take(self, loss: GlobalLoss, local_batches: Sequence[LocalBatch], diagnosed: bool) -> StepResult:
        return training_step(
            self._model, loss, self._optimizer, local_batches, self._gradient_clip, self._precision, diagnosed
        )

    def _captured(self, loss: GlobalLoss, local_batches: Sequence[LocalBatch], diagnosed: bool) -> _Graph:
        batches = [self._own(number, batch) for number, batch in enumerate(local_batches)]
        try:
            replay, result = self._record(lambda: self._take(loss, batches, diagnosed))
        except RuntimeError as error:
            raise RuntimeError(
                f"this model's step cannot be captured as a CUDA graph ({error}); set training.cuda_graphs to false"
            ) from error
        return _Graph(replay, batches, result)

    def _own(self, number: int, batch: LocalBatch) -> LocalBatch:
        """Return a batch in memory that its graphs keep; those of one shape share it."""
        *inputs, image_ids_b = [
            self._held.setdefault((number, place, tensor.shape, tensor.dtype), torch.empty_like(tensor))
            for place, tensor in enumerate(_tensors(batch))
        ]
        rest = iter(inputs)
        return replace(
            batch,
            inputs=[next(rest) if isinstance(value, Tensor) else value for value in batch.inputs],
            image_ids_b=image_ids_b,
        )


def _tensors(batch: LocalBatch) -> list[Tensor]:
    return [value for value in (*batch.inputs, batch.image_ids_b) if isinstance(value, Tensor)]


def _kind(loss: GlobalLoss, local_batches: Sequence[LocalBatch], diagnosed: bool) -> Hashable:
    """Return what steps of one graph have in common; None if an input is more than a tensor."""
    described: list[Any] = []
    for batch in local_batches:
        if not all(value is None or isinstance(value, Tensor) for value in batch.inputs):
            return None
        described += [(value.shape, value.dtype) for value in _tensors(batch)]
        described += [value is None for value in batch.inputs]
    return (loss, diagnosed, *described)


def cuda_recorder() -> Record:
    """Return what records CUDA graphs in one pool of memory; tests on a CPU have a double."""
    pool = torch.cuda.graph_pool_handle()

    def record(work: Callable[[], StepResult]) -> tuple[Callable[[], None], StepResult]:
        graph = torch.cuda.CUDAGraph()
        # The loader's thread may ask for page-locked memory meanwhile.
        with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
            result = work()
        return graph.replay, result

    return record
