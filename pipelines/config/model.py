"""Settings of the model and of the words that it knows."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import Field, model_validator

from pipelines.kinds import ImageEncoderConfig, TextEncoderConfig
from pipelines.schema.encoders import both_sides
from pipelines.schema.fields import Int, Size, Strict


class ModelConfig(Strict):
    """The two sides of the model; `{name: dual_encoder, weights: ...}` stands for both of a pretrained dual encoder."""

    embed_dim: Size | None = Field(
        None, multiple_of=2, description="width of the joint space (papers: 1024); a dual encoder has its own"
    )
    image: ImageEncoderConfig = Field(description="image encoder")
    text: TextEncoderConfig = Field(description="text encoder")

    _written_out = model_validator(mode="before")(both_sides)

    def _misfits(self) -> Iterator[str]:
        image, text = self.image, self.text
        if image.partner not in (None, text.name) or text.partner not in (None, image.name):
            pairs = [f"image.name {image.name!r} and text.name {image.partner!r}"] if image.partner else []
            pairs += [f"image.name {text.partner!r} and text.name {text.name!r}"] if text.partner else []
            yield f"{', and '.join(pairs)} go together; got {image.name!r} and {text.name!r}"
        if (self.embed_dim is None) != self.text.own_space:
            yield "embed_dim: give the width of the joint space, of a dual encoder alone leave it out"

    def missing_file(self) -> str | None:
        """Return the setting whose file is missing, with what to do; None if all are there."""
        image = "model" if self.image.own_space else "model.image"
        found = ((image, self.image.missing_file()), ("model.text", self.text.missing_file()))
        return next((f"{side}.{missing}" for side, missing in found if missing), None)

    def begins_with(self, initial: Path | None) -> str:
        """Describe the weights that training begins with; `initial` is the folder of an earlier model, if any."""
        if initial is not None:
            return "the weights of an earlier model"
        image, text = self.image.model_dump(mode="json"), self.text.model_dump(mode="json")
        if self.text.own_space:
            updates = f", with new low-rank updates (LoRA, rank {image['lora']['rank']})" if image["lora"] else ""
            return f"the pretrained dual encoder `{image['weights']}`{updates}"
        weights = {"image": image.get("weights"), "text": text.get("weights")}
        found = [f"the pretrained {side} network `{name}`" for side, name in weights.items() if name]
        if text.get("word_vectors"):
            found.append(f"the word vectors `{text['word_vectors']}`")
        return f"{' and '.join(found)}, else random weights" if found else "random weights"

    def untrained(self, initial: Path | None) -> str:
        """Return what a model is called that has not been trained (`training.epochs: 0`)."""
        if initial is not None:
            return "the earlier model as it is"
        return "zero-shot" if self.text.own_space else "untrained"

    def specification(self) -> dict[str, Any]:
        """Return the keyword arguments of `vse_core.models.build_model` besides the sizes that the data decide."""
        return {"embed_dim": self.embed_dim, "image": self.image.options(), "text": self.text.options()}

    def rate_factors(self) -> dict[str, float]:
        """Return the factors of the learning rate for parts of the model."""
        sides = {"text_encoder": self.text, "image_encoder": self.image}
        return {f"{side}.{name}": factor for side, own in sides.items() for name, factor in own.rate_factors().items()}


class VocabularyConfig(Strict):
    """The words of a BiGRU text encoder; BERT brings its own."""

    min_count: Int = Field(4, gt=0, description="occurrences in the training captions that make a word known (SCAN)")
