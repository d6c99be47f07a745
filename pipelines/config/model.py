"""Settings of the model: the encoders of both sides, the joint space."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from pipelines.config.fields import AbsolutePath, Duration, DurationField, Float, Int, Strict, folder_or_hub_name
from pipelines.config.pooling import PoolingConfig

# Those of vse_core.encoders.resnet, which takes seconds to import.
RESNETS = (
    "resnet50",
    "resnet101",
    "resnet152",
    "resnext101_32x8d",
    "resnet50_caffe",
    "resnet101_caffe",
    "resnet152_caffe",
)


class FeatureImageEncoderConfig(Strict):
    """From a set of region or grid features to a vector."""

    name: Literal["features"]
    pooling: PoolingConfig = Field(description="aggregator of the projected features")
    views: Int = Field(1, gt=0, description="vectors an image is given, each from an aggregator of its own (MV-VSE: 3)")
    mlp: bool = Field(description="add the residual two-layer MLP to the linear projection (VSE-infinity, regions)")
    norm_rows: Literal["real", "padded"] = Field(
        "real", description="rows in the MLP's batch statistics; the released code lets those of padding in"
    )
    projections: Int = Field(
        1, gt=0, description="linear projections, each a view of its own (released MV-VSE code: 2, without MLP)"
    )
    dropout: Float = Field(
        0.0, ge=0, lt=1, description="share of the projected values that training leaves out (HGR's code: 0.2)"
    )

    @model_validator(mode="after")
    def _fits_together(self) -> FeatureImageEncoderConfig:
        if self.projections > 1 and (self.mlp or self.views > 1):
            raise ValueError("projections are views already: set views to 1 and mlp to false, or projections to 1")
        if self.norm_rows == "padded" and not self.mlp:
            raise ValueError("norm_rows has no effect without the MLP; leave it out, or set mlp to true")
        return self

    def options(self) -> dict[str, Any]:
        """Return the keyword arguments of `vse_core.encoders.build_image_encoder`, the aggregator as a mapping."""
        return self.model_dump(mode="json")


def _architecture(value: str | dict[str, Any] | None) -> str | dict[str, Any] | None:
    if isinstance(value, str) and value not in RESNETS:
        raise ValueError(f"must be one of {', '.join(RESNETS)}, or settings of a transformers network; got {value!r}")
    return value


class BackboneImageEncoderConfig(Strict):
    """From pixels to a vector: a CNN or ViT that is trained along, its cells projected and aggregated."""

    name: Literal["backbone"]
    pooling: PoolingConfig = Field(description="aggregator of the projected cells")
    views: Int = Field(1, gt=0, description="vectors an image is given, each from an aggregator of its own (MV-VSE: 3)")
    weights: Annotated[str, AfterValidator(folder_or_hub_name)] | None = Field(
        None,
        description="folder or hub name of a transformers network; for a ResNet of `architecture` a file of weights, "
        "or those that torchvision downloads under a name such as IMAGENET1K_V2",
    )
    architecture: Annotated[str | dict[str, Any] | None, AfterValidator(_architecture)] = Field(
        None, description="a ResNet by name (resnet101_caffe: bottom-up attention's), or a network to start at random"
    )
    pixels: Literal["imagenet", "caffe"] | None = Field(
        None, description="normalisation of the pixels; by default that of weights or architecture"
    )
    image_size: Int = Field(gt=0, description="height and width of the pixels (VSE-infinity: 512)")
    frozen_epochs: Int = Field(ge=0, description="epochs that begin with the whole network fixed (VSE-infinity: 1)")
    block_epochs: Int = Field(
        0, ge=0, description="epochs between the release of its four blocks, last block first; 0 releases all at once"
    )
    release_warmup: DurationField = Field(
        Duration(0, "step"), description="linear rise of all rates once it trains along (VSE-infinity's paper: 1 epoch)"
    )
    learning_rate_factor: Float = Field(
        gt=0, le=1, description="share of training.learning_rate (VSE-infinity: 0.1 from ImageNet, 0.01 from detectors)"
    )

    @model_validator(mode="after")
    def _has_one_origin(self) -> BackboneImageEncoderConfig:
        if self.weights is None and self.architecture is None:
            raise ValueError("needs weights, or an architecture to be trained from scratch")
        if self.weights is not None and isinstance(self.architecture, dict):
            raise ValueError("has weights, which bring their architecture along; leave out the one given")
        return self

    def options(self) -> dict[str, Any]:
        """Return the keyword arguments of `vse_core.encoders.build_image_encoder`, the aggregator as a mapping."""
        return self.model_dump(
            mode="json", exclude={"frozen_epochs", "block_epochs", "release_warmup", "learning_rate_factor"}
        )


class RegionImageEncoderConfig(Strict):
    """From a set of features to a vector for each of them and one for all (UniVSE); goes with `components`."""

    name: Literal["regions"]
    pooling: PoolingConfig = Field(description="aggregator of the projected features (UniVSE: kmax, 10 of 49)")

    def options(self) -> dict[str, Any]:
        """Return the keyword arguments of `vse_core.models.build_model` for this side."""
        return self.model_dump(mode="json")


class LevelImageEncoderConfig(Strict):
    """From frames of a video to its event, and to frames for actions and entities (HGR); goes with `role_graphs`."""

    name: Literal["levels"]
    pooling: PoolingConfig = Field(description="aggregator of the frames into the event (HGR-infinity: gpo)")
    dropout: Float = Field(
        0.2, ge=0, lt=1, description="share of the projected values that training leaves out (HGR: 0.2)"
    )

    def options(self) -> dict[str, Any]:
        """Return the keyword arguments of `vse_core.models.build_model` for this side."""
        return self.model_dump(mode="json")


ImageEncoderConfig = Annotated[
    FeatureImageEncoderConfig | BackboneImageEncoderConfig | RegionImageEncoderConfig | LevelImageEncoderConfig,
    Field(discriminator="name"),
]


class BiGRUTextEncoderConfig(Strict):
    """From a caption to a vector: word vectors, a bidirectional GRU, an aggregator."""

    name: Literal["bigru"]
    pooling: PoolingConfig = Field(description="aggregator of the GRU's outputs")
    word_dim: Int = Field(gt=0, description="width of the word vectors (VSE++ and VSE-infinity: 300)")
    directions: Literal[1, 2] = Field(2, description="1 reads forwards only (VSE++; then with `last` for the pooling)")
    word_vectors: AbsolutePath | None = Field(
        None, description="text file of vectors (GloVe) that known words begin with, word_dim numbers a line"
    )
    dropout: Float = Field(
        0.0, ge=0, lt=1, description="share of the word vectors' values that training leaves out (HGR's code: 0.2)"
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


class ComponentTextEncoderConfig(Strict):
    """From a caption, its objects, attributes and relations to one vector (UniVSE); goes with `regions`."""

    name: Literal["components"]
    word_dim: Int = Field(gt=0, description="width of the basic word vectors (UniVSE: 300)")
    modifier_dim: Int = Field(gt=0, description="width of the modifier vectors, learned from random ones (UniVSE: 100)")
    word_vectors: AbsolutePath | None = Field(
        None, description="text file of vectors (GloVe) that known words begin with, word_dim numbers a line"
    )
    train_words: bool = Field(description="train the basic word vectors along (UniVSE keeps GloVe's as they are)")
    alpha: Float = Field(ge=0, le=1, description="share of the sentence in a caption's vector (UniVSE: 0.75)")

    def options(self) -> dict[str, Any]:
        """Return the keyword arguments of `vse_core.models.build_model` for this side."""
        return self.model_dump(mode="json", exclude={"word_vectors"})

    @model_validator(mode="after")
    def _learns_words(self) -> ComponentTextEncoderConfig:
        if not self.train_words and self.word_vectors is None:
            raise ValueError("train_words: without word_vectors the words would all stay zero; set it to true")
        return self


class RoleGraphTextEncoderConfig(Strict):
    """From a caption and its role graph to an event, actions and entities (HGR); goes with `levels`."""

    name: Literal["role_graphs"]
    graphs: AbsolutePath = Field(
        description="role graphs of all captions: annotation/RET/sent2rolegraph.augment.json of HGR's release"
    )
    pooling: PoolingConfig = Field(description="aggregator of the GRU's outputs into the event (HGR-infinity: gpo)")
    word_dim: Int = Field(gt=0, description="width of the word vectors (HGR: 300)")
    word_vectors: AbsolutePath | None = Field(
        None, description="text file of vectors (GloVe) that known words begin with, word_dim numbers a line"
    )
    dropout: Float = Field(
        0.2, ge=0, lt=1, description="share of the word vectors' values that training leaves out (HGR: 0.2)"
    )
    graph_dropout: Float = Field(
        0.5, ge=0, lt=1, description="share of what comes over the edges that training leaves out (HGR: 0.5)"
    )
    layers: Int = Field(1, gt=0, description="layers of attention over the edges (HGR: 1)")

    def options(self) -> dict[str, Any]:
        """Return the keyword arguments of `vse_core.models.build_model` for this side."""
        return self.model_dump(mode="json", exclude={"graphs", "word_vectors"})


TextEncoderConfig = Annotated[
    BiGRUTextEncoderConfig | BertTextEncoderConfig | ComponentTextEncoderConfig | RoleGraphTextEncoderConfig,
    Field(discriminator="name"),
]


class ModelConfig(Strict):
    """The two towers."""

    embed_dim: Int = Field(gt=0, multiple_of=2, description="width of the joint space (papers: 1024)")
    image: ImageEncoderConfig = Field(description="image encoder")
    text: TextEncoderConfig = Field(description="text encoder")

    @property
    def is_unified(self) -> bool:
        """Whether it is UniVSE, which embeds the components of captions along with them."""
        return self.text.name == "components"

    @property
    def is_hierarchical(self) -> bool:
        """Whether it is HGR, whose similarities are no inner products of embeddings."""
        return self.text.name == "role_graphs"

    @model_validator(mode="after")
    def _levels_fit(self) -> ModelConfig:
        if (self.image.name == "levels") != self.is_hierarchical:
            raise ValueError(
                f"image.name 'levels' and text.name 'role_graphs' go together (HGR); got {self.image.name!r} and "
                f"{self.text.name!r}"
            )
        return self

    @model_validator(mode="after")
    def _sides_fit(self) -> ModelConfig:
        if (self.image.name == "regions") != self.is_unified:
            raise ValueError(
                f"image.name 'regions' and text.name 'components' go together (UniVSE); got {self.image.name!r} and "
                f"{self.text.name!r}"
            )
        return self

    def specification(self) -> dict[str, Any]:
        """Return the keyword arguments of `vse_core.models.build_model` besides the sizes that the data decide."""
        return {"embed_dim": self.embed_dim, "image": self.image.options(), "text": self.text.options()}


class VocabularyConfig(Strict):
    """The words of a BiGRU text encoder; BERT brings its own."""

    min_count: Int = Field(4, gt=0, description="occurrences in the training captions that make a word known (SCAN)")
