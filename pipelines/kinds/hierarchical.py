"""HGR: the settings of its encoders and its loss."""

from typing import ClassVar, Literal

from pydantic import Field

from pipelines.kinds.kind import ModelKind
from pipelines.schema.encoders import SetEncoder, WordReader
from pipelines.schema.fields import AbsolutePath, Float, Size
from pipelines.schema.losses import HingeLoss
from pipelines.schema.pooling import PoolingConfig


class LevelImageEncoderConfig(SetEncoder):
    """From frames of a video to its event, and to frames for actions and entities (HGR); goes with `role_graphs`."""

    partner: ClassVar[str | None] = "role_graphs"

    name: Literal["levels"]
    pooling: PoolingConfig = Field(description="aggregator of the frames into the event (HGR-infinity: gpo)")
    dropout: Float = Field(0.2, ge=0, lt=1, description="share of the projected values that training drops (HGR: 0.2)")


class RoleGraphTextEncoderConfig(WordReader):
    """From a caption and its role graph to an event, actions and entities (HGR); goes with `levels`."""

    partner: ClassVar[str | None] = "levels"
    others: ClassVar[set[str]] = {"graphs", "word_vectors"}
    files: ClassVar[tuple[str, ...]] = ("word_vectors", "graphs")

    name: Literal["role_graphs"]
    graphs: AbsolutePath = Field(
        description="role graphs of all captions: sent2rolegraph.augment.json of HGR's release"
    )
    pooling: PoolingConfig = Field(description="aggregator of the GRU's outputs into the event (HGR-infinity: gpo)")
    word_dim: Size = Field(description="width of the word vectors (HGR: 300)")
    dropout: Float = Field(0.2, ge=0, lt=1, description="share of the words' values that training drops (HGR: 0.2)")
    graph_dropout: Float = Field(0.5, ge=0, lt=1, description="share of the edges' values to drop (HGR: 0.5)")
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


HGR = ModelKind(
    "HGR",
    "pipelines.kinds.hierarchical_behaviour",
    loss="hierarchical",
    text="role_graphs",
    has_embeddings=False,
    augments_captions=False,
)
