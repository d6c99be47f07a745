"""A training of seconds, for tests that start and kill it as a user would."""

TINY = [
    "dataset.images={train: 60, dev: 20}",
    "features.shard_size=50",
    "model.embed_dim=32",
    "model.text.word_dim=16",
    "training.epochs=3",
    "training.batch_size=32",
    "training.log_steps=1",
    "training.checkpoint_minutes=0",
]
STEPS = 3 * 10
"""Optimiser steps: 300 captions in batches of 30."""
