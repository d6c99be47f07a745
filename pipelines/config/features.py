"""Settings of the features that the image encoder reads: one class an extractor."""

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field

from pipelines.schema.fields import (
    Cpus,
    Float,
    FolderIfThere,
    FolderOrHubName,
    Gpus,
    Int,
    Seconds,
    Size,
    Strict,
    folder_or_hub_name,
)
from pipelines.schema.variants import Variants

# The code of the extractors, and next to it network definitions to be filled with random weights (features.weights).
EXTRACTORS = Path(__file__).resolve().parents[2] / "preprocessing" / "features"


def _weights(value: str) -> str:
    """Find a network that ships with the package; else make a local folder absolute, or leave a name on the hub."""
    shipped, found = EXTRACTORS / value, folder_or_hub_name(value)
    return str(shipped) if (shipped / "config.json").is_file() else found


_Weights = Annotated[str, AfterValidator(_weights), FolderIfThere]
_ImageSize = Annotated[Int, Field(ge=32, le=8192)]


class FeatureSettings(Strict):
    """Keys of every extractor: how images become feature shards, which hold the features under the name `member`."""

    batch_size: Int = Field(32, gt=0, description="images in a forward pass")
    shard_size: Int = Field(500, gt=0, description="images in a shard; each archive of `webdataset` is one")
    actors: Int = Field(1, gt=0, description="extraction processes; each loads the network once")
    cpus_per_actor: Cpus = Field(1, description="CPU cores reserved for, and threads used by, an actor")
    gpus_per_actor: Gpus = Field(0, description="GPUs reserved for an actor; 0 computes on the CPU")
    image_timeout: Seconds = Field(
        60,
        description="seconds to load and decode an image; then it is skipped (on S3 after its own attempts)",
    )
    max_skipped: Float = Field(0.5, ge=0, le=1, description="share of a split's images that may be skipped")

    def options(self) -> dict[str, Any]:
        """Return the keyword arguments of `preprocessing.features.build_extractor` besides name and device."""
        return self.model_dump(mode="json", by_alias=True, exclude={"extractor", *DecodedFeatures.model_fields})

    @property
    def limits(self) -> dict[str, int]:
        """Limits of the images that the extractor takes, if they are set."""
        return self.model_dump(include={"max_pixels"}, exclude_none=True)


class DecodedFeatures(FeatureSettings):
    """Keys of the extractors that decode images or videos."""

    max_pixels: Int | None = Field(
        None,
        gt=0,
        description="pixels of the largest image, and of all that an actor decodes at once, 22 bytes each (null: 50 "
        "million); a larger baseline JPEG is decoded at a half to an eighth of its sides, others are skipped",
    )


class NetworkFeatures(DecodedFeatures):
    """Computed by a vision network, trained or filled from a seed."""

    random_seed: Int | None = Field(None, ge=0, serialization_alias="seed", description="seed of random weights")
    dtype: Literal["float32", "bfloat16", "float16"] = Field(
        "float32", description="what the network computes in; float16 is for GPUs, most CPUs are slower in it"
    )


class CnnFeatures(NetworkFeatures):
    """Computed by a CNN of transformers or torchvision."""

    weights: _Weights | None = Field(
        None, description="local folder, hub name, or a network of the package (tiny_resnet); with `network` a file"
    )
    network: str | None = Field(
        None,
        min_length=1,
        description="CNN of torchvision (resnext101_32x8d), or bottom-up attention's, resnet101_caffe; null for one of "
        "transformers",
    )


class GridFeatures(CnnFeatures):
    """The cells of the last feature map of a CNN of transformers or torchvision."""

    member: ClassVar[str] = "grid"
    extractor: Literal["grid"]
    image_size: _ImageSize | None = Field(
        None, description="side in pixels (VSE-infinity: 512); null as the weights' folder says"
    )


class PatchFeatures(NetworkFeatures):
    """The patches of the last layer of a vision transformer: ViT, DINOv2, the vision tower of CLIP or SigLIP, ..."""

    member: ClassVar[str] = "patches"
    extractor: Literal["patches"]
    weights: _Weights = Field(description="local folder, or name on the hub")
    class_token: bool = Field(
        True, description="begin the set with the class token (VSE+2AD: 197 for ViT-B/16); false for SigLIP, Swin"
    )


class PyramidFeatures(CnnFeatures):
    """30 regions without a detector: a CNN's feature map averaged over the boxes of a 1x1 to 4x4 pyramid."""

    member: ClassVar[str] = "pyramid"
    extractor: Literal["pyramid"]
    image_size: _ImageSize = Field(224, description="side in pixels")


class FrameFeatures(CnnFeatures):
    """Frames of videos, one vector each: the average of a CNN's last feature map. The data set's images are videos."""

    member: ClassVar[str] = "frames"
    extractor: Literal["frames"]
    image_size: _ImageSize | None = Field(None, description="side in pixels; null as the weights' folder says")
    frames: Size = Field(12, description="frames taken from a video, evenly spread; a shorter one gives all")


class DetectorSize(Strict):
    """Size of a randomly initialised detector; the released weights have the published size."""

    width: Size = Field(64, description="channels of the first convolution; features are 32 times as wide")
    blocks: tuple[Size, Size, Size] = Field((3, 4, 23), description="residual blocks of stages 2 to 4 (ResNet-101)")
    objects: Size = Field(1600, description="object classes (BUTD)")
    attributes: Size = Field(400, description="attribute classes (BUTD)")


class ButdFeatures(NetworkFeatures):
    """Regions of the bottom-up-attention detector, with their boxes, objects and attributes (BUTD)."""

    member: ClassVar[str] = "region"
    extractor: Literal["butd"]
    batch_size: Int = Field(4, gt=0, description="images in a forward pass, of about 600 x 900 pixels each")
    weights: FolderOrHubName | None = Field(
        None, description="local file or folder, or name on the hub (unc-nlp/frcnn-vg-finetuned)"
    )
    min_regions: Size = Field(36, description="regions of an image; 36 and 36, or 10 and 100 (BUTD)")
    max_regions: Size = Field(36, description="regions of an image")
    dtype: Literal["float32", "bfloat16"] = Field("float32", description="of the convolutions")
    random_size: DetectorSize | None = Field(None, serialization_alias="size", description="of random weights")


class ImageFeatures(DecodedFeatures):
    """The images themselves, as JPEG files, for an image encoder that is trained end to end (model.image.name)."""

    member: ClassVar[str] = "jpg"
    extractor: Literal["images"]
    largest_side: Size = Field(640, description="in pixels; larger images are made smaller (COCO's have 640)")


class PrecomputedFeatures(FeatureSettings):
    """Features that are part of the data set."""

    member: ClassVar[str] = "region"
    extractor: Literal["precomputed"]
    largest_set: Int | None = Field(
        None, gt=0, description="vectors kept of a larger set, evenly spread (HGR: 20 frames)"
    )


Features = Annotated[
    GridFeatures | PatchFeatures | PyramidFeatures | FrameFeatures | ButdFeatures | ImageFeatures | PrecomputedFeatures,
    Variants("extractor", "extractor"),
]
