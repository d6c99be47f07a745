"""Settings of the model: aggregators, the encoders of both sides, the joint space."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from pipelines.config_fields import Float, Int, Strict


class MeanPooling(Strict):
    """Average of the set (VSE++ over regions)."""

    name: Literal["mean"]


class MaxPooling(Strict):
    """Largest value of each dimension over the set."""

    name: Literal["max"]


class GpoPooling(Strict):
    """Generalized Pooling Operator (VSE-infinity, section 3.2): learned weights over the sorted values."""

    name: Literal["gpo"]
    position_dim: Int = Field(32, gt=0, multiple_of=2, description="width of the rank's sine-cosine code")
    hidden_dim: Int = Field(32, gt=0, description="width of the GRU that turns rank codes into weights")
    temperature: Float = Field(0.1, gt=0, description="temperature of the softmax over ranks (released code)")


PoolingConfig = Annotated[MeanPooling | MaxPooling | GpoPooling, Field(discriminator="name")]


class ImageEncoderConfig(Strict):
    """From a set of region or grid features to a vector."""

    pooling: PoolingConfig = Field(description="aggregator of the projected features")
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
