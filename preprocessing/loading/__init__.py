"""From shards to batches: the sampler, the loader, and images as the encoders read them."""
