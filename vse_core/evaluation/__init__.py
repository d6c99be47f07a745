"""Evaluation: embeddings of a split, and retrieval metrics exact to the tie."""

from vse_core.evaluation.adversarial import AttackResult, evaluate_attack
from vse_core.evaluation.dependency import DependencyResult, evaluate_dependencies
from vse_core.evaluation.embedding import embed_halves, embed_images, embed_texts
from vse_core.evaluation.recall import (
    DirectionMetrics,
    RetrievalResult,
    chance_rsum,
    evaluate_ensemble,
    evaluate_retrieval,
)
from vse_core.evaluation.unified import UnifiedResult, evaluate_unified

__all__ = [
    "AttackResult",
    "DependencyResult",
    "DirectionMetrics",
    "RetrievalResult",
    "UnifiedResult",
    "chance_rsum",
    "embed_halves",
    "embed_images",
    "embed_texts",
    "evaluate_attack",
    "evaluate_dependencies",
    "evaluate_ensemble",
    "evaluate_retrieval",
    "evaluate_unified",
]
