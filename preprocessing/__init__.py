"""From raw data to shards and batches: dataset readers, feature extractors, captions and shards."""
