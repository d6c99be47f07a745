"""The configuration of a pipeline: its typed schema, and its loading from preset, file and command line."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationError,
    model_validator,
)

from pipelines.config_layers import ConfigError, merged, override_layer, preset_layers, read_layer
from pipelines.config_messages import explain

__all__ = ["DEFAULT_CONFIG", "EXTRACTORS", "ConfigError", "Duration", "PipelineConfig", "load_config"]

DEFAULT_CONFIG = Path(__file__).resolve().parent / "configs" / "scenes.yaml"
# The code of the extractors, and beside it network definitions to be filled with random weights (features.weights).
EXTRACTORS = Path(__file__).resolve().parents[1] / "preprocessing" / "features"

_DURATION = re.compile(r"(\d+(?:\.\d+)?) (epoch|step)s?")
_IDENTIFIER = r"^[A-Za-z0-9][A-Za-z0-9_.-]*$"


@dataclass(frozen=True)
class Duration:
    """A length of training, written "4 epochs" or "1132 steps".

    Steps compare between data sets of different size, epochs do not: 30,000 captions and 145,000 differ five times.
    """

    amount: float
    unit: Literal["epoch", "step"]

    @classmethod
    def parse(cls, text: object) -> Duration:
        """Read "4 epochs", "0.5 epochs" or "1132 steps".

        Raises:
            ValueError: it is none of these.
        """
        if isinstance(text, Duration):
            return text
        match = _DURATION.fullmatch(text.strip()) if isinstance(text, str) else None
        if match is None or (match[2] == "step" and "." in match[1]):
            raise ValueError(f'is not a duration: write it as "4 epochs" or "1132 steps", got {text!r}')
        return cls(float(match[1]), "epoch" if match[2] == "epoch" else "step")

    def steps(self, steps_per_epoch: int) -> int:
        """Return the length in optimiser steps, rounded to the nearest."""
        return round(self.amount * steps_per_epoch) if self.unit == "epoch" else int(self.amount)

    def __str__(self) -> str:
        return f"{self.amount:g} {self.unit}{'' if self.amount == 1 else 's'}"


def _absolute(path: Path) -> Path:
    # Not resolve(): a link that a user names is the name he knows it by.
    return Path(os.path.abspath(path.expanduser()))  # noqa: PTH100


def _weights(value: str) -> str:
    """Make a local folder absolute; anything else stays as it is, a name on the hub."""
    if (EXTRACTORS / value / "config.json").is_file():
        return str(EXTRACTORS / value)
    if value.startswith(("/", "./", "../", "~")) or Path(value).is_dir():
        return str(_absolute(Path(value)))
    return value


def _tracking_uri(uri: str | None) -> str | None:
    """Make the path in a sqlite address absolute: the workers of a run have other current directories."""
    if uri is None or not uri.startswith("sqlite:///"):
        return uri
    return f"sqlite:///{_absolute(Path(uri.removeprefix('sqlite:///')))}"


def _number(value: object) -> object:
    """Refuse `epochs: true`, which pydantic would read as 1."""
    if isinstance(value, bool):
        raise ValueError(f"must be a number, got {value}")
    return value


Int = Annotated[int, BeforeValidator(_number)]
Float = Annotated[float, BeforeValidator(_number)]
AbsolutePath = Annotated[Path, AfterValidator(_absolute)]
DurationField = Annotated[Duration, BeforeValidator(Duration.parse), PlainSerializer(str)]


class _Strict(BaseModel):
    """Unknown keys are refused and nothing changes after loading."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False)


class _Dataset(_Strict):
    """What every data set has, whatever its format."""

    train_split: str = Field("train", description="split that is trained on; the vocabulary comes from it alone")
    eval_split: str = Field("dev", description="split that models are selected on, never the test split")

    def options(self) -> dict[str, Any]:
        """Return the keyword arguments of `preprocessing.datasets.build_dataset` besides the format."""
        return self.model_dump(mode="json", exclude={"format", "train_split", "eval_split"})


class FlickrDataset(_Dataset):
    """Flickr8k or Flickr30k as published: a folder of images, a token file, one file of names for each split."""

    format: Literal["flickr"]
    images: AbsolutePath = Field(description="folder of the images")
    tokens: AbsolutePath = Field(description="captions, one `NAME.jpg#N<TAB>caption` a line")
    splits: dict[str, AbsolutePath] = Field(description="split -> file of image names, one a line", min_length=1)


class KarpathyDataset(_Dataset):
    """Karpathy and Fei-Fei's JSON for Flickr8k, Flickr30k and COCO (dataset_*.json); restval counts as train."""

    format: Literal["karpathy"]
    images: AbsolutePath = Field(description="folder of the images; COCO's subfolders are named in the JSON")
    annotations: AbsolutePath = Field(description="dataset_flickr8k.json, dataset_flickr30k.json or dataset_coco.json")


class CocoDataset(_Dataset):
    """COCO's own captions JSON, one file and one folder of images for each split."""

    format: Literal["coco"]
    images: dict[str, AbsolutePath] = Field(description="split -> folder of its images", min_length=1)
    annotations: dict[str, AbsolutePath] = Field(description="split -> its captions_*.json", min_length=1)


class PrecomputedDataset(_Dataset):
    """Region features as SCAN and VSE-infinity released them: {split}_ims.npy, {split}_caps.txt, {split}_ids.txt."""

    format: Literal["precomputed"]
    root: AbsolutePath = Field(description="folder of these files")


class ScenesDataset(_Dataset):
    """Generated pictures of coloured shapes with five captions each: the embedded default, which needs no files."""

    format: Literal["scenes"]
    seed: Int = Field(0, ge=0, description="another seed, other scenes")
    images: dict[str, Annotated[Int, Field(gt=0)]] = Field(description="split -> number of images", min_length=1)


class _Extraction(_Strict):
    """How the images become feature shards, whatever computes the features."""

    batch_size: Int = Field(32, gt=0, description="images in a forward pass")
    shard_size: Int = Field(500, gt=0, description="images in a shard; the unit of work that a killed run repeats")
    actors: Int = Field(1, gt=0, description="extraction processes; each loads the network once")
    cpus_per_actor: Float = Field(1, gt=0, description="CPU cores reserved for, and threads used by, an actor")
    gpus_per_actor: Float = Field(0, ge=0, description="GPUs reserved for an actor; 0 computes on the CPU")


class GridFeatures(_Extraction):
    """The last feature map of a CNN, or the patches of a ViT, loaded through transformers' auto classes."""

    extractor: Literal["grid"]
    weights: Annotated[str, AfterValidator(_weights)] = Field(
        description="local folder, name on the hub, or a network that ships with the package (tiny_resnet)"
    )
    random_seed: Int | None = Field(
        None, ge=0, description="fill the network with random weights from this seed instead of trained ones"
    )

    @property
    def member(self) -> str:
        """The name of these features in the shards."""
        return "grid"

    def options(self) -> dict[str, Any]:
        """Return the keyword arguments of `preprocessing.features.build_extractor` besides name and device."""
        return {"weights": self.weights, "seed": self.random_seed}


class PrecomputedFeatures(_Extraction):
    """Features that the data set brings along."""

    extractor: Literal["precomputed"]

    @property
    def member(self) -> str:
        """The name of these features in the shards."""
        return "region"

    def options(self) -> dict[str, Any]:
        """Return the keyword arguments of `preprocessing.features.build_extractor` besides the name."""
        return {}


class VocabularyConfig(_Strict):
    """The words of the text encoder."""

    min_count: Int = Field(4, gt=0, description="occurrences in the training captions that make a word known (SCAN)")


class MeanPooling(_Strict):
    """Average of the set (VSE++ over regions)."""

    name: Literal["mean"]


class MaxPooling(_Strict):
    """Largest value of each dimension over the set."""

    name: Literal["max"]


class GpoPooling(_Strict):
    """Generalized Pooling Operator (VSE-infinity, section 3.2): learned weights over the sorted values."""

    name: Literal["gpo"]
    position_dim: Int = Field(32, gt=0, multiple_of=2, description="width of the rank's sine-cosine code")
    hidden_dim: Int = Field(32, gt=0, description="width of the GRU that turns rank codes into weights")
    temperature: Float = Field(0.1, gt=0, description="temperature of the softmax over ranks (released code)")


PoolingConfig = Annotated[MeanPooling | MaxPooling | GpoPooling, Field(discriminator="name")]


class ImageEncoderConfig(_Strict):
    """From a set of region or grid features to a vector."""

    pooling: PoolingConfig = Field(description="aggregator of the projected features")
    mlp: bool = Field(description="add the residual two-layer MLP to the linear projection (VSE-infinity, regions)")


class TextEncoderConfig(_Strict):
    """From a caption to a vector: word vectors, a bidirectional GRU, an aggregator."""

    pooling: PoolingConfig = Field(description="aggregator of the GRU's outputs")
    word_dim: Int = Field(gt=0, description="width of the word vectors (VSE++ and VSE-infinity: 300)")


class ModelConfig(_Strict):
    """The two towers."""

    embed_dim: Int = Field(gt=0, multiple_of=2, description="width of the joint space (papers: 1024)")
    image: ImageEncoderConfig = Field(description="image encoder")
    text: TextEncoderConfig = Field(description="text encoder")


class LossConfig(_Strict):
    """The objective."""

    name: Literal["triplet"] = Field(description="hinge triplet ranking loss (VSE++, equations 5 and 6)")
    margin: Float = Field(gt=0, description="margin in cosine similarity (VSE++ and VSE-infinity: 0.2)")
    reduction: Literal["sum", "mean"] = Field(
        description="over the batch; the papers sum, the plateau is then 2*B*margin"
    )
    mask_same_image: bool = Field(description="leave other captions of the same image out of the negatives")
    all_negatives: DurationField = Field(
        description="begin with the sum over all negatives for so long, then the hardest (VSE-infinity: 1 epoch)"
    )


class StepDecay(_Strict):
    """Multiply the learning rate by a factor at fixed points."""

    name: Literal["step"]
    at: tuple[DurationField, ...] = Field(description="the points, counted from the start (VSE-infinity: 15 epochs)")
    factor: Float = Field(gt=0, le=1, description="factor at each point (VSE-infinity: 0.1)")


class CosineDecay(_Strict):
    """Lower the learning rate along half a cosine over the whole training."""

    name: Literal["cosine"]
    floor: Float = Field(0.0, ge=0, lt=1, description="final rate as a share of the highest")


class NoDecay(_Strict):
    """Keep the learning rate."""

    name: Literal["none"]


class TrainingConfig(_Strict):
    """The training run. Batch sizes are those of the global batch: they do not depend on the number of workers."""

    epochs: Int = Field(gt=0, description="passes over the training captions (VSE-infinity: 25)")
    batch_size: Int = Field(gt=1, description="image-caption pairs in a global batch (papers: 128)")
    learning_rate: Float = Field(gt=0, description="highest rate of AdamW (VSE-infinity: 5e-4)")
    weight_decay: Float = Field(ge=0, description="decoupled weight decay (VSE-infinity with BiGRU: 0.01)")
    gradient_clip: Float = Field(gt=0, description="largest global L2 norm of the gradients (VSE-infinity: 2.0)")
    warmup: DurationField = Field(description="linear rise of the learning rate from 0")
    decay: Annotated[StepDecay | CosineDecay | NoDecay, Field(discriminator="name")] = Field(
        description="fall of the learning rate"
    )
    size_augmentation: Literal["region", "grid", "none"] = Field(
        description="leave out features at random: region 20 %, grid at a random rate up to 20 % (VSE-infinity's code)"
    )
    caption_augmentation: bool = Field(description="mask, replace or delete words at random (VSE-infinity's code)")
    workers: Int = Field(1, gt=0, description="training processes that share the global batch")
    cpus_per_worker: Float = Field(1, gt=0, description="CPU cores reserved for, and threads used by, a worker")
    gpus_per_worker: Float = Field(0, ge=0, description="GPUs reserved for a worker; 0 trains on the CPU")
    checkpoint_steps: Int = Field(100, gt=0, description="steps between checkpoints that a killed run resumes from")
    log_steps: Int = Field(10, gt=0, description="steps between logged losses")


class EvaluationConfig(_Strict):
    """The retrieval protocol."""

    folds: Int = Field(1, gt=0, description="cut the split in so many folds and average (COCO 1K: 5)")


class TrackingConfig(_Strict):
    """Where runs are recorded."""

    uri: Annotated[str | None, AfterValidator(_tracking_uri)] = Field(
        None, description="MLflow server or database; by default sqlite in work_dir, which is for one machine"
    )
    experiment: str | None = Field(None, min_length=1, description="experiment; by default the configuration's name")


class RegistryConfig(_Strict):
    """Where models are registered."""

    name: str | None = Field(
        None, pattern=_IDENTIFIER, description="registered model; by default the configuration's name"
    )


class RayConfig(_Strict):
    """Where the work runs."""

    address: str | None = Field(
        None,
        min_length=1,
        description="HOST:PORT of a running cluster; by default the job's own, else one on this machine",
    )


class PipelineConfig(_Strict):
    """Everything a pipeline run is determined by."""

    name: str = Field("scenes", pattern=_IDENTIFIER, description="name of the experiment and of the registered model")
    preset: str = Field("vse_infty", description="published system whose model, loss and recipe are the defaults")
    seed: Int = Field(0, ge=0, description="seed of initial weights, order of samples and augmentation")
    work_dir: AbsolutePath = Field(
        default_factory=lambda: Path(os.environ.get("VSE_WORK_DIR") or "~/vse-work"),
        description="folder for everything that is written; shared between the machines of a cluster",
    )
    dataset: Annotated[
        FlickrDataset | KarpathyDataset | CocoDataset | PrecomputedDataset | ScenesDataset,
        Field(discriminator="format"),
    ] = Field(description="images and captions")
    features: Annotated[GridFeatures | PrecomputedFeatures, Field(discriminator="extractor")] = Field(
        description="what the image encoder reads"
    )
    vocabulary: VocabularyConfig = Field(VocabularyConfig(), description="words")
    model: ModelConfig = Field(description="the two towers")
    loss: LossConfig = Field(description="the objective")
    training: TrainingConfig = Field(description="the recipe")
    evaluation: EvaluationConfig = Field(EvaluationConfig(), description="the protocol")
    tracking: TrackingConfig = Field(TrackingConfig(), description="MLflow")
    registry: RegistryConfig = Field(RegistryConfig(), description="registered model")
    ray: RayConfig = Field(RayConfig(), description="Ray cluster")

    @property
    def tracking_uri(self) -> str:
        """The MLflow address in force."""
        return self.tracking.uri or f"sqlite:///{self.work_dir / 'mlflow.db'}"

    @property
    def experiment(self) -> str:
        """The MLflow experiment in force."""
        return self.tracking.experiment or self.name

    @property
    def registered_model(self) -> str:
        """The name the model is registered under."""
        return self.registry.name or self.name

    @model_validator(mode="after")
    def _features_fit_dataset(self) -> PipelineConfig:
        if (self.dataset.format == "precomputed") != (self.features.extractor == "precomputed"):
            wanted = "precomputed" if self.dataset.format == "precomputed" else "grid"
            raise ValueError(
                f"features.extractor: {self.features.extractor!r} cannot read dataset.format {self.dataset.format!r}; "
                f"set features.extractor to {wanted!r}"
            )
        return self


def load_config(path: Path | None, overrides: Sequence[str] = ()) -> PipelineConfig:
    """Load a configuration.

    Layers, later ones win: the preset that the file names (it may inherit another), the file, the overrides.

    Args:
        path: YAML file; None takes the embedded default, generated scenes.
        overrides: `key.in.dots=value` items that win over the file; the value is read as YAML.

    Raises:
        ConfigError: anything about it is wrong; one message for all that was found.
    """
    layers = [read_layer(path or DEFAULT_CONFIG), *(override_layer(item) for item in overrides)]
    preset = merged(layers).get("preset", PipelineConfig.model_fields["preset"].default)
    layers = [*preset_layers(preset), *layers]
    values = merged(layers)
    try:
        return PipelineConfig.model_validate(values)
    except ValidationError as error:
        raise ConfigError(explain(error, PipelineConfig, values, layers)) from None
