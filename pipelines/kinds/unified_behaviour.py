"""UniVSE: the components of captions, from their scene graphs, and the negatives that they are contrasted with."""

import itertools
from pathlib import Path
from typing import Any

from pipelines.kinds import TextEncoderConfig
from pipelines.kinds.behaviour import Behaviour, TextInputs
from pipelines.kinds.component_embedder import ComponentEmbedder, read_parser, write_parser
from pipelines.kinds.inputs import KindSettings, SplitData
from pipelines.kinds.scene_graphs import graphs_of, require_graphs, write_pools
from pipelines.kinds.unified import COMPONENTS_VERSION, ComponentTextEncoderConfig, UnifiedLoss
from pipelines.kinds.words import build_words
from pipelines.runtime.stage import StageError
from preprocessing.captions.components import ComponentTable, component_words
from preprocessing.captions.encoder import CaptionEncoder
from preprocessing.captions.negatives import NegativeSampler, NegativesError
from preprocessing.captions.pools import Pools, PoolsError
from preprocessing.captions.vocabulary import Vocabulary
from preprocessing.loading.batch import component_tensors
from preprocessing.loading.loader import CaptionInputs
from vse_core.encoders.components import ComponentEncoder
from vse_core.models import Model
from vse_core.models.unified import Components, UnifiedModel


def _prepare(
    settings: KindSettings, train: SplitData, evaluation: SplitData, run: Path
) -> tuple[CaptionEncoder, dict[str, float]]:
    text = _settings(settings.text)

    def build(count: int) -> Vocabulary:
        graphs = itertools.chain.from_iterable(graphs_of(train, text.surface_words))
        words = component_words(graphs, count, text.numerals, text.relations)
        return Vocabulary.build(train.reader.texts(), count, words)

    words, facts = build_words(settings, run, build)
    write_pools(settings, train, run)
    return words, facts


def _tables_identity(settings: KindSettings, split: SplitData) -> dict[str, Any]:
    text = _settings(settings.text)
    read = {"numerals": text.numerals, "relations": text.relations}
    read |= {"surface_words": True} if text.surface_words else {}
    return {"components": COMPONENTS_VERSION, "graphs": require_graphs(split).name, **read}


def _write_tables(settings: KindSettings, split: SplitData, caption_encoder: CaptionEncoder, directory: Path) -> None:
    _components(split, _vocabulary(caption_encoder), _settings(settings.text)).save(directory)


def _train_inputs(
    settings: KindSettings, train: SplitData, caption_encoder: CaptionEncoder, run: Path
) -> CaptionInputs:
    """Return the sampler of negatives, from the pools in a run's directory; StageError if words are too few."""
    loss, vocabulary = settings.loss, _vocabulary(caption_encoder)
    assert isinstance(loss, UnifiedLoss)
    counts = (loss.object_negatives, (loss.attribute_negatives, loss.attribute_negatives), loss.relation_negatives)
    try:
        pools, table = Pools.load(run / Pools.FILE), _components(train, vocabulary, _settings(settings.text))
        sampler = NegativeSampler(table, pools, vocabulary, settings.seed, *counts, loss.negatives_from)
    except (NegativesError, PoolsError) as error:
        raise StageError(f"train: {error}") from error
    return lambda captions_B, epoch, longest: component_tensors(sampler.batch(captions_B, epoch))


def _text_inputs(
    text: TextEncoderConfig, split: SplitData, caption_encoder: CaptionEncoder, model: Model
) -> TextInputs:
    assert isinstance(model, UnifiedModel)
    table = _components(split, _vocabulary(caption_encoder), model.text_encoder)
    return lambda captions_C, longest: (Components(**component_tensors(table.select(captions_C))),)


def _component_embedder(model: Model, caption_encoder: CaptionEncoder, directory: Path) -> ComponentEmbedder:
    assert isinstance(model, UnifiedModel)
    return ComponentEmbedder(model, _vocabulary(caption_encoder), read_parser(directory))


def _vocabulary(caption_encoder: CaptionEncoder) -> Vocabulary:
    """Return the words that components are looked up in; StageError if the model reads pieces of words."""
    if caption_encoder.vocabulary is None:
        raise StageError("UniVSE looks components up by their words, and this model reads pieces of words")
    return caption_encoder.vocabulary


def _components(
    split: SplitData, vocabulary: Vocabulary, text: ComponentTextEncoderConfig | ComponentEncoder
) -> ComponentTable:
    """Return the components of a split's captions, mapped if training has written them, else of their graphs."""
    if split.tables is not None:
        return ComponentTable.load(split.tables, vocabulary, text.relations)
    return ComponentTable.build(graphs_of(split, text.surface_words), vocabulary, text.numerals, text.relations)


def _settings(text: TextEncoderConfig) -> ComponentTextEncoderConfig:
    assert isinstance(text, ComponentTextEncoderConfig)
    return text


BEHAVIOUR = Behaviour(
    prepare=_prepare,
    tables_identity=_tables_identity,
    write_tables=_write_tables,
    train_inputs=_train_inputs,
    step_inputs=lambda loss, batch, step, steps_per_epoch: (Components(**batch.extra),),
    text_inputs=_text_inputs,
    save_sidecars=lambda directory, settings: write_parser(directory, settings.parser),
    component_embedder=_component_embedder,
)
