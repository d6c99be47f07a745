"""UniVSE: the settings of its encoders and its loss."""

from collections.abc import Iterator
from typing import Any, ClassVar, Literal

from pydantic import Field

from pipelines.kinds.kind import ModelKind
from pipelines.schema.encoders import GRUStart, SetEncoder, WordReader
from pipelines.schema.fields import DurationField, Float, Size, Temperature, Weight
from pipelines.schema.losses import MarginLoss
from pipelines.schema.pooling import PoolingConfig
from preprocessing.captions import pools

# Raised when the same captions and settings would give other negatives or another loss.
COMPONENTS_VERSION = 2


class RegionImageEncoderConfig(SetEncoder):
    """From a set of features to a vector for each of them and one for all (UniVSE); goes with `components`."""

    partner: ClassVar[str | None] = "components"

    name: Literal["regions"]
    pooling: PoolingConfig = Field(description="aggregator of the projected features (UniVSE: kmax, 10 of 49)")


class ComponentTextEncoderConfig(WordReader):
    """From a caption, its objects, attributes and relations to one vector (UniVSE); goes with `regions`."""

    partner: ClassVar[str | None] = "regions"

    name: Literal["components"]
    word_dim: Size = Field(description="width of the basic word vectors (UniVSE: 300)")
    modifier_dim: Size = Field(description="width of the modifier vectors, learned from random ones (UniVSE: 100)")
    train_words: bool = Field(description="fine-tune the basic word vectors (UniVSE keeps GloVe's as they are)")
    relations: Literal["words", "joined"] = Field("words", description="read relations word by word, or as one word")
    numerals: bool = Field(False, description='take numbers for attributes, "two dogs" (UniVSE\'s appendix: nummod)')
    surface_words: bool = Field(
        False,
        exclude_if=lambda surface: not surface,
        description="read components in the words of the sentence, which then share vectors with it, instead of base "
        "forms (as the public re-implementation)",
    )
    start: GRUStart = Field("orthogonal_bias", description="initial weights of the GRU, as `bigru` has them")
    pooling: PoolingConfig | None = Field(
        None, exclude_if=lambda pooling: pooling is None, description="of a BiGRU for sentences, beyond the paper"
    )
    alpha: Float = Field(ge=0, le=1, description="share of the sentence in a caption's vector (UniVSE: 0.75)")

    def _misfits(self) -> Iterator[str]:
        if not self.train_words and self.word_vectors is None:
            yield "train_words: without word_vectors the words would all stay zero; set it to true"


class UnifiedLoss(MarginLoss):
    """Sentences and their components against images, objects and attributes against regions (UniVSE, equations 1-4)."""

    plateau_values: ClassVar[tuple[str, ...]] = ("part/sent",)

    name: Literal["unified"]
    component_weight: Weight = Field(description="weight of a caption's components taken together (UniVSE: 0.5)")
    object_weight: Weight = Field(description="weight of objects (UniVSE: 0.5)")
    attribute_weight: Weight = Field(description="weight of attributes (UniVSE: 0.5)")
    relation_weight: Weight = Field(description="weight of relations (UniVSE: 1)")
    relations_after: DurationField = Field(description="train without relations for so long (UniVSE: 2 epochs)")
    object_negatives: Size = Field(description="other nouns an object is contrasted with (UniVSE: 16)")
    attribute_negatives: Size = Field(description="exchanges of an adjective, and of its noun (UniVSE: 8)")
    relation_negatives: tuple[Size, Size, Size] = Field(
        description="exchanges of subject, relation and object (UniVSE: 2, 4, 2)"
    )
    negatives_from: Literal["uniform", "captions"] = Field(
        "uniform",
        exclude_if=lambda source: source == "uniform",
        description="draw the words of negatives equally often, or as training captions use them: a noun's adjectives, "
        "colours for colours, nothing that may be true as well (beyond the paper)",
    )
    relevance_temperature: Temperature = Field(
        1.0, description="of the regions' relevance to an object (UniVSE: 1, nearly even; its figure 6: 0.1)"
    )

    def options(self) -> dict[str, Any]:
        """Return the keyword arguments of `vse_core.losses.unified.UnifiedLoss` but those that change."""
        weights = {"component_weight", "object_weight", "attribute_weight"}
        return self.model_dump(include={"margin", "mask_same_image", "relevance_temperature", *weights})

    def options_at(self, step: int, steps_per_epoch: int) -> dict[str, Any]:
        """Return the keyword arguments at a step: all negatives first, then the hardest; relations after a while."""
        has_relations = step >= self.relations_after.steps(steps_per_epoch)
        weight = self.relation_weight if has_relations else 0.0
        return {**super().options_at(step, steps_per_epoch), "relation_weight": weight}


UNIVSE = ModelKind(
    "UniVSE",
    "pipelines.kinds.unified_behaviour",
    loss="unified",
    text="components",
    reads_graphs=True,
    versions={"components": COMPONENTS_VERSION, "pools": pools.VERSION},
)
