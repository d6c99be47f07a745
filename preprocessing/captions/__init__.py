"""Captions as token ids: words or pieces of words, augmentation by (seed, epoch, sample), and their parser."""
