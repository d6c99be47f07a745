"""What a kind of model works with: a split, and its part of the configuration."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipelines.kinds import LossConfig, TextEncoderConfig
    from preprocessing.shards.reader import ShardReader


@dataclass(frozen=True)
class Split:
    """A split as training and evaluation read it.

    Attributes:
        reader: features and captions.
        graphs: directory of the captions' scene graphs; None where nothing reads them.
    """

    reader: ShardReader
    graphs: Path | None = None


@dataclass(frozen=True)
class KindSettings:
    """The part of a configuration that decides what a kind makes of captions.

    Attributes:
        text: settings of the text encoder.
        loss: settings of the loss.
        min_count: occurrences in the training captions that make a word known.
        seed: of what is drawn.
        parser: name of the captions' parser; None is the one that ships.
    """

    text: TextEncoderConfig
    loss: LossConfig
    min_count: int
    seed: int
    parser: str | None
