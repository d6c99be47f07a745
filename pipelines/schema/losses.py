"""Settings of the objectives of two-tower models, and what all objectives share."""

import math
from collections.abc import Iterator
from typing import Any, ClassVar, Literal

from pydantic import Field

from pipelines.schema.fields import DurationField, Float, Int, Strict, Temperature

# Scale of the smooth bound, as in vse_core.losses.multi_view, which imports torch.
_SOFTNESS = 0.01


class Loss(Strict):
    """Settings of every objective."""

    mask_same_image: bool = Field(description="leave other captions of the same image out of the negatives")

    def options(self) -> dict[str, Any]:
        """Return the keyword arguments of `vse_core.losses.build_loss` besides the name and the negatives."""
        return self.model_dump(exclude={"name", "all_negatives"})

    def options_at(self, step: int, steps_per_epoch: int) -> dict[str, Any]:
        """Return the keyword arguments of `vse_core.losses.build_loss` at a step, counted from 0."""
        return self.options()


class MarginLoss(Loss):
    """Settings of the losses with a margin, which begin with all negatives and go over to the hardest."""

    # The values reported by a step whose sum has a plateau.
    plateau_values: ClassVar[tuple[str, ...]] = ("loss",)

    margin: Float = Field(gt=0, le=2, description="margin in cosine similarity (VSE++, VSE-infinity and UniVSE: 0.2)")
    all_negatives: DurationField = Field(
        description="start with all negatives, then the hardest (VSE-infinity: 1 epoch)"
    )

    def pair_plateau(self, batch_size: float) -> float:
        """Return the loss per pair, by the hardest negatives, of a batch on which all similarities are equal."""
        return 2 * self.margin

    def plateau(self, batch_size: float) -> float:
        """Return the loss of that batch."""
        return self.pair_plateau(batch_size)

    def options_at(self, step: int, steps_per_epoch: int) -> dict[str, Any]:
        """Return the keyword arguments at a step: all negatives first, then the hardest."""
        is_early = step < self.all_negatives.steps(steps_per_epoch)
        return {**self.options(), "negatives": "all" if is_early else "hardest"}


class HingeLoss(MarginLoss):
    """Settings of the losses that are a hinge over pairs, of which all negatives are added up at first."""

    reduction: Literal["sum", "mean"] = Field(description="over the batch; the papers sum: a plateau of 2*B*margin")

    def plateau(self, batch_size: float) -> float:
        """Return the loss of a batch on which all similarities are equal."""
        return self.pair_plateau(batch_size) * (batch_size if self.reduction == "sum" else 1)


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

    def _misfits(self) -> Iterator[str]:
        weighted = ("joint", "journal", "journal_soft")
        if self.bound not in weighted and self.lam != _default(self, "lam"):
            yield (
                f"lam: has no effect with the bound {self.bound}, which is not a sum of two; leave it out, or set "
                f"bound to one of {', '.join(weighted)}"
            )

    def pair_plateau(self, batch_size: float) -> float:
        """Return the loss per pair if all similarities are equal; the journal's bounds average over both directions.

        The smooth maximum of equal negatives grows with their number.
        """
        if self.bound == "journal_soft":
            negatives = max(batch_size - 1, 1)
            return _SOFTNESS * math.log1p(negatives * math.exp(self.margin / _SOFTNESS))
        return self.margin if self.bound == "journal" else 2 * self.margin


class AdoptLoss(Loss):
    """Contrastive loss over an adaptive number of hardest negatives (VSE+2AD, section 3.3)."""

    name: Literal["adopt"]
    variant: Literal["corrected", "release", "paper"] = Field("corrected", description="whose formulas")
    temperature: Temperature = Field(0.05, description="divisor of the similarities (VSE+2AD: 0.05)")
    margin: Float = Field(0.2, ge=0, le=2, description="added to the negatives' similarities (released code: 0.2)")
    count: Literal["adaptive", "constant", "random"] = Field(
        "adaptive", description="choice of the number of negatives"
    )
    constant: Int = Field(3, gt=0, description="number of negatives if it is constant (released code: 3)")

    def _misfits(self) -> Iterator[str]:
        if self.variant == "paper" and self.margin != _default(self, "margin"):
            yield "margin: has no effect on the paper's formulas; leave it out, or set variant to corrected or release"
        if self.count != "constant" and self.constant != _default(self, "constant"):
            yield f"constant: has no effect with the count {self.count}; leave it out, or set count to constant"


class InfoNceLoss(Loss):
    """Softmax cross-entropy over the global batch in both directions."""

    name: Literal["infonce"]
    temperature: Temperature = Field(description="divisor of the similarities")
    learned: bool = Field(False, description="learn the temperature, from that value on (CLIP: 0.07)")


class SigmoidLoss(Loss):
    """A binary decision for every image and caption of the global batch (SigLIP, section 3.2)."""

    name: Literal["sigmoid"]
    temperature: Temperature = Field(0.1, description="divisor of the similarities (SigLIP begins with 0.1)")
    bias: Float = Field(-10.0, ge=-100, le=100, description="added to the quotients (SigLIP begins with -10)")
    learned: bool = Field(False, description="learn temperature and bias, from these values on (SigLIP)")


class ComplementaryLoss(Loss):
    """Cross-entropy of pairs as far as they are trusted, and a robust loss of their negatives (CRCL)."""

    name: Literal["complementary"]
    temperature: Temperature = Field(0.05, description="divisor of the similarities (CRCL: 0.05)")
    trusting: DurationField = Field(description="start with full trust in every pair (CRCL: 2 epochs)")

    def options_at(self, step: int, steps_per_epoch: int) -> dict[str, Any]:
        """Return the keyword arguments at a step: at first every pair is trusted."""
        return {**self.options(), "trusting": step < self.trusting.steps(steps_per_epoch)}


def _default(settings: Loss, field: str) -> Any:
    """Return the value that a setting has if it is left out."""
    return type(settings).model_fields[field].default
