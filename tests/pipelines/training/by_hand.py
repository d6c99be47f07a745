"""Training without Ray, in this process, on shards that were extracted before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch

from pipelines.config import PipelineConfig
from pipelines.kinds.inputs import SplitData
from pipelines.tracking import LoggedData, Tracker
from pipelines.training.trainer import Trainer
from preprocessing.captions.encoder import CaptionEncoder
from preprocessing.captions.token_table import TokenTable

# Settings of a training that takes a second.
SMALL = (
    "model.embed_dim=16",
    "training.batch_size=16",
    "training.log_steps=1",
    "training.checkpoint_minutes=0",
    "training.learning_rate=0.01",
)


class Quiet(Tracker):
    """A tracker that logs nothing."""

    def __init__(self) -> None:
        pass

    @property
    def run_id(self) -> str:
        return "none"

    def log_metrics(self, metrics: Mapping[str, float], step: int = 0) -> None:
        pass

    def log_model(self, name: str, metrics: Mapping[str, float], step: int, data: LoggedData) -> None:
        self.log_metrics(metrics, step)

    def detach(self, force: bool = True) -> bool:
        return True


def with_tokens(split: SplitData, encoder: CaptionEncoder) -> SplitData:
    """Return a split with the tokens of its captions, which a run on Ray maps from files."""
    return replace(split, tokens=TokenTable.encode(split.reader.texts(), encoder))


def quiet_trainer(
    config: PipelineConfig,
    train: SplitData,
    evaluation: SplitData,
    encoder: CaptionEncoder,
    out: Path,
    tracker: Tracker | None,
) -> Trainer:
    """Return a trainer on the CPU whose epochs nobody hears of."""
    settings, cpu = config.training_settings, torch.device("cpu")
    train, evaluation = with_tokens(train, encoder), with_tokens(evaluation, encoder)
    return Trainer(settings, train, evaluation, encoder, out, cpu, tracker, lambda metrics: None, ("scenes dev", "0"))
