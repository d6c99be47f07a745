"""VSE-C: two-tower models trained against wrong captions; their settings."""

from typing import Any, ClassVar, Literal

from pydantic import Field

from pipelines.kinds.kind import ModelKind
from pipelines.schema.fields import DurationField, Size
from pipelines.schema.losses import HingeLoss
from preprocessing.captions.adversarial import VERSION


class VseCLoss(HingeLoss):
    """Triplet loss, and a hinge against adversarial captions (VSE-C)."""

    # Without that of the adversarial captions, which a batch may lack.
    plateau_values: ClassVar[tuple[str, ...]] = ("part/image_to_text", "part/text_to_image")

    name: Literal["vse_c"]
    adversarial_after: DurationField = Field(description="start without wrong captions (VSE-C: 1 epoch)")
    attack: Literal["all", "noun", "numeral", "relation"] = Field(
        "all", exclude_if=lambda attack: attack == "all", description="kind of the wrong captions (VSE-C: one a model)"
    )
    adversarial_captions: Size = Field(5, description="wrong captions drawn a caption and step (VSE-C: 5)")

    def options(self) -> dict[str, Any]:
        """Return the keyword arguments of `vse_core.losses.adversarial.AdversarialLoss` but the negatives."""
        return self.model_dump(include={"margin", "reduction", "mask_same_image"})


VSE_C = ModelKind(
    "VSE-C",
    "pipelines.kinds.adversarial_behaviour",
    loss="vse_c",
    reads_graphs=True,
    versions={"adversarials": VERSION},
)
