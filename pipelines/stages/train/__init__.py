"""Stage 3, train: shards become a model."""
