"""Evaluation: embeddings of a split, and retrieval metrics exact to the tie."""

from vse_core.evaluation.adversarial import AttackResult, evaluate_attack
from vse_core.evaluation.bootstrap import compare_ranks, compare_retrieval, retrieval_intervals
from vse_core.evaluation.dependency import DependencyResult, evaluate_dependencies
from vse_core.evaluation.directions import rank_direction
from vse_core.evaluation.embedding import embed_halves, embed_images, embed_texts
from vse_core.evaluation.protocols import RETRIEVAL_PROTOCOLS, VIDEO_PROTOCOLS
from vse_core.evaluation.ranks import Ranks, RelevantItems
from vse_core.evaluation.recall import (
    DirectionMetrics,
    RetrievalRanks,
    RetrievalResult,
    chance_rsum,
    direction_metrics,
    evaluate_ensemble,
    evaluate_retrieval,
    rank_retrieval,
)
from vse_core.evaluation.unified import UnifiedResult, evaluate_unified

__all__ = [
    "RETRIEVAL_PROTOCOLS",
    "VIDEO_PROTOCOLS",
    "AttackResult",
    "DependencyResult",
    "DirectionMetrics",
    "Ranks",
    "RelevantItems",
    "RetrievalRanks",
    "RetrievalResult",
    "UnifiedResult",
    "chance_rsum",
    "compare_ranks",
    "compare_retrieval",
    "direction_metrics",
    "embed_halves",
    "embed_images",
    "embed_texts",
    "evaluate_attack",
    "evaluate_dependencies",
    "evaluate_ensemble",
    "evaluate_retrieval",
    "evaluate_unified",
    "rank_direction",
    "rank_retrieval",
    "retrieval_intervals",
]
