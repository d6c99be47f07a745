"""Metrics of a training run: its losses, its speed, its memory and a profile.

Scalars of a step are computed on the device and read one step later, when they have arrived: the host never waits for
the step that it has just given to a GPU, so that the GPU always has the next one to go on with.
"""

from __future__ import annotations

import importlib.util
import resource
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from vse_core.training.step import StepResult

_STATM = Path("/proc/self/statm")


class Observer(Protocol):
    """Where the loop reports to; the first process of a run has one."""

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Take metrics of a step; may be buffered."""

    def log_artifact(self, path: Path, folder: str) -> None:
        """Keep a copy of a file with the run, in a folder of its artifacts."""

    def flush(self) -> None:
        """A checkpoint now holds everything logged so far."""

    def wants_checkpoint(self) -> bool:
        """Whether a checkpoint is needed after this very step, and at once where it is safe."""

    def checkpoint_is_safe(self) -> None:
        """The checkpoint that was wanted is there, on the storage too."""


class Scalars:
    """Named scalars on their way from the device to the host.

    Args:
        values: tensors without dimensions, on one device.
    """

    def __init__(self, values: Mapping[str, Tensor]) -> None:
        self._names = list(values)
        stacked = torch.stack([value.detach().float() for value in values.values()])
        # Into page-locked memory: the copy joins the device's queue.
        self._values = stacked.to("cpu", non_blocking=True)
        self._arrived = torch.cuda.current_stream(stacked.device).record_event() if stacked.is_cuda else None

    def read(self) -> dict[str, float]:
        """The values, once they have arrived."""
        if self._arrived is not None:
            self._arrived.synchronize()
        return dict(zip(self._names, self._values.tolist(), strict=True))


@dataclass(frozen=True)
class ThroughputMeter:
    """Steps, samples and waiting of a process, up to some moment.

    Attributes:
        steps: optimiser steps.
        samples: image-caption pairs, of all processes.
        waited: seconds spent waiting for data.
        at: the moment, in seconds of a clock of its own.
    """

    steps: int
    samples: int
    waited: float
    at: float

    @classmethod
    def begin(cls, waited: float) -> ThroughputMeter:
        """Start to count, with the seconds waited in earlier epochs."""
        return cls(0, 0, waited, time.perf_counter())

    def after(self, samples: int, waited: float) -> ThroughputMeter:
        """Return the meter after one more step, now."""
        return ThroughputMeter(self.steps + 1, self.samples + samples, waited, time.perf_counter())

    def speed_since(self, earlier: ThroughputMeter) -> dict[str, float]:
        """Return the metrics of the steps since an earlier moment."""
        seconds = self.at - earlier.at
        return {
            "train/samples_per_second": (self.samples - earlier.samples) / seconds,
            "train/step_seconds": seconds / (self.steps - earlier.steps),
            "train/data_wait_share": (self.waited - earlier.waited) / seconds,
        }


@dataclass(frozen=True)
class StepReport:
    """One step as it is reported, when its numbers have arrived.

    Attributes:
        step: optimiser steps of the run so far, from 1.
        batch_size: pairs of a global batch, averaged over those of the step.
        learning_rates: by the part of the model, "" for all that is in no other.
        scalars: the loss, the gradient's norm and the scale of the loss, and the parts of the loss under ``part/``.
        meter: of the process, with this step.
    """

    step: int
    batch_size: float
    learning_rates: dict[str, float]
    scalars: Scalars
    meter: ThroughputMeter


def scalars_of(result: StepResult) -> Scalars:
    """The numbers of a step."""
    return Scalars(
        {"loss": result.loss, "gradient_norm": result.gradient_norm, "scale": result.scale}
        | {f"part/{name}": part for name, part in result.parts.items()}
    )


def step_metrics(report: StepReport, values: Mapping[str, float]) -> dict[str, float]:
    """The metrics of one step: its loss and the parts of it, its gradient's norm and its learning rates."""
    metrics = {"train/loss": values["loss"], "train/gradient_norm": values["gradient_norm"]}
    metrics |= {f"train/{name.removeprefix('part/')}": value for name, value in values.items() if "part/" in name}
    for part, rate in report.learning_rates.items():
        metrics[f"train/learning_rate.{part}" if part else "train/learning_rate"] = rate
    return metrics


def machine_metrics(device: torch.device) -> dict[str, float]:
    """Memory of this process in 10^9 bytes, and of its GPU; the share of time in which the GPU has been at work.

    The process's memory is told on Linux, and the GPU's work where nvidia-ml-py is installed.
    """
    metrics = {}
    if _STATM.exists():
        metrics["system/memory_gb"] = int(_STATM.read_text(encoding="ascii").split()[1]) * resource.getpagesize() / 1e9
    if device.type == "cuda":
        metrics["system/gpu_memory_gb"] = torch.cuda.memory_allocated(device) / 1e9
        metrics["system/gpu_memory_peak_gb"] = torch.cuda.max_memory_allocated(device) / 1e9
        if importlib.util.find_spec("pynvml") is not None:
            metrics["system/gpu_use"] = torch.cuda.utilization(device) / 100
    return metrics


@contextmanager
def profiled(steps: int, directory: Path, keep: Callable[[Path], None]) -> Iterator[Callable[[], None]]:
    """A context in which steps are profiled; it yields what is to be called after each of them.

    The first step only warms up. The trace opens in https://ui.perfetto.dev and in chrome://tracing.

    Args:
        steps: how many; with 0 nothing happens.
        directory: where the trace is written.
        keep: called with the file.
    """
    if not steps:
        yield lambda: None
        return

    def write(profiler: torch.profiler.profile) -> None:
        """Write the trace of the steps recorded."""
        directory.mkdir(exist_ok=True)
        path = directory / "trace.json.gz"
        profiler.export_chrome_trace(str(path))
        keep(path)

    schedule = torch.profiler.schedule(wait=0, warmup=1, active=steps, repeat=1)
    with torch.profiler.profile(schedule=schedule, on_trace_ready=write) as profiler:
        yield profiler.step
