"""UniVSE: the settings of its encoders and its loss, and the components of captions with their negatives."""

from __future__ import annotations

import itertools
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field, model_validator

from pipelines.kinds.inputs import KindSettings, SplitData
from pipelines.kinds.kind import ModelKind, TextInputs
from pipelines.kinds.scene_graphs import graphs_of, require_graphs, write_pools
from pipelines.runtime.stage import StageError
from pipelines.schema.encoders import Encoder, GRUStart, WordReader
from pipelines.schema.fields import DurationField, Float, Size, Temperature, Weight
from pipelines.schema.losses import MarginLoss
from pipelines.schema.pooling import PoolingConfig

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from torch import Tensor

    from pipelines.kinds import LossConfig, TextEncoderConfig
    from pipelines.kinds.component_embedder import ComponentEmbedder
    from preprocessing.captions.components import ComponentTable, RelationForm
    from preprocessing.captions.encoder import CaptionEncoder
    from preprocessing.captions.negatives import NegativeSampler
    from preprocessing.captions.vocabulary import Vocabulary
    from preprocessing.loading.batch import Batch
    from preprocessing.loading.loader import CaptionInputs
    from vse_core.losses import GlobalLoss
    from vse_core.models import Model

# Raised when the same captions and settings would give other negatives or another loss.
COMPONENTS_VERSION = 2


class RegionImageEncoderConfig(Encoder):
    """From a set of features to a vector for each of them and one for all (UniVSE); goes with `components`."""

    name: Literal["regions"]
    pooling: PoolingConfig = Field(description="aggregator of the projected features (UniVSE: kmax, 10 of 49)")


class ComponentTextEncoderConfig(WordReader):
    """From a caption, its objects, attributes and relations to one vector (UniVSE); goes with `regions`."""

    name: Literal["components"]
    word_dim: Size = Field(description="width of the basic word vectors (UniVSE: 300)")
    modifier_dim: Size = Field(description="width of the modifier vectors, learned from random ones (UniVSE: 100)")
    train_words: bool = Field(description="fine-tune the basic word vectors (UniVSE keeps GloVe's as they are)")
    relations: Literal["words", "joined"] = Field(
        "words", description="read relations word by word, or joined to one word of the vocabulary"
    )
    numerals: bool = Field(
        False, description='take numbers for attributes, "two dogs" (UniVSE\'s appendix: amod or nummod)'
    )
    start: GRUStart = Field("orthogonal_bias", description="initial weights of the GRU, as `bigru` has them")
    pooling: PoolingConfig | None = Field(
        None,
        exclude_if=lambda pooling: pooling is None,
        description="aggregator of the states of a BiGRU that reads sentences, beyond the paper; by default the last "
        "state of the GRU that reads relations",
    )
    alpha: Float = Field(ge=0, le=1, description="share of the sentence in a caption's vector (UniVSE: 0.75)")

    @model_validator(mode="after")
    def _learns_words(self) -> ComponentTextEncoderConfig:
        if not self.train_words and self.word_vectors is None:
            raise ValueError("train_words: without word_vectors the words would all stay zero; set it to true")
        return self


class UnifiedLoss(MarginLoss):
    """Sentences and their components against images, objects and attributes against regions (UniVSE, equations 1-4)."""

    name: Literal["unified"]
    component_weight: Weight = Field(description="weight of a caption's components taken together (UniVSE: 0.5)")
    object_weight: Weight = Field(description="weight of objects (UniVSE: 0.5)")
    attribute_weight: Weight = Field(description="weight of attributes (UniVSE: 0.5)")
    relation_weight: Weight = Field(description="weight of relations (UniVSE: 1)")
    relations_after: DurationField = Field(description="train without relations for so long (UniVSE: 2 epochs)")
    object_negatives: Size = Field(description="other nouns an object is contrasted with (UniVSE: 16)")
    attribute_negatives: Size = Field(
        description="exchanges of the adjective, and as many of the noun, for an attribute (UniVSE: 8)"
    )
    relation_negatives: tuple[Size, Size, Size] = Field(
        description="exchanges of subject, relation and object for a relation (UniVSE: 2, 4, 2)"
    )
    relevance_temperature: Temperature = Field(
        1.0, description="of the regions' relevance to an object (UniVSE: 1, nearly even; its figure 6: 0.1)"
    )

    @property
    def plateau_values(self) -> tuple[str, ...]:
        """The values of sentences, which the plateau is of."""
        return ("part/sent",)

    def options(self) -> dict[str, Any]:
        """Return the keyword arguments of `vse_core.losses.unified.UnifiedLoss` but those that change."""
        weights = {"component_weight", "object_weight", "attribute_weight"}
        return self.model_dump(include={"margin", "mask_same_image", "relevance_temperature", *weights})

    def options_at(self, step: int, steps_per_epoch: int) -> dict[str, Any]:
        """Return the keyword arguments at a step: all negatives first, then the hardest; relations after a while."""
        has_relations = step >= self.relations_after.steps(steps_per_epoch)
        weight = self.relation_weight if has_relations else 0.0
        return {**super().options_at(step, steps_per_epoch), "relation_weight": weight}


class UnifiedKind(ModelKind):
    """UniVSE: captions are read with their components, which are contrasted with negatives in training."""

    title = "UniVSE"
    image: ClassVar[str | None] = "regions"
    text: ClassVar[str | None] = "components"
    loss: ClassVar[str | None] = "unified"
    reads_graphs: ClassVar[bool] = True

    def versions(self) -> dict[str, int]:
        """Return the version of the loss, of what it contrasts components with, and of the pools."""
        from preprocessing.captions import pools

        return {"components": COMPONENTS_VERSION, "pools": pools.VERSION}

    def prepare(
        self, settings: KindSettings, train: SplitData, evaluation: SplitData, directory: Path
    ) -> tuple[CaptionEncoder, dict[str, float]]:
        """Collect the words of captions and of their components, and the pools that negatives are drawn from."""
        from pipelines.kinds.words import build_words
        from preprocessing.captions.components import attribute_kinds, component_words
        from preprocessing.captions.vocabulary import Vocabulary

        def build(count: int) -> Vocabulary:
            graphs = itertools.chain.from_iterable(graphs_of(train))
            text = _settings(settings.text)
            words = component_words(graphs, count, attribute_kinds(text.numerals), text.relations)
            return Vocabulary.build(train.reader.texts(), count, words)

        words, facts = build_words(settings, directory, build)
        write_pools(settings, train, directory)
        return words, facts

    def tables_identity(self, settings: KindSettings, split: SplitData) -> dict[str, Any]:
        """Return the graphs, and how their components are read."""
        text = _settings(settings.text)
        read = {"numerals": text.numerals, "relations": text.relations}
        return {"components": COMPONENTS_VERSION, "graphs": require_graphs(split).name, **read}

    def write_tables(
        self, settings: KindSettings, split: SplitData, caption_encoder: CaptionEncoder, directory: Path
    ) -> None:
        """Write the components of the captions."""
        text = _settings(settings.text)
        _components(split, _vocabulary(caption_encoder), text.numerals, text.relations).save(directory)

    def build_loss(self, name: str, **options: Any) -> GlobalLoss:
        """Build the loss of sentences and components."""
        from vse_core.losses.unified import UnifiedLoss

        return UnifiedLoss(**options)

    def train_inputs(
        self, settings: KindSettings, train: SplitData, caption_encoder: CaptionEncoder, directory: Path
    ) -> CaptionInputs | None:
        """Return the source of the components of a batch's captions, with negatives."""
        sampler = _negative_sampler(settings, train, _vocabulary(caption_encoder), directory)

        def inputs(captions_B: npt.NDArray[np.int64], epoch: int, longest: int) -> dict[str, Tensor]:
            from preprocessing.loading.batch import component_tensors

            components = sampler.batch(captions_B, epoch)
            return component_tensors({field.name: getattr(components, field.name) for field in fields(components)})

        return inputs

    def step_inputs(self, loss: LossConfig, batch: Batch, step: int, steps_per_epoch: int) -> tuple[Any, ...]:
        """Return the components of the batch."""
        from vse_core.models.components import Components

        return (Components(**batch.extra),)

    def text_inputs(
        self, text: TextEncoderConfig, split: SplitData, caption_encoder: CaptionEncoder, model: Model
    ) -> TextInputs:
        """Return the source of captions' components."""
        from preprocessing.loading.batch import component_tensors
        from vse_core.models.components import Components
        from vse_core.models.unified import UnifiedModel

        assert isinstance(model, UnifiedModel)
        encoder = model.text_encoder
        table = _components(split, _vocabulary(caption_encoder), encoder.numerals, encoder.relations)
        return lambda captions_C, longest: (Components(**component_tensors(table.select(captions_C))),)

    def save_sidecars(self, directory: Path, settings: KindSettings) -> None:
        """Write the name of the parser that captions are read with."""
        from pipelines.kinds.component_embedder import write_parser

        write_parser(directory, settings.parser)

    def component_embedder(
        self, model: Model, caption_encoder: CaptionEncoder, directory: Path
    ) -> ComponentEmbedder | None:
        """Return the embedder of components, with the parser that the model was trained with."""
        from pipelines.kinds.component_embedder import ComponentEmbedder, read_parser
        from vse_core.models.unified import UnifiedModel

        assert isinstance(model, UnifiedModel)
        return ComponentEmbedder(model, _vocabulary(caption_encoder), read_parser(directory))


def _vocabulary(caption_encoder: CaptionEncoder) -> Vocabulary:
    """Return the words that components are looked up in; StageError if the model reads pieces of words."""
    if caption_encoder.vocabulary is None:
        raise StageError("UniVSE looks components up by their words, and this model reads pieces of words")
    return caption_encoder.vocabulary


def _components(split: SplitData, vocabulary: Vocabulary, numerals: bool, relations: RelationForm) -> ComponentTable:
    """Return the components of a split's captions, mapped where training has written them, else of their graphs."""
    from preprocessing.captions.components import ComponentTable, attribute_kinds

    if split.tables is not None:
        return ComponentTable.load(split.tables, vocabulary, relations)
    return ComponentTable.build(graphs_of(split), vocabulary, attribute_kinds(numerals), relations)


def _settings(text: TextEncoderConfig) -> ComponentTextEncoderConfig:
    assert isinstance(text, ComponentTextEncoderConfig)
    return text


def _negative_sampler(
    settings: KindSettings, train: SplitData, vocabulary: Vocabulary, directory: Path
) -> NegativeSampler:
    """Return the sampler of negatives, from the pools in a run's directory; StageError if words are too few."""
    from preprocessing.captions.negatives import NegativeCounts, NegativeSampler, NegativesError
    from preprocessing.captions.pools import Pools, PoolsError

    loss = settings.loss
    assert isinstance(loss, UnifiedLoss)
    counts = NegativeCounts(
        loss.object_negatives, loss.attribute_negatives, loss.attribute_negatives, *loss.relation_negatives
    )
    try:
        pools = Pools.load(directory / Pools.FILE)
        text = _settings(settings.text)
        table = _components(train, vocabulary, text.numerals, text.relations)
        return NegativeSampler(table, pools, vocabulary, settings.seed, counts)
    except (NegativesError, PoolsError) as error:
        raise StageError(f"train: {error}") from error
