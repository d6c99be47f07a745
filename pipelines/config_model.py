"""Settings of the model: the encoders of both sides, the joint space."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from pipelines.config_fields import AbsolutePath, Float, Int, Strict, folder_or_hub_name
from pipelines.config_pooling import PoolingConfig


class ImageEncoderConfig(Strict):
    """From a set of region or grid features to a vector."""

    pooling: PoolingConfig = Field(description="aggregator of the projected features")
    views: Int = Field(1, gt=0, description="vectors an image is given, each from an aggregator of its own (MV-VSE: 3)")
    mlp: bool = Field(description="add the residual two-layer MLP to the linear projection (VSE-infinity, regions)")


class BiGRUTextEncoderConfig(Strict):
    """From a caption to a vector: word vectors, a bidirectional GRU, an aggregator."""

    name: Literal["bigru"]
    pooling: PoolingConfig = Field(description="aggregator of the GRU's outputs")
    word_dim: Int = Field(gt=0, description="width of the word vectors (VSE++ and VSE-infinity: 300)")
    word_vectors: AbsolutePath | None = Field(
        None, description="text file of vectors (GloVe) that known words begin with, word_dim numbers a line"
    )

    def options(self) -> dict[str, Any]:
        """Return the keyword arguments of `vse_core.encoders.build_text_encoder`, the aggregator as a mapping."""
        return self.model_dump(mode="json", exclude={"word_vectors"})


class BertTextEncoderConfig(Strict):
    """From a caption to a vector: a BERT-like network over word pieces, a projection, an aggregator."""

    name: Literal["bert"]
    pooling: PoolingConfig = Field(description="aggregator of the projected last hidden states")
    weights: Annotated[str, AfterValidator(folder_or_hub_name)] = Field(
        description="local folder with config.json, vocab.txt or tokenizer.json, *.safetensors; or a name on the hub"
    )
    learning_rate_factor: Float = Field(
        gt=0, le=1, description="share of training.learning_rate that BERT trains at (VSE-infinity: 0.1)"
    )

    def options(self) -> dict[str, Any]:
        """Return the keyword arguments of `vse_core.encoders.build_text_encoder`, the aggregator as a mapping."""
        return self.model_dump(mode="json", exclude={"learning_rate_factor"})


TextEncoderConfig = Annotated[BiGRUTextEncoderConfig | BertTextEncoderConfig, Field(discriminator="name")]


class ModelConfig(Strict):
    """The two towers."""

    embed_dim: Int = Field(gt=0, multiple_of=2, description="width of the joint space (papers: 1024)")
    image: ImageEncoderConfig = Field(description="image encoder")
    text: TextEncoderConfig = Field(description="text encoder")

    def specification(self) -> dict[str, Any]:
        """Return the keyword arguments of `vse_core.models.build_model` besides the sizes that the data decide."""
        return {**self.model_dump(mode="json", exclude={"text"}), "text": self.text.options()}
