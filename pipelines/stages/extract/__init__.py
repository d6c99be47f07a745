"""Stage 1, extract: images become feature shards."""
