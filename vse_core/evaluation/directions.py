"""Ranking in any direction with any relevant items: images of several captions, captions or images among each other.

For plain image-text retrieval, in which every caption has one image, `rank_retrieval` finds both directions at once.
"""

from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor

from vse_core.evaluation.members import Member, compare, comparisons, mean_similarities, unified_members
from vse_core.evaluation.nearest import best_pair_similarities
from vse_core.evaluation.ranks import Ranks, RelevantItems, rank_queries
from vse_core.outputs import Images, Texts
from vse_core.similarity import similarity_matrix

# B images, C captions, K views, D embedding, Q queries; q those of a chunk, N the gallery.

# Queries, then gallery: image to text, text to image, text to text, image to image.
Direction = Literal["i2t", "t2i", "t2t", "i2i"]
DIRECTIONS: tuple[Direction, ...] = get_args(Direction)


def rank_direction(
    members: Sequence[Member], direction: Direction, relevant_items: RelevantItems, queries_Q: Tensor | None = None
) -> Ranks:
    """Rank a gallery of images or captions for queries of either kind, each by its best relevant item.

    Similarity is the maximum over views, of images with each other over the pairs of their views, and the mean over
    the members of an ensemble. Within one kind a query is not in its own gallery. Differs from the released code of
    VSE-infinity, which gives a query the similarity 0 with itself, and so ranks it before whatever has a negative one.

    Args:
        members: each model's output for images and captions.
        direction: kind of the queries and kind of the gallery.
        relevant_items: of each of the Q queries at least one, which within one kind is not the query itself.
        queries_Q: which images or captions are the queries; None: all.

    Raises:
        ValueError: a query has no relevant item, an item is not in the gallery, or the direction is within one kind and
            a member has no embeddings.
    """
    pairs = unified_members(members)
    ends = {"i": len(pairs[0][0]), "t": len(pairs[0][1])}
    asked_Q = torch.arange(ends[direction[0]]) if queries_Q is None else queries_Q
    views = max(comparisons(*pair) for pair in pairs) if "i" in direction else 1

    def similarities(run: slice) -> Tensor:
        queries_q = asked_Q[run]
        sims_qN = mean_similarities(pairs, lambda images, texts: _similarities(images, texts, direction, queries_q))
        if direction[0] == direction[-1]:
            sims_qN[torch.arange(len(sims_qN)), queries_q] = -torch.inf
        return sims_qN

    return rank_queries(similarities, relevant_items, ends[direction[-1]], views**2 if direction == "i2i" else views)


def _similarities(images: Images, texts: Texts, direction: Direction, queries_q: Tensor) -> Tensor:
    if direction == "i2t":
        return compare(images[queries_q], texts)
    if direction == "t2i":
        return compare(images, texts[queries_q]).T
    if not (isinstance(images, Tensor) and isinstance(texts, Tensor)):
        raise ValueError(f"direction {direction!r}: a model without embeddings compares images with captions alone")
    if direction == "t2t":
        return similarity_matrix(texts[queries_q].unsqueeze(1), texts)
    return best_pair_similarities(images[queries_q], images)
