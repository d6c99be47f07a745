"""What is made of the training captions before training: the vocabulary or tokenizer, and what negatives come from."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.config import PipelineConfig
from pipelines.runtime.stage import StageError

if TYPE_CHECKING:
    from preprocessing.captions.encoder import CaptionEncoder
    from preprocessing.shards.reader import ShardReader


def prepare(
    config: PipelineConfig, train: ShardReader, evaluation: ShardReader, graphs: Path | None, directory: Path
) -> tuple[dict[str, float], int]:
    """Check that the shards can feed the run, and write what turns captions into tokens and components.

    Args:
        config: the pipeline's configuration.
        train: the training split.
        evaluation: the split that is evaluated after every epoch.
        graphs: directory of the graphs of the training captions, where the model or the loss reads them.
        directory: for what is written, the output of the training stage.

    Returns:
        Figures about the captions' tokens for the manifest, and the optimiser steps of the whole run.

    Raises:
        StageError: the split is too small, or the captions' encoder cannot be made.
    """
    from pipelines.inference.text_inputs import role_graph_table
    from preprocessing.captions.encoder import save_caption_encoder
    from preprocessing.loading.sampler import BatchSampler

    batch, workers = config.training.batch_size, config.training.most_workers
    if train.num_captions < batch:
        raise StageError(
            f"train: the split {config.dataset.train_split} holds {train.num_captions} captions, fewer "
            f"than training.batch_size {batch}: lower it or add data"
        )
    if workers > batch // 2 or workers > len(evaluation):
        raise StageError(
            f"train: training.workers {workers} are too many for batches of {batch} pairs and "
            f"{len(evaluation)} images of {config.dataset.eval_split}: lower it"
        )
    text = config.model.text
    if text.name == "role_graphs":
        # What is wrong with them is to be known here, and not in every process of the training.
        for reader in (train, evaluation):
            role_graph_table(text.graphs, reader)
    caption_encoder, facts = build_caption_encoder(config, train, graphs, directory)
    save_caption_encoder(caption_encoder, directory)
    if graphs is not None:
        facts |= _write_negatives(config, train, graphs, directory)
    sampler = BatchSampler(train.num_captions, batch, config.seed)
    return facts, config.training.epochs * config.training.steps_per_epoch(sampler.steps_per_epoch)


def build_caption_encoder(
    config: PipelineConfig, reader: ShardReader, graphs: Path | None, directory: Path
) -> tuple[CaptionEncoder, dict[str, float]]:
    """The vocabulary of the training captions, or the tokenizer of BERT's weights; with figures about it.

    UniVSE's vocabulary holds the words of the captions' components as well; HGR's words are those between spaces.

    Args:
        config: the pipeline's configuration.
        reader: the training split.
        graphs: directory of its captions' graphs, or None.
        directory: where word vectors are written, if the text encoder begins with any.

    Raises:
        StageError: there is no word, or no tokenizer or word vectors where the configuration says.
    """
    from preprocessing.captions.spaced_words import SpacedWords
    from preprocessing.captions.vocabulary import Vocabulary, VocabularyError
    from preprocessing.captions.word_vectors import WordVectors, WordVectorsError, read_word_vectors
    from preprocessing.captions.wordpiece import WordPiece, WordPieceError

    text = config.model.text
    try:
        if text.name == "bert":
            tokenizer = WordPiece.from_pretrained(text.weights)
            return tokenizer, {"vocabulary_size": len(tokenizer)}
        minimum = config.vocabulary.min_count
        spaced = SpacedWords.build(_captions(reader), minimum) if config.model.is_hierarchical else None
        words = _component_words(reader, graphs, minimum) if graphs is not None and config.model.is_unified else ()
        vocabulary = Vocabulary.build(_captions(reader), minimum, words) if spaced is None else spaced.vocabulary
        facts: dict[str, float] = {"vocabulary_size": len(vocabulary)}
        if text.word_vectors is not None:
            vectors = read_word_vectors(text.word_vectors, vocabulary, text.word_dim)
            vectors.save(directory / WordVectors.FILE)
            facts["word_vector_coverage"] = round(vectors.coverage, 4)
    except (VocabularyError, WordPieceError, WordVectorsError) as error:
        raise StageError(f"train: {error}") from error
    return vocabulary if spaced is None else spaced, facts


def _component_words(reader: ShardReader, graphs: Path, minimum: int) -> list[str]:
    """The words of components that are frequent enough."""
    from pipelines.inference.text_inputs import graphs_of
    from preprocessing.captions.components import component_words

    return component_words(itertools.chain.from_iterable(graphs_of(graphs, reader)), minimum)


def _write_negatives(config: PipelineConfig, reader: ShardReader, graphs: Path, directory: Path) -> dict[str, float]:
    """Write what negatives are drawn from, pools of words and VSE-C's adversarial captions; figures about them."""
    from pipelines.inference.text_inputs import graphs_of
    from pipelines.training.negatives import ADVERSARIAL, write_adversarial_texts
    from preprocessing.captions.pools import Pools, PoolsError

    try:
        pools = Pools.build(itertools.chain.from_iterable(graphs_of(graphs, reader)))
    except PoolsError as error:
        raise StageError(f"train: {error}") from error
    pools.save(directory / Pools.FILE)
    if config.loss.name != "vse_c":
        return {}
    report = write_adversarial_texts(graphs, pools, config.seed, directory / ADVERSARIAL)
    return {
        "adversarial_captions": report.adversarials,
        # Of three attacks on every caption.
        "adversarial_attacks": report.captions,
        "adversarial_attacks_impossible": sum(report.impossible.values()),
    }


def _captions(reader: ShardReader) -> Iterator[str]:
    return itertools.chain.from_iterable((caption["text"] for caption in meta["captions"]) for meta in reader.metas())
