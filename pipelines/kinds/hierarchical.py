"""HGR: the settings of its encoders and its loss, and its captions' role graphs."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from pipelines.kinds.inputs import KindSettings, SplitData
from pipelines.kinds.kind import ModelKind, TextInputs
from pipelines.runtime.stage import StageError
from pipelines.schema.encoders import Encoder, WordReader
from pipelines.schema.fields import AbsolutePath, Float, Size
from pipelines.schema.losses import HingeLoss
from pipelines.schema.pooling import PoolingConfig
from vse_core.digests import file_digest

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from torch import Tensor

    from pipelines.kinds import LossConfig, TextEncoderConfig
    from preprocessing.captions.encoder import CaptionEncoder
    from preprocessing.captions.role_graphs import RoleGraph, RoleGraphTable
    from preprocessing.loading.batch import Batch
    from preprocessing.loading.loader import CaptionInputs
    from vse_core.losses import GlobalLoss
    from vse_core.models import Model
    from vse_core.outputs import ComparedImages, Rows


class LevelImageEncoderConfig(Encoder):
    """From frames of a video to its event, and to frames for actions and entities (HGR); goes with `role_graphs`."""

    name: Literal["levels"]
    pooling: PoolingConfig = Field(description="aggregator of the frames into the event (HGR-infinity: gpo)")
    dropout: Float = Field(
        0.2, ge=0, lt=1, description="share of the projected values that training leaves out (HGR: 0.2)"
    )


class RoleGraphTextEncoderConfig(WordReader):
    """From a caption and its role graph to an event, actions and entities (HGR); goes with `levels`."""

    others: ClassVar[set[str]] = {"graphs", "word_vectors"}

    name: Literal["role_graphs"]
    graphs: AbsolutePath = Field(
        description="role graphs of all captions: annotation/RET/sent2rolegraph.augment.json of HGR's release"
    )
    pooling: PoolingConfig = Field(description="aggregator of the GRU's outputs into the event (HGR-infinity: gpo)")
    word_dim: Size = Field(description="width of the word vectors (HGR: 300)")
    dropout: Float = Field(
        0.2, ge=0, lt=1, description="share of the word vectors' values that training leaves out (HGR: 0.2)"
    )
    graph_dropout: Float = Field(
        0.5, ge=0, lt=1, description="share of what comes over the edges that training leaves out (HGR: 0.5)"
    )
    layers: Size = Field(1, description="layers of attention over the edges (HGR: 1)")

    def missing_file(self) -> str | None:
        """Return the setting whose file is missing, with what to do; None if all are there."""
        if self.graphs.is_file():
            return super().missing_file()
        return (
            f"graphs: there is no file {self.graphs}; correct the path. HGR's release has role graphs for its data "
            "sets, as annotation/RET/sent2rolegraph.augment.json; none can be made here, since they come from semantic "
            "role labelling, for which no parser is included"
        )


class HierarchicalLoss(HingeLoss):
    """Triplet loss of the mean of event, action and entity similarities (HGR)."""

    name: Literal["hierarchical"]


class HierarchicalKind(ModelKind):
    """HGR: similarities are no inner products of embeddings, and words are named by their places in role graphs."""

    title = "HGR"
    image: ClassVar[str | None] = "levels"
    text: ClassVar[str | None] = "role_graphs"
    loss: ClassVar[str | None] = "hierarchical"
    has_embeddings: ClassVar[bool] = False
    augments_captions: ClassVar[bool] = False

    def prepare(
        self, settings: KindSettings, train: SplitData, evaluation: SplitData, directory: Path
    ) -> tuple[CaptionEncoder, dict[str, float]]:
        """Check the role graphs of both splits, and collect the words between spaces."""
        from pipelines.kinds.words import build_words
        from preprocessing.captions.role_graphs import SpacedWords

        # Errors in the graphs are raised here, and not in every process of the training.
        for split in (train, evaluation):
            role_graph_table(_graphs_file(settings.text), split)
        return build_words(settings, directory, lambda count: SpacedWords.build(train.reader.texts(), count))

    def tables_identity(self, settings: KindSettings, split: SplitData) -> dict[str, Any]:
        """Return the file of the role graphs."""
        return {"role_graphs": file_digest(_graphs_file(settings.text))}

    def write_tables(
        self, settings: KindSettings, split: SplitData, caption_encoder: CaptionEncoder, directory: Path
    ) -> None:
        """Write the role graphs of the captions."""
        role_graph_table(_graphs_file(settings.text), split).save(directory)

    def load_caption_encoder(self, directory: Path) -> CaptionEncoder:
        """Read the words between spaces."""
        from preprocessing.captions.encoder import load_caption_encoder
        from preprocessing.captions.role_graphs import SpacedWords

        return load_caption_encoder(directory, (SpacedWords,))

    def build_loss(self, name: str, **options: Any) -> GlobalLoss:
        """Build the loss of the three levels."""
        from vse_core.losses.hierarchical import HierarchicalLoss

        return HierarchicalLoss(**options)

    def output_types(self) -> tuple[type[ComparedImages], type[Rows]] | None:
        """Return the classes of videos and captions on three levels."""
        from vse_core.losses.hierarchical import TextLevels, VideoLevels

        return VideoLevels, TextLevels

    def train_inputs(
        self, settings: KindSettings, train: SplitData, caption_encoder: CaptionEncoder, directory: Path
    ) -> CaptionInputs | None:
        """Return the role graphs of batches."""
        table = role_graph_table(_graphs_file(settings.text), train)
        return lambda captions_B, epoch, longest: _tensors(table, captions_B, longest)

    def step_inputs(self, loss: LossConfig, batch: Batch, step: int, steps_per_epoch: int) -> tuple[Any, ...]:
        """Return the role graphs of the batch."""
        from vse_core.models.hierarchical import RoleGraphs

        return (RoleGraphs(**batch.extra),)

    def text_inputs(
        self, text: TextEncoderConfig, split: SplitData, caption_encoder: CaptionEncoder, model: Model
    ) -> TextInputs:
        """Return the role graphs of captions."""
        from vse_core.models.hierarchical import RoleGraphs

        table = role_graph_table(_graphs_file(text), split)
        return lambda captions_C, longest: (RoleGraphs(**_tensors(table, captions_C, longest)),)


def _graphs_file(text: TextEncoderConfig) -> Path:
    if text.name != "role_graphs":
        raise StageError(
            "the model reads role graphs of captions: use the configuration that it was trained with, which names them "
            "as model.text.graphs"
        )
    return text.graphs


def _tensors(table: RoleGraphTable, captions_B: npt.NDArray[np.int64], longest: int) -> dict[str, Tensor]:
    import torch

    return {name: torch.from_numpy(array) for name, array in table.select(captions_B, longest).items()}


@lru_cache(maxsize=1)
def _role_graphs(path: Path) -> dict[str, RoleGraph]:
    from preprocessing.captions.role_graphs import read_role_graphs

    return read_role_graphs(path)


def role_graph_table(path: Path, split: SplitData) -> RoleGraphTable:
    """Return the role graphs of a split's captions: mapped where training has written them, else from HGR's JSON.

    A process reads the JSON once.

    Raises StageError if the file is missing or malformed, or lacks a caption.
    """
    from preprocessing.captions.role_graphs import RoleGraphError, RoleGraphTable

    if split.tables is not None:
        return RoleGraphTable.load(split.tables)
    try:
        return RoleGraphTable.build(split.reader.texts(), _role_graphs(path))
    except RoleGraphError as error:
        raise StageError(f"model.text.graphs: {error}") from error
