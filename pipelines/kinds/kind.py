"""A kind of model: what is known of it before any work, and the module of its behaviour."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipelines.kinds.behaviour import Behaviour


def _none(_: Any) -> Iterable[str]:
    return ()


@dataclass(frozen=True)
class ModelKind:
    """A kind of model, by the settings that belong to it alone; None for two-tower models, which share theirs.

    `title` is the published system. `module`, imported when a model is trained or used, has a `BEHAVIOUR`. Models with
    embeddings can be indexed, searched and registered. `reads_graphs`: training reads scene graphs of captions, whose
    words it may replace if it `augments_captions`. `versions` are those of what is prepared, for the fingerprint.
    `misfits` takes a `ModelConfig`, and returns what of it does not go with the kind, each as "KEY: problem; remedy".
    """

    title: str
    module: str
    loss: str | None = None
    text: str | None = None
    has_embeddings: bool = True
    reads_graphs: bool = False
    augments_captions: bool = True
    versions: dict[str, int] = field(default_factory=dict)
    misfits: Callable[[Any], Iterable[str]] = _none

    @property
    def behaviour(self) -> Behaviour:
        """The behaviour of the kind in training and evaluation."""
        behaviour: Behaviour = importlib.import_module(self.module).BEHAVIOUR
        return behaviour


TWO_TOWERS = ModelKind("a two-tower model", "pipelines.kinds.behaviour")
