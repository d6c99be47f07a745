"""The behaviour of a kind of model: how training is prepared, how a step calls the model, what reads its captions.

B captions of a batch, C of a split, L tokens.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import nn

from pipelines.kinds import LossConfig, TextEncoderConfig
from pipelines.kinds.component_embedder import ComponentEmbedder
from pipelines.kinds.inputs import KindSettings, SplitData
from pipelines.kinds.words import build_caption_encoder
from preprocessing.captions.encoder import CaptionEncoder
from preprocessing.loading.batch import Batch
from preprocessing.loading.loader import CaptionInputs
from vse_core.models import Model
from vse_core.outputs import ComparedImages, Rows

TextInputs = Callable[[npt.NDArray[np.int64], int], tuple[Any, ...]]
"""The arguments of a model's `encode_texts` after tokens and lengths, for captions by their numbers padded to L."""


def tokens_alone(*_: object) -> tuple[Any, ...]:
    """Return no further arguments: the text side reads tokens alone."""
    return ()


def _nothing(*_: object) -> None:
    return None


@dataclass(frozen=True)
class Behaviour:
    """The functions that differ between kinds of models; by default those of two-tower models.

    `run` is the directory of a training. StageError is raised if captions or settings do not allow what is asked for.
    """

    prepare: Callable[[KindSettings, SplitData, SplitData, Path], tuple[CaptionEncoder, dict[str, float]]] = (
        lambda settings, train, evaluation, run: build_caption_encoder(settings, train.reader, run)
    )
    """(settings, train, evaluation, run): the caption encoder, with figures for the manifest; writes into `run`."""

    tables_identity: Callable[[KindSettings, SplitData], dict[str, Any]] = lambda *_: {}
    """(settings, split): what decides the kind's tables of a split besides its features and the caption encoder."""

    write_tables: Callable[[KindSettings, SplitData, CaptionEncoder, Path], None] = _nothing
    """(settings, split, caption encoder, directory): writes the tables, besides that of tokens, that training maps."""

    train_inputs: Callable[[KindSettings, SplitData, CaptionEncoder, Path], CaptionInputs | None] = _nothing
    """(settings, train, caption encoder, run): the source of a batch's tensors besides images and tokens, if any."""

    trained: Callable[[nn.Module], nn.Module] = lambda model: model
    """(model): the module that a training step calls."""

    step_inputs: Callable[[LossConfig, Batch, int, int], tuple[Any, ...]] = tokens_alone
    """(loss, batch, step from 0, steps per epoch): the arguments of the trained module after images and tokens."""

    text_inputs: Callable[[TextEncoderConfig, SplitData, CaptionEncoder, Model], TextInputs] = lambda *_: tokens_alone
    """(settings, split, caption encoder, model): the source of the arguments of `encode_texts` after tokens and
    lengths. The settings may be of another kind's text encoder."""

    save_sidecars: Callable[[Path, KindSettings], None] = _nothing
    """(directory, settings): writes the files that a saved model's text side needs besides the caption encoder."""

    component_embedder: Callable[[Model, CaptionEncoder, Path], ComponentEmbedder | None] = _nothing
    """(model, caption encoder, directory): the embedder of a saved model's components, if it has any; FileNotFoundError
    if the directory lacks a file."""

    output_types: tuple[type[ComparedImages], type[Rows]] | None = None
    """The classes of the models' outputs for images and for captions, if these are not embeddings."""


BEHAVIOUR = Behaviour()
