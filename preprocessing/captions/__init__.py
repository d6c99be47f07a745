"""Captions as token ids: words or pieces of words, and augmentation by (seed, epoch, sample)."""

from preprocessing.captions.augment import augment_tokens, augment_words, drop_grids, drop_regions, sample_rng
from preprocessing.captions.encoder import CaptionEncoder, load_caption_encoder, save_caption_encoder
from preprocessing.captions.pipeline import PipelineError, load_pipeline
from preprocessing.captions.subwords import SubwordTokenizer, TokenizerError
from preprocessing.captions.vocabulary import Vocabulary, VocabularyError, tokenize

__all__ = [
    "CaptionEncoder",
    "PipelineError",
    "SubwordTokenizer",
    "TokenizerError",
    "Vocabulary",
    "VocabularyError",
    "augment_tokens",
    "augment_words",
    "drop_grids",
    "drop_regions",
    "load_caption_encoder",
    "load_pipeline",
    "sample_rng",
    "save_caption_encoder",
    "tokenize",
]
