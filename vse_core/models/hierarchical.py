"""HGR and HGR-infinity: videos and captions compared by event, by actions and by entities."""

from typing import Any

from torch import Tensor, nn

from vse_core.encoders.levels import FrameLevelEncoder, RoleGraphEncoder
from vse_core.encoders.role_graphs import RoleGraphs
from vse_core.outputs import TextLevels, VideoLevels
from vse_core.pooling import build_pooling
from vse_core.registry import choose


class HierarchicalModel(nn.Module):
    """Hierarchical graph reasoning (Chen et al., CVPR 2020), in its infinity form where GPO makes the events.

    A video and a caption are compared on three levels: the event, by one vector each; actions and entities, each
    phrase of the caption with the frames it attends to. The similarity is the mean. Frames enter it again for every
    caption, so unlike the other models' it is no inner product of two vectors: there is no search index for it.

    Captions come with role graphs. They are made of sentences by semantic role labelling, for which no parser ships
    here and none is on the package index: HGR's release holds those of its data sets.

    Differs from the released code: phrases are compared on unit vectors that are divided by their length plus 1e-8,
    where it bounds the length from below.
    """

    max_tokens: int | None = None
    """Captions may have any number of tokens."""

    def __init__(self, image_encoder: FrameLevelEncoder, text_encoder: RoleGraphEncoder) -> None:
        super().__init__()
        self.image_encoder = image_encoder
        self.text_encoder = text_encoder

    def encode_images(self, features_BNF: Tensor, lengths_B: Tensor) -> VideoLevels:
        """Videos on all levels, of frames (B, N, F) with their lengths (B,)."""
        videos: VideoLevels = self.image_encoder(features_BNF, lengths_B)
        return videos

    def encode_texts(self, tokens_CL: Tensor, lengths_C: Tensor, graphs: RoleGraphs) -> TextLevels:
        """Captions on all levels, of word ids (C, L), lengths (C,) and role graphs."""
        texts: TextLevels = self.text_encoder(tokens_CL, lengths_C, graphs)
        return texts

    def forward(
        self, features_BNF: Tensor, lengths_B: Tensor, tokens_BL: Tensor, token_lengths_B: Tensor, graphs: RoleGraphs
    ) -> tuple[VideoLevels, TextLevels]:
        """Encode a batch of pairs, in one call as DistributedDataParallel requires."""
        return self.encode_images(features_BNF, lengths_B), self.encode_texts(tokens_BL, token_lengths_B, graphs)


def build_hierarchical_model(
    feature_dim: int, vocabulary_size: int, embed_dim: int, image: dict[str, Any], text: dict[str, Any]
) -> HierarchicalModel:
    """Build HGR-infinity from plain values, or a relative of it with another aggregator of the events.

    ``image`` and ``text`` are ``{"pooling": {"name": ..., **options}}``, GPO by default, and options of
    :class:`~vse_core.encoders.levels.FrameLevelEncoder` and :class:`~vse_core.encoders.levels.RoleGraphEncoder`. The
    sizes are those of :func:`~vse_core.models.two_tower.build_two_tower`; unknown names and options are a ValueError.
    """
    encoders: list[Any] = []
    for side, encoder, size, options in (
        ("image", FrameLevelEncoder, {"feature_dim": feature_dim}, image),
        ("text", RoleGraphEncoder, {"vocabulary_size": vocabulary_size}, text),
    ):
        pooling = build_pooling(dim=embed_dim, **options.get("pooling", {"name": "gpo"}))
        others = {key: value for key, value in options.items() if key != "pooling"}
        builders = {"levels": encoder}
        encoders.append(
            choose(f"{side} encoder", builders, "levels", embed_dim=embed_dim, pooling=pooling, **size, **others)
        )
    return HierarchicalModel(*encoders)
