"""Evaluation: embeddings of a split, and retrieval metrics exact to the tie."""
