"""The words of training captions: the vocabulary or tokenizer of a run, and its word vectors."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from pipelines.kinds.inputs import KindSettings
from pipelines.runtime.stage import StageError
from pipelines.schema.encoders import WordReader
from preprocessing.captions.encoder import CaptionEncoder
from preprocessing.captions.open_clip import OpenClipTokenizer
from preprocessing.captions.subwords import SubwordTokenizer
from preprocessing.captions.vocabulary import Vocabulary, VocabularyError
from preprocessing.captions.word_vectors import WordVectors, WordVectorsError, read_word_vectors
from preprocessing.shards.reader import ShardReader
from vse_core.hub import open_clip_source, require_on_hub

Words = TypeVar("Words", bound=CaptionEncoder)


def build_caption_encoder(
    settings: KindSettings, reader: ShardReader, directory: Path
) -> tuple[CaptionEncoder, dict[str, float]]:
    """Return the words or pretrained tokenizer of training captions, with figures about it; raises as `build_words`."""
    text = settings.text
    if text.tokenizer is None:
        return build_words(settings, directory, lambda count: Vocabulary.build(reader.texts(), count))
    try:
        tokenizer = pretrained_tokenizer(text.tokenizer, text.own_space)
    except ValueError as error:
        raise StageError(f"train: {error}") from error
    return tokenizer, {"vocabulary_size": len(tokenizer)}


def pretrained_tokenizer(weights: str, for_tower: bool) -> CaptionEncoder:
    """Return the tokenizer of pretrained weights, with `for_tower` that of a dual encoder; ValueError if none loads."""
    require_on_hub(weights)
    source = open_clip_source(weights) if for_tower else None
    return OpenClipTokenizer.from_pretrained(source) if source else SubwordTokenizer.from_pretrained(weights, for_tower)


def build_words(
    settings: KindSettings, directory: Path, build: Callable[[int], Words]
) -> tuple[Words, dict[str, float]]:
    """Return the words of the training captions, with figures about them; writes the vectors that the settings name.

    `build` makes the words from the smallest count. Raises StageError if there is no word, or no file of word vectors.
    """
    text = settings.text
    try:
        words = build(settings.min_count)
        facts: dict[str, float] = {"vocabulary_size": len(words)}
        if isinstance(text, WordReader) and text.word_vectors is not None:
            assert words.vocabulary is not None, "word vectors are of words"
            vectors = read_word_vectors(text.word_vectors, words.vocabulary, text.word_dim)
            vectors.save(directory / WordVectors.FILE)
            facts["word_vector_coverage"] = round(vectors.coverage, 4)
    except (VocabularyError, WordVectorsError) as error:
        raise StageError(f"train: {error}") from error
    return words, facts
