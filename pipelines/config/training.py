"""Settings of training: the objective, its optimisation and the protocol that judges it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal, get_args

from pydantic import BeforeValidator, Field

from pipelines.config.model import ModelConfig
from pipelines.kinds import LossConfig
from pipelines.kinds.inputs import KindSettings
from pipelines.kinds.kind import ModelKind
from pipelines.schema.fields import AbsolutePath, Cpus, DurationField, Float, Gpus, Int, Strict
from pipelines.schema.variants import Named, Variants
from preprocessing.storage.mirror import Mirror


class StepDecay(Strict):
    """Multiply the learning rate by a factor at fixed points."""

    name: Literal["step"]
    at: tuple[DurationField, ...] = Field(description="the points, counted from the start (VSE-infinity: 15 epochs)")
    factor: Float = Field(gt=0, le=1, description="factor at each point (VSE-infinity: 0.1)")


class CosineDecay(Strict):
    """Lower the learning rate along half a cosine over all of training."""

    name: Literal["cosine"]
    floor: Float = Field(0.0, ge=0, lt=1, description="final rate as a fraction of the highest")


class NoDecay(Strict):
    """Keep the learning rate."""

    name: Literal["none"]


def _workers(value: object) -> object:
    """Check a number of workers, or the fewest and the most."""
    numbers = value if isinstance(value, (list, tuple)) and len(value) == 2 else [value]
    if any(type(number) is not int or number < 1 for number in numbers) or list(numbers) != sorted(numbers):
        raise ValueError(f"must be a number from 1, or the fewest and the most ([2, 8]), got {value!r}")
    return value


class TrainingConfig(Strict):
    """The training run. Batch sizes are those of the global batch: they do not depend on the number of workers."""

    epochs: Int = Field(
        ge=0, le=1_000_000, description="passes over the captions (VSE-infinity: 25); 0 keeps the model as it begins"
    )
    batch_size: Int = Field(gt=1, description="image-caption pairs in a global batch (papers: 128)")
    learning_rate: Float = Field(gt=0, le=1, description="highest rate of AdamW (VSE-infinity: 5e-4)")
    weight_decay: Float = Field(ge=0, le=10, description="decoupled weight decay (VSE-infinity with BiGRU: 0.01)")
    gradient_clip: Float = Field(ge=1e-3, le=1e6, description="largest L2 norm of the gradients (VSE-infinity: 2.0)")
    initial: AbsolutePath | None = Field(
        None,
        description="directory of a model to begin with; by default the weights that `model` names, else random. A "
        "loss that learns what the model's loss has learned (temperature, bias) begins with those values",
    )
    leave_out: AbsolutePath | None = Field(
        None,
        exclude_if=lambda path: path is None,
        description="CSV file with the columns image_id and caption_id: captions that are not trained on, as "
        "pipelines/audit.py names them",
    )
    drop_worst: Float | None = Field(
        None,
        gt=0,
        lt=1,
        exclude_if=lambda share: share is None,
        description="train, leave out this share of the captions, those that the model finds least like their image, "
        "and train again: for data with many wrong captions (0.4 for 40 %)",
    )
    warmup: DurationField = Field(description="linear rise of the learning rate from 0")
    decay: Annotated[StepDecay | CosineDecay | NoDecay, Variants("name")] = Field(description="fall of the rate")
    size_augmentation: Literal["region", "grid", "none"] = Field(
        description="leave out features at random: region 20 %, grid at a random rate up to 20 % (VSE-infinity's code)"
    )
    feature_dropout: Float = Field(
        0.0, ge=0, lt=1, description="fraction of the feature dimensions dropped for each training image (in no paper)"
    )
    image_augmentation: bool = Field(
        False, description="crop and mirror images at random, if a backbone is fine-tuned (VSE-infinity's code)"
    )
    caption_augmentation: bool | Literal["words"] = Field(
        description="mask, replace or delete words at random; true includes a BiGRU's <start> and <end> "
        "(VSE-infinity's code), `words` leaves these two (VSE+2AD's code)"
    )
    shuffle_shards: Int | None = Field(
        None, gt=0, description="shards to draw from at a time, for splits larger than storage.cache_gb; by default all"
    )
    workers: Annotated[int | tuple[Int, Int], BeforeValidator(_workers)] = Field(
        1, description="training processes that share the global batch; [2, 8] takes as many as there is room for"
    )
    parallelism: Literal["ddp", "fsdp2"] = Field(
        "ddp", description="a worker has the model (ddp), or a share of weights, gradients and optimiser state (fsdp2)"
    )
    cpus_per_worker: Cpus = Field(1, description="CPU cores reserved for, and threads used by, a worker")
    gpus_per_worker: Gpus = Field(0, description="GPUs reserved for a worker; 0 trains on the CPU")
    collective_timeout: Int = Field(
        600, gt=0, le=86_400, description="seconds that processes wait for each other before one is taken for dead"
    )
    precision: Literal["float32", "tf32", "bf16", "fp16"] = Field(
        "float32", description="of the encoders, by autocast for bf16 and fp16; weights and losses stay float32"
    )
    accumulation: Int = Field(
        1, gt=0, description="global batches whose gradients an optimiser step averages, each with its own negatives"
    )
    cuda_graphs: bool = Field(
        True, description="on one GPU, replay steps from CUDA graphs: the same results, without waits for the host"
    )
    checkpoint_minutes: Float = Field(
        5, ge=0, description="minutes between checkpoints that a killed run resumes from; 0: after every step"
    )
    log_steps: Int = Field(10, gt=0, description="steps between logged losses")

    def steps_per_epoch(self, batches: int) -> int:
        """Return the optimiser steps of an epoch with this number of global batches; the last step may have fewer."""
        return -(-batches // self.accumulation)

    @property
    def fewest_workers(self) -> int:
        """The workers that training cannot do without."""
        return self.workers if isinstance(self.workers, int) else self.workers[0]

    @property
    def most_workers(self) -> int:
        """The workers that training makes use of."""
        return self.workers if isinstance(self.workers, int) else self.workers[1]

    @property
    def backend(self) -> Literal["gloo", "nccl"]:
        """The backend of torch.distributed: NCCL takes no two processes on one GPU."""
        return "nccl" if self.gpus_per_worker >= 1 else "gloo"

    def _misfits(self) -> Iterator[str]:
        if self.parallelism == "fsdp2" and self.precision == "fp16":
            yield "precision: fp16's scaling needs all gradients in one place; take bf16, or parallelism ddp"
        if self.precision == "tf32" and not self.gpus_per_worker:
            yield "precision: tf32 is a mode of GPUs; set gpus_per_worker, or precision to float32"


EvaluationProtocol = Literal[
    "retrieval",
    "flickr8k_1k",
    "flickr30k_1k",
    "coco_1k",
    "coco_5k",
    "cxc",
    "msr_vtt",
    "vatex",
    "attack",
    "components",
    "dependencies",
]
EVALUATION_PROTOCOLS = get_args(EvaluationProtocol)
# Those that read the parsed captions.
GRAPH_PROTOCOLS = frozenset({"attack", "components", "dependencies"})


class EvaluationConfig(Strict):
    """Evaluation: the split's folds, protocols and their files."""

    folds: Int = Field(1, gt=0, description="number of folds that the split is cut into, to average over (COCO 1K: 5)")
    protocols: tuple[EvaluationProtocol, ...] = Field(
        ("retrieval",),
        description="retrieval on any split; the papers', on the published splits alone (coco_1k: 5 folds, cxc: "
        "Crisscrossed Captions); UniVSE's: adversarial captions, images by components, resolution of dependencies",
    )
    added: tuple[Annotated[Named, Variants("name", "protocol")], ...] = Field(
        (), exclude_if=lambda added: not added, description="protocols of plugins, each with its `name` and settings"
    )
    hub_correction: bool = Field(
        True,
        description="also evaluate with images and captions that are near everything corrected, by a sample of the "
        "training split (rsum_corrected), and correct searches; off by itself with fewer than 1,000 images or captions "
        "there",
    )
    first_images: Int | None = Field(
        None, gt=0, description="first images that UniVSE's protocols take (UniVSE: 1,000 of COCO's test); null: all"
    )
    cxc: AbsolutePath | None = Field(None, description="folder of Crisscrossed Captions (sis_test.csv, ..., *_val.csv)")

    def _misfits(self) -> Iterator[str]:
        if self.protocols[:1] != ("retrieval",) or len(set(self.protocols)) < len(self.protocols):
            yield f"protocols: retrieval comes first, and each once; got {', '.join(self.protocols) or 'none'}"
        if self.first_images is not None and GRAPH_PROTOCOLS.isdisjoint(self.protocols):
            protocols = ", ".join(sorted(GRAPH_PROTOCOLS))
            yield f"first_images: has no effect without one of the protocols {protocols}; leave it out"
        if "cxc" in self.protocols and self.cxc is None:
            yield (
                "cxc: the protocol cxc needs the folder of Crisscrossed Captions; get its data/ from "
                "https://github.com/google-research-datasets/Crisscrossed-Captions and name it as evaluation.cxc"
            )


@dataclass(frozen=True)
class TrainingSettings:
    """The part of a configuration that a training process needs; `feature` is the key of what the model reads."""

    seed: int
    model: ModelConfig
    loss: LossConfig
    training: TrainingConfig
    kind: ModelKind
    kind_settings: KindSettings
    feature: str
    eval_split: str
    folds: int
    mirror: Mirror
