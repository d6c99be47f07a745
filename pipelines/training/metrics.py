"""Metrics of a training run: its losses and its speed.

The host reads scalars of a step one step later, so that it never waits for the step that the GPU works at.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

import torch
from ray.util.metrics import Gauge

from vse_core.training.step import StepResult

# Metrics of a step that Ray's metrics have too, for Prometheus: as `ray_vse_train_loss`, ...
ON_RAY = {
    "train/loss": "Loss of a step",
    "train/samples_per_second": "Samples of all processes that are trained on in a second",
    "train/data_wait_share": "Share of the time in which training waits for data",
}


@cache
def _gauge(name: str) -> Gauge:
    return Gauge(f"vse_{name.replace('/', '_')}", ON_RAY[name], ("run",))


def tell_ray(metrics: Mapping[str, float], run: str) -> None:
    """Give a step's metrics to Ray, under the id of the run in MLflow; in a process of Ray's."""
    for name in ON_RAY:
        _gauge(name).set(metrics[name], {"run": run})


class Scalars:
    """The numbers of a step on their way from the device to the host; the parts of the loss are named "part/NAME"."""

    def __init__(self, result: StepResult) -> None:
        values = {"loss": result.loss, "gradient_norm": result.gradient_norm, "scale": result.scale}
        values |= {f"part/{name}": part for name, part in result.parts.items()}
        self._names = list(values)
        stacked = torch.stack([value.detach().float() for value in values.values()])
        # Into page-locked memory: the copy joins the device's queue.
        self._values = stacked.to("cpu", non_blocking=True)
        self._arrived = torch.cuda.current_stream(stacked.device).record_event() if stacked.is_cuda else None

    def read(self) -> dict[str, float]:
        """Return the values, once they have arrived."""
        if self._arrived is not None:
            self._arrived.synchronize()
        return dict(zip(self._names, self._values.tolist(), strict=True))


@dataclass(frozen=True)
class ThroughputMeter:
    """Steps, samples (of all processes) and seconds waited for data of a process, up to a moment of its clock."""

    steps: int = 0
    samples: int = 0
    waited: float = 0.0
    at: float = field(default_factory=time.perf_counter)

    def after(self, samples: int, waited: float) -> ThroughputMeter:
        """Return the meter after one more step, now."""
        return ThroughputMeter(self.steps + 1, self.samples + samples, waited)

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
    """One step of a run: its number from 1, and what is logged of it when its scalars have arrived.

    `batch_size` is the mean number of pairs of its global batches; learning rates have their part of the model as a
    key, "" for the rest.
    """

    step: int
    batch_size: float
    learning_rates: dict[str, float]
    scalars: Scalars
    meter: ThroughputMeter

    def metrics(self, values: Mapping[str, float]) -> dict[str, float]:
        """Return the metrics of the step by its scalars: its loss, the parts of it, and its gradient's norm."""
        metrics = {f"train/{name.removeprefix('part/')}": value for name, value in values.items() if name != "scale"}
        for part, rate in self.learning_rates.items():
            metrics[f"train/learning_rate.{part}" if part else "train/learning_rate"] = rate
        return metrics
