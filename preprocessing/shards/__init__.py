"""The file format: feature shards are tar files with a sidecar index, written once and read at random."""
