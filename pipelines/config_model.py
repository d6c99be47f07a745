"""Settings of the model: the encoders of both sides, the joint space."""

from __future__ import annotations

from pydantic import Field

from pipelines.config_fields import Int, Strict
from pipelines.config_pooling import PoolingConfig


class ImageEncoderConfig(Strict):
    """From a set of region or grid features to a vector."""

    pooling: PoolingConfig = Field(description="aggregator of the projected features")
    views: Int = Field(1, gt=0, description="vectors an image is given, each from an aggregator of its own (MV-VSE: 3)")
    mlp: bool = Field(description="add the residual two-layer MLP to the linear projection (VSE-infinity, regions)")


class TextEncoderConfig(Strict):
    """From a caption to a vector: word vectors, a bidirectional GRU, an aggregator."""

    pooling: PoolingConfig = Field(description="aggregator of the GRU's outputs")
    word_dim: Int = Field(gt=0, description="width of the word vectors (VSE++ and VSE-infinity: 300)")


class ModelConfig(Strict):
    """The two towers."""

    embed_dim: Int = Field(gt=0, multiple_of=2, description="width of the joint space (papers: 1024)")
    image: ImageEncoderConfig = Field(description="image encoder")
    text: TextEncoderConfig = Field(description="text encoder")
