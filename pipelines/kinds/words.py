"""The words of training captions: the vocabulary or tokenizer of a run, and its word vectors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pipelines.runtime.stage import StageError
from pipelines.schema.encoders import WordReader

if TYPE_CHECKING:
    from pipelines.kinds.inputs import KindSettings
    from preprocessing.captions.encoder import CaptionEncoder
    from preprocessing.shards.reader import ShardReader

    Words = TypeVar("Words", bound=CaptionEncoder)


def build_caption_encoder(
    settings: KindSettings, reader: ShardReader, directory: Path
) -> tuple[CaptionEncoder, dict[str, float]]:
    """Return the vocabulary of the training captions, or the tokenizer of pretrained weights; with figures about it.

    Raises StageError where there is no word, or no tokenizer or word vectors where the configuration says.
    """
    from preprocessing.captions.subwords import SubwordTokenizer, TokenizerError
    from preprocessing.captions.vocabulary import Vocabulary

    text = settings.text
    if text.name != "bert" and text.name != "dual_encoder":
        return build_words(settings, directory, lambda count: Vocabulary.build(reader.texts(), count))
    try:
        tokenizer = SubwordTokenizer.from_pretrained(text.weights, for_tower=text.name == "dual_encoder")
    except TokenizerError as error:
        raise StageError(f"train: {error}") from error
    return tokenizer, {"vocabulary_size": len(tokenizer)}


def build_words(
    settings: KindSettings, directory: Path, build: Callable[[int], Words]
) -> tuple[Words, dict[str, float]]:
    """Return the words of the training captions, with figures about them; writes their vectors if the settings name
    any.

    `build` makes the words from the smallest count. Raises StageError where there is no word, or no file of word
    vectors.
    """
    from preprocessing.captions.vocabulary import VocabularyError
    from preprocessing.captions.word_vectors import WordVectors, WordVectorsError, read_word_vectors

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
