"""Captions as token ids: words or pieces of words, and augmentation by (seed, epoch, sample)."""

from preprocessing.captions.encoder import CaptionEncoder, load_caption_encoder, save_caption_encoder
from preprocessing.captions.subwords import SubwordTokenizer, TokenizerError
from preprocessing.captions.vocabulary import Vocabulary, VocabularyError, tokenize

__all__ = [
    "CaptionEncoder",
    "SubwordTokenizer",
    "TokenizerError",
    "Vocabulary",
    "VocabularyError",
    "load_caption_encoder",
    "save_caption_encoder",
    "tokenize",
]
