"""Settings of the recipe: the objective, its optimisation and the protocol that judges it."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, Field, model_validator

from pipelines.config.fields import AbsolutePath, DurationField, Float, Int, Strict


class _Loss(Strict):
    """What every objective has."""

    mask_same_image: bool = Field(description="leave other captions of the same image out of the negatives")

    def options(self) -> dict[str, Any]:
        """Return the keyword arguments of `vse_core.losses.build_loss` besides the name and the negatives."""
        return self.model_dump(exclude={"name", "all_negatives"})


class HingeLoss(_Loss):
    """What the losses with a margin over the hardest negatives have."""

    margin: Float = Field(gt=0, description="margin in cosine similarity (VSE++ and VSE-infinity: 0.2)")
    reduction: Literal["sum", "mean"] = Field(
        description="over the batch; the papers sum, the plateau is then 2*B*margin"
    )
    all_negatives: DurationField = Field(
        description="begin with the sum over all negatives for so long, then the hardest (VSE-infinity: 1 epoch)"
    )

    @property
    def pair_plateau(self) -> float:
        """The loss per pair where all similarities are equal."""
        return 2 * self.margin

    def plateau(self, batch_size: int) -> float:
        """Return the loss of a batch on which all similarities are equal."""
        return self.pair_plateau * (batch_size if self.reduction == "sum" else 1)


class TripletLoss(HingeLoss):
    """Hinge triplet ranking loss (VSE++, equations 5 and 6)."""

    name: Literal["triplet"]


class MultiViewLoss(HingeLoss):
    """Hinge over the best of several views of an image and its upper bound (MV-VSE, equations 7 to 15)."""

    name: Literal["multi_view"]
    bound: Literal["max", "avg", "up", "up_rough", "joint", "journal", "journal_soft"] = Field(
        "joint", description="L_Max, L_Avg, L_Up, L_Rough, or lam * L_Max + (1 - lam) * L_Up; or the released code's"
    )
    lam: Float = Field(0.7, ge=0, le=1, description="weight between the two parts of joint and journal bounds")

    @property
    def pair_plateau(self) -> float:
        """The loss per pair where all similarities are equal; the journal's bounds average over both directions."""
        return self.margin if self.bound.startswith("journal") else 2 * self.margin


class SoftmaxLoss(_Loss):
    """What the losses without a hinge have: for them, too, K views enter in the ways of MV-VSE."""

    bound: Literal["max", "avg", "up", "joint"] = Field(
        "max", description="how several views enter: the best, each for itself, upper bound, lam * max + (1 - lam) * up"
    )
    lam: Float = Field(0.7, ge=0, le=1, description="weight between the two parts of joint")


class AdoptLoss(SoftmaxLoss):
    """Contrastive loss over an adaptive number of hardest negatives (VSE+2AD, section 3.3)."""

    name: Literal["adopt"]
    variant: Literal["corrected", "release", "paper"] = Field("corrected", description="whose formulas")
    temperature: Float = Field(0.05, gt=0, description="divisor of the similarities (VSE+2AD: 0.05)")
    margin: Float = Field(0.2, ge=0, description="added to the negatives' similarities (released code: 0.2)")
    count: Literal["adaptive", "constant", "random"] = Field(
        "adaptive", description="how the number of negatives is chosen (VSE+2AD: adaptive)"
    )
    constant: Int = Field(3, gt=0, description="number of negatives where it is constant (released code: 3)")


class InfoNceLoss(SoftmaxLoss):
    """Softmax cross-entropy over the whole batch in both directions."""

    name: Literal["infonce"]
    temperature: Float = Field(gt=0, description="divisor of the similarities")


class VseCLoss(HingeLoss):
    """Triplet loss, and a hinge against adversarial captions (VSE-C)."""

    name: Literal["vse_c"]
    adversarial_after: DurationField = Field(
        description="train without adversarial captions for so long (VSE-C: 1 epoch)"
    )
    adversarial_captions: Int = Field(5, gt=0, description="adversarial captions drawn a caption and step (VSE-C: 5)")

    def options(self) -> dict[str, Any]:
        """Return the keyword arguments of `vse_core.losses.build_loss` besides the name and the negatives."""
        return self.model_dump(include={"margin", "reduction", "mask_same_image"})


class HierarchicalLoss(HingeLoss):
    """Triplet loss of the mean of event, action and entity similarities (HGR)."""

    name: Literal["hierarchical"]


class UnifiedLoss(_Loss):
    """Sentences and their components against images, objects and attributes against regions (UniVSE, equations 1-4)."""

    name: Literal["unified"]
    margin: Float = Field(gt=0, description="margin in cosine similarity (UniVSE: 0.2)")
    all_negatives: DurationField = Field(
        description="begin with the sum over all negatives of sentences and components for so long, then the hardest"
    )
    component_weight: Float = Field(ge=0, description="weight of a caption's components taken together (UniVSE: 0.5)")
    object_weight: Float = Field(ge=0, description="weight of objects (UniVSE: 0.5)")
    attribute_weight: Float = Field(ge=0, description="weight of attributes (UniVSE: 0.5)")
    relation_weight: Float = Field(ge=0, description="weight of relations (UniVSE: 1)")
    relations_after: DurationField = Field(description="train without relations for so long (UniVSE: 2 epochs)")
    object_negatives: Int = Field(gt=0, description="other nouns an object is contrasted with (UniVSE: 16)")
    attribute_negatives: Int = Field(
        gt=0, description="exchanges of the adjective, and as many of the noun, for an attribute (UniVSE: 8)"
    )
    relation_negatives: tuple[Int, Int, Int] = Field(
        description="exchanges of subject, relation and object for a relation (UniVSE: 2, 4, 2)"
    )

    def options(self) -> dict[str, Any]:
        """Return the keyword arguments of `vse_core.losses.build_loss` besides the name and what changes by step."""
        weights = {"component_weight", "object_weight", "attribute_weight"}
        return self.model_dump(include={"margin", "mask_same_image", *weights})


LossConfig = Annotated[
    TripletLoss | MultiViewLoss | AdoptLoss | InfoNceLoss | VseCLoss | UnifiedLoss | HierarchicalLoss,
    Field(discriminator="name"),
]


class StepDecay(Strict):
    """Multiply the learning rate by a factor at fixed points."""

    name: Literal["step"]
    at: tuple[DurationField, ...] = Field(description="the points, counted from the start (VSE-infinity: 15 epochs)")
    factor: Float = Field(gt=0, le=1, description="factor at each point (VSE-infinity: 0.1)")


class CosineDecay(Strict):
    """Lower the learning rate along half a cosine over the whole training."""

    name: Literal["cosine"]
    floor: Float = Field(0.0, ge=0, lt=1, description="final rate as a share of the highest")


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

    epochs: Int = Field(gt=0, description="passes over the training captions (VSE-infinity: 25)")
    batch_size: Int = Field(gt=1, description="image-caption pairs in a global batch (papers: 128)")
    learning_rate: Float = Field(gt=0, description="highest rate of AdamW (VSE-infinity: 5e-4)")
    weight_decay: Float = Field(ge=0, description="decoupled weight decay (VSE-infinity with BiGRU: 0.01)")
    gradient_clip: Float = Field(gt=0, description="largest global L2 norm of the gradients (VSE-infinity: 2.0)")
    initial: AbsolutePath | None = Field(
        None, description="directory of a model whose weights training begins with; by default random ones"
    )
    warmup: DurationField = Field(description="linear rise of the learning rate from 0")
    decay: Annotated[StepDecay | CosineDecay | NoDecay, Field(discriminator="name")] = Field(
        description="fall of the learning rate"
    )
    size_augmentation: Literal["region", "grid", "none"] = Field(
        description="leave out features at random: region 20 %, grid at a random rate up to 20 % (VSE-infinity's code)"
    )
    feature_dropout: Float = Field(
        0.0,
        ge=0,
        lt=1,
        description="share of the feature dimensions that each training image goes without: what keeps a few thousand "
        "images from being learned by heart (no paper has it)",
    )
    image_augmentation: bool = Field(
        False, description="crop and mirror pictures at random, where a backbone is trained (VSE-infinity's code)"
    )
    caption_augmentation: bool = Field(description="mask, replace or delete words at random (VSE-infinity's code)")
    shuffle_shards: Int | None = Field(
        None,
        gt=0,
        description="draw samples from so many shards at a time, drawn anew each epoch: for splits larger than "
        "storage.cache_gb; by default from all",
    )
    workers: Annotated[int | tuple[Int, Int], BeforeValidator(_workers)] = Field(
        1, description="training processes that share the global batch; [2, 8] takes as many as there is room for"
    )
    cpus_per_worker: Float = Field(1, gt=0, description="CPU cores reserved for, and threads used by, a worker")
    gpus_per_worker: Float = Field(0, ge=0, description="GPUs reserved for a worker; 0 trains on the CPU")
    gpu_type: str | None = Field(
        None, min_length=1, description="train on machines with this type of GPU alone, in Ray's words (A100, H100)"
    )
    placement: Literal["PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"] = Field(
        "PACK", description="workers on as few machines as possible or as many; strictly: on one, or one on each"
    )
    collective_timeout: Int = Field(
        600, gt=0, description="seconds that processes wait for each other before one is taken for dead"
    )
    precision: Literal["float32", "tf32", "bf16", "fp16"] = Field(
        "float32",
        description="what the encoders compute in, by autocast for bf16 and fp16; weights and losses stay in float32",
    )
    accumulation: Int = Field(
        1,
        gt=0,
        description="global batches whose gradients an optimiser step averages, each with its own loss and negatives; "
        "a step is then as many batches",
    )
    chunk_size: Int | None = Field(
        None,
        gt=0,
        description="pairs that a worker encodes at once where its share of a batch exceeds its memory: the same "
        "gradients, for a second forward pass; by default the whole share",
    )
    compile: bool = Field(False, description="compile BERT and trained backbones (torch.compile)")
    checkpoint_steps: Int = Field(100, gt=0, description="steps between checkpoints that a killed run resumes from")
    log_steps: Int = Field(10, gt=0, description="steps between logged losses")
    profile_steps: Int = Field(
        0, ge=0, description="steps at the start that the first worker profiles; the trace is an artifact of the run"
    )

    def steps_per_epoch(self, batches: int) -> int:
        """Return the optimiser steps of an epoch of so many global batches; the last one may have fewer of them."""
        return -(-batches // self.accumulation)

    @model_validator(mode="after")
    def _tf32_has_effect(self) -> TrainingConfig:
        if self.precision == "tf32" and not self.gpus_per_worker:
            raise ValueError("precision: tf32 is a mode of GPUs; set gpus_per_worker, or precision to float32")
        return self

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
        """What processes exchange tensors with: NCCL takes no two of them on one GPU."""
        return "nccl" if self.gpus_per_worker >= 1 else "gloo"

    @model_validator(mode="after")
    def _gpu_type_has_effect(self) -> TrainingConfig:
        if self.gpu_type is not None and not self.gpus_per_worker:
            raise ValueError("gpu_type: has no effect without GPUs; set training.gpus_per_worker, or leave it out")
        return self


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
    """What a model is evaluated by."""

    folds: Int = Field(1, gt=0, description="cut the split in so many folds and average (COCO 1K: 5)")
    protocols: tuple[EvaluationProtocol, ...] = Field(
        ("retrieval",),
        description="image-text retrieval of any split; by name that of the papers, on the published splits alone "
        "(flickr8k_1k, flickr30k_1k, coco_1k: 5 folds, coco_5k, cxc: Crisscrossed Captions, msr_vtt, vatex); and "
        "UniVSE's: under adversarial captions, of images by components, and the resolution of dependencies",
    )
    cxc: AbsolutePath | None = Field(
        None, description="folder of Crisscrossed Captions (sis_test.csv, sts_test.csv, sits_test.csv; dev: *_val.csv)"
    )

    @model_validator(mode="after")
    def _begins_with_retrieval(self) -> EvaluationConfig:
        if self.protocols[:1] != ("retrieval",) or len(set(self.protocols)) < len(self.protocols):
            raise ValueError(
                f"protocols: retrieval comes first, and each once; got {', '.join(self.protocols) or 'none'}"
            )
        if "cxc" in self.protocols and self.cxc is None:
            raise ValueError(
                "cxc: the protocol cxc needs the folder of Crisscrossed Captions; get its data/ from "
                "https://github.com/google-research-datasets/Crisscrossed-Captions and name it as evaluation.cxc"
            )
        return self
