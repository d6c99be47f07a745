"""Captions as token ids: words, the vocabulary, and augmentation by (seed, epoch, sample)."""

from preprocessing.captions.augment import augment_caption, drop_grids, drop_regions, sample_rng
from preprocessing.captions.tokenize import tokenize
from preprocessing.captions.vocabulary import Vocabulary, VocabularyError

__all__ = [
    "Vocabulary",
    "VocabularyError",
    "augment_caption",
    "drop_grids",
    "drop_regions",
    "sample_rng",
    "tokenize",
]
