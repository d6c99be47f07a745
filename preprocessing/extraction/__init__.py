"""From records to feature shards."""
