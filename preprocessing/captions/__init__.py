"""Captions as token ids: words or pieces of words, and augmentation by (seed, epoch, sample)."""
