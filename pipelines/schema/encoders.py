"""Settings of the encoders of two-tower models, and what the rest of the pipeline asks them."""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from pipelines.schema.fields import AbsolutePath, Duration, DurationField, Float, FolderOrHubName, Int, Size, Strict
from pipelines.schema.pooling import OF_EACH_DIMENSION, PoolingConfig, is_of_each_dimension
from pipelines.schema.weights import (
    NETWORK,
    OPEN_CLIP,
    TOKENIZED_NETWORK,
    missing_image_settings,
    missing_torchvision,
    missing_weights,
)
from vse_core.open_clip_format import PACKAGE, is_open_clip

DUAL_ENCODER = "dual_encoder"

_DUAL_WEIGHTS = Field(
    description="local folder of transformers or open_clip, or a name on the hub (openai/clip-vit-base-patch32)"
)

# As in vse_core.encoders.resnet, which takes seconds to import.
RESNETS = (
    *("resnet50", "resnet101", "resnet152", "resnext101_32x8d"),
    *("resnet50_caffe", "resnet101_caffe", "resnet152_caffe"),
)


class Encoder(Strict):
    """Settings of every encoder.

    `others` are those that its network is not built with, `files` those that name a file or folder. `partner` names the
    only encoder of the other side that it goes with. `own_space`: both sides are one pretrained model, with a joint
    space of its own.
    """

    others: ClassVar[set[str]] = set()
    files: ClassVar[tuple[str, ...]] = ()
    partner: ClassVar[str | None] = None
    own_space: ClassVar[bool] = False

    def options(self) -> dict[str, Any]:
        """Return the keyword arguments of the encoder's builder in `vse_core`, the aggregator as a mapping."""
        return self.model_dump(mode="json", exclude=self.others)

    def rate_factors(self) -> dict[str, float]:
        """Return the factor of the learning rate for modules of the encoder that have one."""
        return {}

    def missing_file(self) -> str | None:
        """Return the setting whose file is missing, with what to do; None if all are there."""
        return None


class ImageEncoder(Encoder):
    """Settings of every image encoder; it takes features, or pixels."""

    takes_pixels: ClassVar[bool] = False

    def is_frozen(self, epoch: int) -> bool:  # noqa: ARG002
        """Return whether a network stays as it is in an epoch."""
        return False

    def release(self, steps_per_epoch: int) -> tuple[int, int]:  # noqa: ARG002
        """Return the steps of the second rise of the learning rate, and the step at which it begins."""
        return 0, 0


class SetEncoder(ImageEncoder):
    """Settings of every image encoder that takes sets of features."""

    center: bool | Literal["regions"] = Field(
        False,
        exclude_if=lambda center: not center,
        description="subtract the mean of the training split's features, which is stored with the model; UniVSE may do "
        "so for its regions alone, and pool the image of features as they are",
    )

    def _misfits(self) -> Iterator[str]:
        if self.center == "regions" and self.partner != "components":
            yield "center: regions is for UniVSE's encoder, which compares regions with words; set it to true"


class TextEncoder(Encoder):
    """Settings of every text encoder."""

    @property
    def tokenizer(self) -> str | None:
        """The pretrained weights, whose tokenizer reads captions; None for words of the training captions."""
        return getattr(self, "weights", None)


class FeatureImageEncoderConfig(SetEncoder):
    """From a set of region or grid features to a vector."""

    name: Literal["features"]
    pooling: PoolingConfig = Field(description="aggregator of the projected features")
    views: Size = Field(1, description="vectors an image is given, each from an aggregator of its own (MV-VSE: 3)")
    mlp: bool = Field(description="add the residual two-layer MLP to the linear projection (VSE-infinity, regions)")
    norm_rows: Literal["real", "padded"] = Field(
        "real", description="rows in the MLP's batch statistics; the released code lets those of padding in"
    )
    projections: Size = Field(
        1, description="linear projections without MLP, each a view by the same aggregator (released MV-VSE code: 2)"
    )
    dropout: Float = Field(0.0, ge=0, lt=1, description="share of projected values to drop (HGR's code: 0.2)")

    def _misfits(self) -> Iterator[str]:
        yield from super()._misfits()
        if self.projections > 1 and (self.mlp or self.views > 1):
            yield "projections are views: set views to 1 and mlp to false, or projections to 1"
        if self.projections > 1 and not is_of_each_dimension(self.pooling.name):
            yield (
                "projections are pooled side by side, by an aggregator that treats every dimension by itself, which "
                f"{self.pooling.name} does not; set pooling to one of {', '.join(OF_EACH_DIMENSION)}, or projections "
                "to 1"
            )
        if self.norm_rows == "padded" and not self.mlp:
            yield "norm_rows has no effect without the MLP; leave it out, or set mlp to true"


def _architecture(value: str | dict[str, Any] | None) -> str | dict[str, Any] | None:
    if isinstance(value, str) and value not in RESNETS:
        raise ValueError(f"must be one of {', '.join(RESNETS)}, or settings of a transformers network; got {value!r}")
    return value


class BackboneImageEncoderConfig(ImageEncoder):
    """From pixels to a vector: a fine-tuned CNN or ViT, its cells projected and aggregated."""

    takes_pixels: ClassVar[bool] = True
    files: ClassVar[tuple[str, ...]] = ("weights",)
    others: ClassVar[set[str]] = {"frozen_epochs", "release_warmup", "learning_rate_factor"}

    name: Literal["backbone"]
    pooling: PoolingConfig = Field(description="aggregator of the projected cells")
    views: Size = Field(1, description="vectors an image is given, each from an aggregator of its own (MV-VSE: 3)")
    weights: FolderOrHubName | None = Field(
        None,
        description="folder or hub name of a network of transformers or timm, or of a dual encoder; for a ResNet of "
        "`architecture` a file, or a name of torchvision's (IMAGENET1K_V2)",
    )
    architecture: Annotated[str | dict[str, Any] | None, AfterValidator(_architecture)] = Field(
        None, description="a ResNet by name (resnet101_caffe: bottom-up attention's), or a network to start at random"
    )
    pixels: Literal["imagenet", "caffe"] | None = Field(
        None, description="normalisation of the pixels; by default that of weights or architecture"
    )
    image_size: Int = Field(gt=0, le=8192, description="height and width of the pixels (VSE-infinity: 512)")
    frozen_epochs: Int = Field(ge=0, description="epochs at the start with the network frozen (VSE-infinity: 1)")
    release_warmup: DurationField = Field(
        Duration(0, "step"), description="linear rise of all rates once it is fine-tuned (VSE-infinity paper: 1 epoch)"
    )
    learning_rate_factor: Float = Field(
        gt=0, le=1, description="share of training.learning_rate (VSE-infinity: 0.1 from ImageNet, 0.01 from detectors)"
    )

    def is_frozen(self, epoch: int) -> bool:
        """Return whether the network stays as it is in an epoch, as at the start."""
        return epoch < self.frozen_epochs

    def release(self, steps_per_epoch: int) -> tuple[int, int]:
        """Return the warmup, and the first step of the fine-tuning."""
        return self.release_warmup.steps(steps_per_epoch), self.frozen_epochs * steps_per_epoch

    def rate_factors(self) -> dict[str, float]:
        """Return the factor of the network."""
        return {"backbone": self.learning_rate_factor}

    def missing_file(self) -> str | None:
        """Return what is missing of the weights, and of the settings for their images."""
        if self.weights is None:
            return None
        if isinstance(self.architecture, str):
            return missing_torchvision(self.weights, self.architecture)
        missing = missing_weights(self.weights, NETWORK)
        return missing or (missing_image_settings(self.weights, ", or set pixels") if self.pixels is None else None)

    def _misfits(self) -> Iterator[str]:
        if self.weights is None and self.architecture is None:
            yield "needs weights, or an architecture to be trained from scratch"
        if self.weights is not None and isinstance(self.architecture, dict):
            yield "has weights, which have an architecture; leave out the one given"


class LoraConfig(Strict):
    """Low-rank updates of the attention's projections, the only parameters that are trained (Hu et al. 2021)."""

    rank: Size = Field(8, description="of the updates")
    alpha: Float = Field(16.0, gt=0, le=1e4, description="the updates are multiplied by alpha / rank")
    dropout: Float = Field(0.0, ge=0, lt=1, description="share of the values before an update that training drops")


class DualImageEncoderConfig(ImageEncoder):
    """The vision tower of a dual encoder; `model: {name: dual_encoder, weights: ...}` stands for both towers."""

    takes_pixels: ClassVar[bool] = True
    own_space: ClassVar[bool] = True
    partner: ClassVar[str | None] = "dual_encoder"
    files: ClassVar[tuple[str, ...]] = ("weights",)

    name: Literal["dual_encoder"]
    weights: FolderOrHubName = _DUAL_WEIGHTS
    lora: LoraConfig | None = Field(
        None, description="train low-rank updates of both towers; by default all parameters"
    )

    def missing_file(self) -> str | None:
        """Return what is missing of the weights, the tokenizer and the settings for images."""
        if is_open_clip(Path(self.weights)):
            missing = None if find_spec("open_clip") else f"weights: {self.weights} is of open_clip: {PACKAGE}"
            return missing or missing_weights(self.weights, OPEN_CLIP)
        return missing_weights(self.weights, TOKENIZED_NETWORK) or missing_image_settings(self.weights)


class WordReader(TextEncoder):
    """Settings of every text encoder that reads words."""

    others: ClassVar[set[str]] = {"word_vectors"}
    files: ClassVar[tuple[str, ...]] = ("word_vectors",)

    word_vectors: AbsolutePath | None = Field(
        None, description="text file of vectors (GloVe) that known words begin with, word_dim numbers a line"
    )

    def missing_file(self) -> str | None:
        """Return that the word vectors are missing."""
        if self.word_vectors is None or self.word_vectors.is_file():
            return None
        return f"word_vectors: there is no file {self.word_vectors}; correct the path, or leave it out"


GRUStart = Literal["published", "bias", "orthogonal", "orthogonal_bias"]


class BiGRUTextEncoderConfig(WordReader):
    """From a caption to a vector: word vectors, a bidirectional GRU, an aggregator."""

    name: Literal["bigru"]
    pooling: PoolingConfig = Field(description="aggregator of the GRU's outputs")
    word_dim: Size = Field(description="width of the word vectors (VSE++ and VSE-infinity: 300)")
    directions: Literal[1, 2] = Field(2, description="1 reads forwards only (VSE++; then with `last` for the pooling)")
    dropout: Float = Field(0.0, ge=0, lt=1, description="share of the words' values to drop (HGR's code: 0.2)")
    learned_dim: Int = Field(
        0,
        ge=0,
        le=4096,
        exclude_if=lambda width: not width,
        description="width of a second vector of each word, which alone is learned; word_vectors stay as they are "
        "(VSE-C: 100)",
    )
    start: GRUStart | None = Field(
        None,
        exclude_if=lambda start: start is None,
        description="initial weights of the GRU: PyTorch's (published, the default), an update gate that keeps (bias), "
        "orthogonal ones, or both (orthogonal_bias, the default if the aggregator is `last`)",
    )

    def _misfits(self) -> Iterator[str]:
        if self.learned_dim and self.word_vectors is None:
            yield "learned_dim: without word_vectors the others would all stay zero; name a file, or set it to 0"

    @model_validator(mode="after")
    def _start_of_last_states(self) -> Self:
        if self.start is None and self.pooling.name == "last":
            self.__dict__["start"] = "orthogonal_bias"  # and not among the fields that were set
        return self


class BertTextEncoderConfig(TextEncoder):
    """From a caption to a vector: a pretrained network over pieces of words, a projection, an aggregator."""

    files: ClassVar[tuple[str, ...]] = ("weights",)
    others: ClassVar[set[str]] = {"learning_rate_factor"}

    name: Literal["bert"]
    pooling: PoolingConfig = Field(description="aggregator of the projected last hidden states")
    weights: FolderOrHubName = Field(
        description="text network of transformers, or a dual encoder with one: folder with tokenizer, or hub name"
    )
    learning_rate_factor: Float = Field(
        ge=0, le=1, description="share of training.learning_rate for the network (VSE-infinity: 0.1); 0 freezes it"
    )

    def rate_factors(self) -> dict[str, float]:
        """Return the factor of the network."""
        return {"bert": self.learning_rate_factor}

    def missing_file(self) -> str | None:
        """Return what is missing of the weights and the tokenizer."""
        return missing_weights(self.weights, TOKENIZED_NETWORK)


class DualTextEncoderConfig(TextEncoder):
    """The text tower of a dual encoder, with its tokenizer."""

    own_space: ClassVar[bool] = True
    partner: ClassVar[str | None] = "dual_encoder"
    files: ClassVar[tuple[str, ...]] = ("weights",)

    name: Literal["dual_encoder"]
    weights: FolderOrHubName = _DUAL_WEIGHTS

    def options(self) -> dict[str, Any]:
        """Return the keyword arguments of `vse_core.models.build_model`: the image side brings the weights of both."""
        return {"name": self.name}


def both_sides(settings: Any) -> Any:
    """Write `{name: dual_encoder, weights, lora}` out as an image and a text side; other settings stay as they are."""
    if not isinstance(settings, dict) or "name" not in settings:
        return settings
    unknown = sorted(settings.keys() - {"name", "weights", "lora"})
    if settings["name"] != DUAL_ENCODER or "weights" not in settings or unknown:
        raise ValueError(
            f"a model by name is {{name: {DUAL_ENCODER}, weights: FOLDER_OR_HUB_DUAL_ENCODER, lora: {{...}}}}, got "
            f"{', '.join(f'{key}: {settings[key]}' for key in ('name', *unknown))}"
            f"{'' if 'weights' in settings else ' without weights'}"
        )
    side = {"name": DUAL_ENCODER, "weights": settings["weights"]}
    return {"image": {**side, "lora": settings.get("lora")}, "text": side}
