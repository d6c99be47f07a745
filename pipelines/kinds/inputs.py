"""The inputs of a kind of model: a split, and its part of the configuration."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipelines.kinds import LossConfig, TextEncoderConfig
    from pipelines.schema.captions import PoolsConfig
    from preprocessing.captions.token_table import TokenTable
    from preprocessing.shards.reader import ShardReader


@dataclass(frozen=True)
class SplitPaths:
    """The directories of a split's shards and of its captions' scene graphs; None if nothing reads them.

    `tables`, which `pipelines.training.prepare` makes, is what training processes open instead of the sidecars.
    """

    shards: Path
    graphs: Path | None = None
    tables: Path | None = None


@dataclass(frozen=True)
class SplitData:
    """The reader of a split, and the directory of its captions' scene graphs; None if nothing reads them.

    `tokens` of its captions, and the directory of a kind's `tables`, are there once captions have an encoder.
    """

    reader: ShardReader
    graphs: Path | None = None
    tokens: TokenTable | None = None
    tables: Path | None = None


@dataclass(frozen=True)
class KindSettings:
    """The part of a configuration that decides what a kind makes of captions; the parser None is the one that ships."""

    text: TextEncoderConfig
    loss: LossConfig
    min_count: int
    seed: int
    parser: str | None
    pools: PoolsConfig
