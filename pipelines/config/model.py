"""Settings of the model and of the words that it knows."""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator

from pipelines.kinds import KINDS, ImageEncoderConfig, TextEncoderConfig
from pipelines.schema.fields import Int, Strict


class ModelConfig(Strict):
    """The two sides of the model."""

    embed_dim: Int = Field(gt=0, multiple_of=2, description="width of the joint space (papers: 1024)")
    image: ImageEncoderConfig = Field(description="image encoder")
    text: TextEncoderConfig = Field(description="text encoder")

    @model_validator(mode="after")
    def _sides_fit(self) -> ModelConfig:
        for kind in KINDS:
            if (self.image.name == kind.image) != (self.text.name == kind.text):
                raise ValueError(
                    f"image.name {kind.image!r} and text.name {kind.text!r} go together ({kind.title}); got "
                    f"{self.image.name!r} and {self.text.name!r}"
                )
        return self

    def specification(self) -> dict[str, Any]:
        """Return the keyword arguments of `vse_core.models.build_model` besides the sizes that the data decide."""
        return {"embed_dim": self.embed_dim, "image": self.image.options(), "text": self.text.options()}


class VocabularyConfig(Strict):
    """The words of a BiGRU text encoder; BERT brings its own."""

    min_count: Int = Field(4, gt=0, description="occurrences in the training captions that make a word known (SCAN)")
