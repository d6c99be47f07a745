"""Evaluation: embeddings of a split, and retrieval metrics exact to the tie."""

from vse_core.evaluation.embedding import embed_images, embed_texts
from vse_core.evaluation.recall import (
    DirectionMetrics,
    RetrievalResult,
    chance_rsum,
    evaluate_ensemble,
    evaluate_retrieval,
)

__all__ = [
    "DirectionMetrics",
    "RetrievalResult",
    "chance_rsum",
    "embed_images",
    "embed_texts",
    "evaluate_ensemble",
    "evaluate_retrieval",
]
