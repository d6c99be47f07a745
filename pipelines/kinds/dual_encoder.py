"""Dual encoders (CLIP, SigLIP): the settings of both sides of a pretrained model that is used as it was published."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from pipelines.schema.encoders import Encoder
from pipelines.schema.fields import Float, Size, Strict, folder_or_hub_name

NAME = "dual_encoder"

_Weights = Annotated[str, AfterValidator(folder_or_hub_name)]
_WEIGHTS = Field(
    description="local folder as transformers writes it (*.safetensors, config.json, processor_config.json or "
    "preprocessor_config.json, tokenizer.json); or a name on the hub (openai/clip-vit-base-patch32, "
    "google/siglip-base-patch16-224)"
)


class LoraConfig(Strict):
    """Low-rank updates of the attention's projections, the only parameters that are trained (Hu et al. 2021)."""

    rank: Size = Field(8, description="of the updates")
    alpha: Float = Field(16.0, gt=0, le=1e4, description="the updates are multiplied by alpha / rank")
    dropout: Float = Field(0.0, ge=0, lt=1, description="share of the values before an update that training leaves out")


class DualImageEncoderConfig(Encoder):
    """The vision tower of a dual encoder; goes with its text tower. Write `model: {name: dual_encoder, weights: ...}`
    for both.
    """

    name: Literal["dual_encoder"]
    weights: _Weights = _WEIGHTS
    lora: LoraConfig | None = Field(
        None, description="train low-rank updates of both towers; by default all parameters are trained"
    )


class DualTextEncoderConfig(Strict):
    """The text tower of a dual encoder, with its tokenizer."""

    name: Literal["dual_encoder"]
    weights: _Weights = _WEIGHTS

    def options(self) -> dict[str, Any]:
        """Return the keyword arguments of `vse_core.models.build_model`: the image side brings the weights of both."""
        return {"name": self.name}


def both_sides(settings: Any) -> Any:
    """Write `{name: dual_encoder, weights, lora}` out as an image and a text side; other settings stay as they are."""
    if not isinstance(settings, dict) or "name" not in settings:
        return settings
    unknown = sorted(settings.keys() - {"name", "weights", "lora"})
    if settings["name"] != NAME or "weights" not in settings or unknown:
        raise ValueError(
            f"a model by name is {{name: {NAME}, weights: FOLDER_OR_HUB_NAME, lora: {{...}}}}, got "
            f"{', '.join(f'{key}: {settings[key]}' for key in ('name', *unknown))}"
            f"{'' if 'weights' in settings else ' without weights'}"
        )
    side = {"name": NAME, "weights": settings["weights"]}
    return {"image": {**side, "lora": settings.get("lora")}, "text": side}
