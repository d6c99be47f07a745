"""The protocol of a kind of model; its defaults are those of two-tower models.

B captions of a batch, C of a split, L tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from torch import nn

    from pipelines.kinds import LossConfig, TextEncoderConfig
    from pipelines.kinds.component_embedder import ComponentEmbedder
    from pipelines.kinds.inputs import KindSettings, SplitData
    from preprocessing.captions.encoder import CaptionEncoder
    from preprocessing.loading.batch import Batch
    from preprocessing.loading.loader import CaptionInputs
    from vse_core.losses import GlobalLoss
    from vse_core.models import Model
    from vse_core.outputs import ComparedImages, Rows

TextInputs = Callable[["npt.NDArray[np.int64]", int], tuple[Any, ...]]
"""The arguments of a model's `encode_texts` after tokens and lengths, for captions by their numbers padded to L."""


class ModelKind(Protocol):
    """A kind of model: what it reads, what is prepared for it, how a training step calls it, what it can be used for.

    `title` is the published system, for messages. `image`, `text` and `loss` name settings that belong to this kind
    alone. Models with embeddings can be indexed, searched and registered. `reads_graphs`: training reads captions'
    scene graphs; `augments_captions`: their words may be replaced and deleted in training.
    """

    title: ClassVar[str]
    image: ClassVar[str | None] = None
    text: ClassVar[str | None] = None
    loss: ClassVar[str | None] = None
    has_embeddings: ClassVar[bool] = True
    reads_graphs: ClassVar[bool] = False
    augments_captions: ClassVar[bool] = True

    def versions(self) -> dict[str, int]:
        """Return the versions of what is prepared for training, for its fingerprint."""
        return {}

    def prepare(
        self, settings: KindSettings, train: SplitData, evaluation: SplitData, directory: Path
    ) -> tuple[CaptionEncoder, dict[str, float]]:
        """Return the caption encoder, with figures for the manifest; writes files for training into the run's
        directory.

        Raises StageError where the captions do not allow it.
        """
        from pipelines.kinds.words import build_caption_encoder

        return build_caption_encoder(settings, train.reader, directory)

    def tables_identity(self, settings: KindSettings, split: SplitData) -> dict[str, Any]:
        """Return what decides the kind's tables of a split besides its features and the caption encoder."""
        return {}

    def write_tables(
        self, settings: KindSettings, split: SplitData, caption_encoder: CaptionEncoder, directory: Path
    ) -> None:
        """Write the tables of a split's captions, besides that of their tokens, that training processes map."""
        return

    def load_caption_encoder(self, directory: Path) -> CaptionEncoder:
        """Read the caption encoder next to a model; FileNotFoundError where there is none, ValueError if unreadable."""
        from preprocessing.captions.encoder import load_caption_encoder

        return load_caption_encoder(directory)

    def build_loss(self, name: str, **options: Any) -> GlobalLoss:
        """Build a loss that the models are trained with; ValueError where an option is out of range."""
        from vse_core.losses import build_loss

        return build_loss(name, **options)

    def output_types(self) -> tuple[type[ComparedImages], type[Rows]] | None:
        """Return the classes of the models' outputs for images and for captions; None where these are embeddings."""
        return None

    def train_inputs(
        self, settings: KindSettings, train: SplitData, caption_encoder: CaptionEncoder, directory: Path
    ) -> CaptionInputs | None:
        """Return the source of a training batch's tensors besides images and tokens; None where there are none.

        `directory` is the run's, as `prepare` has left it.
        """
        return None

    def trained(self, encoders: nn.Module) -> nn.Module:
        """Return the module that a training step calls, around the model or the model in chunks."""
        return encoders

    def step_inputs(self, loss: LossConfig, batch: Batch, step: int, steps_per_epoch: int) -> tuple[Any, ...]:
        """Return the arguments of the trained module after images and tokens, at a step counted from 0."""
        return ()

    def text_inputs(
        self, text: TextEncoderConfig, split: SplitData, caption_encoder: CaptionEncoder, model: Model
    ) -> TextInputs:
        """Return the source of the arguments of `encode_texts` after tokens and lengths, for the captions of a split.

        `text` may be the settings of another kind's model. Raises StageError where its files are missing, or are of
        other captions.
        """
        return tokens_alone

    def save_sidecars(self, directory: Path, settings: KindSettings) -> None:
        """Write the files next to a saved model that its text side needs besides the caption encoder."""
        return

    def component_embedder(
        self, model: Model, caption_encoder: CaptionEncoder, directory: Path
    ) -> ComponentEmbedder | None:
        """Return the embedder of a saved model's components; None for models without components.

        Raises FileNotFoundError where the directory of the model lacks a file.
        """
        return None


class TwoTowerKind(ModelKind):
    """An encoder of images and one of tokens (VSE++, VSE-infinity, MV-VSE, VSE+2AD)."""

    title = "a two-tower model"


def tokens_alone(captions: npt.NDArray[np.int64], longest: int) -> tuple[Any, ...]:
    """Return no further arguments: the text side reads tokens alone."""
    return ()
