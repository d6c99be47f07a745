"""Ranks of each query's best relevant item in its gallery: exact under ties, computed tile by tile."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

# Q queries, N items of the gallery, P pairs of a query and an item that is relevant to it; q and n those of one tile.

# Numbers held at once, such as similarities of a chunk of queries with the whole gallery; 64 MiB in float32.
CHUNK_ELEMENTS = 2**24
# Fewer queries at once would leave a matrix product waiting for memory, however large the gallery is.
FEWEST_QUERIES = 64


@dataclass(frozen=True)
class Ranks:
    """The rank of each query's best relevant item, and the item that comes first, `top_Q`.

    The rank of an item, from 0, is the number of items with a higher similarity; among equal ones the later comes
    first, as in the published evaluation code. ``relevant_Q`` is the best relevant item, of equally similar ones the
    last, and ``tied_Q`` whether an irrelevant item has exactly its similarity.
    """

    ranks_Q: Tensor
    tied_Q: Tensor
    relevant_Q: Tensor
    similarity_Q: Tensor
    top_Q: Tensor
    top_similarity_Q: Tensor

    def __len__(self) -> int:
        return len(self.ranks_Q)

    def __getitem__(self, queries: slice | Tensor) -> "Ranks":
        """Return the ranks of some of the queries."""
        return Ranks(**{name: values_Q[queries] for name, values_Q in vars(self).items()})


@dataclass(frozen=True)
class RelevantItems:
    """The items of a gallery relevant to each query, `items_P`; `first_Q1` is where each query's run begins, and P."""

    items_P: Tensor
    first_Q1: Tensor

    @classmethod
    def of_pairs(cls, query_P: Tensor, item_P: Tensor, queries: int) -> "RelevantItems":
        """Sort pairs of a query and an item by query; a pair that is given twice counts once."""
        pairs_P2 = torch.stack([query_P, item_P], dim=1).unique(dim=0)
        counts_Q = torch.bincount(pairs_P2[:, 0], minlength=queries)
        return cls(pairs_P2[:, 1], torch.cat([counts_Q.new_zeros(1), counts_Q.cumsum(0)]))

    @property
    def counts(self) -> Tensor:
        """Number of relevant items of each query."""
        return self.first_Q1.diff()

    def of(self, queries: slice) -> tuple[Tensor, Tensor]:
        """Pairs of a run of queries: the query, counted from the run's first, and the item."""
        counts_q = self.counts[queries]
        query_P = torch.repeat_interleave(torch.arange(len(counts_q), device=counts_q.device), counts_q)
        return query_P, self.items_P[int(self.first_Q1[queries.start]) : int(self.first_Q1[queries.stop])]


class RankAccumulator:
    """Accumulate the ranks of queries' best relevant items over the tiles of a gallery.

    A query's first tile holds all its relevant items; the others follow in any order, each once. A tile is a matrix of
    similarities (q, n) of a run of queries and a run of items; it may be a transposed view.

    A similarity that is not a number counts against the model: a relevant item comes last, an irrelevant one first.
    """

    def __init__(self, queries: int, device: torch.device) -> None:
        # In float64, into which and back from which every similarity goes unchanged.
        lowest_Q = torch.full((queries,), -torch.inf, dtype=torch.float64, device=device)
        none_Q = torch.full((queries,), -1, device=device)
        ranks_Q = torch.zeros_like(none_Q)
        self._found = Ranks(ranks_Q, ranks_Q.bool(), none_Q, lowest_Q, none_Q.clone(), lowest_Q.clone())

    def start(self, tile_qn: Tensor, queries: slice, first_item: int, query_P: Tensor, item_P: Tensor) -> None:
        """Take the tile that holds all relevant items of its run of queries; the run of items begins at ``first_item``.

        ``query_P`` and ``item_P`` are the relevant pairs, counted from the tile's first; every query has a pair.
        """
        self._look_for_top(tile_qn, queries, first_item)
        relevant_P = tile_qn[query_P, item_P]
        worst_P = relevant_P.masked_fill(relevant_P.isposinf(), -torch.inf)
        best_q = torch.full_like(tile_qn[:, 0], -torch.inf).scatter_reduce(0, query_P, worst_P, "amax")
        last_P = torch.where(worst_P == best_q[query_P], item_P + first_item, -1)
        found = self._found[queries]
        found.relevant_Q.scatter_reduce_(0, query_P, last_P, "amax")
        found.similarity_Q.copy_(best_q)
        # The best relevant item is ranked among irrelevant ones: nothing is above or equal to what is not a number.
        tile_qn[query_P, item_P] = relevant_P.masked_fill(~relevant_P.isposinf(), torch.nan)
        self._rank(tile_qn, queries, first_item)
        tile_qn[query_P, item_P] = relevant_P

    def add(self, tile_qn: Tensor, queries: slice, first_item: int) -> None:
        """Take a tile without relevant items of its queries."""
        self._look_for_top(tile_qn, queries, first_item)
        self._rank(tile_qn, queries, first_item)

    def ranks(self) -> Ranks:
        """Return the ranks after the last tile, on the CPU."""
        return Ranks(**{name: values_Q.cpu() for name, values_Q in vars(self._found).items()})

    def _rank(self, tile_qn: Tensor, queries: slice, first_item: int) -> None:
        """Count the items that come before each query's best relevant one: more similar ones, and equal later ones."""
        found = self._found[queries]
        best_q1 = found.similarity_Q.to(tile_qn.dtype).unsqueeze(1)
        # Comparing into floats and adding those up takes a quarter of the time that Booleans take, and is as exact: a
        # tile has fewer than 2**24 columns.
        above_qn = torch.empty_like(tile_qn)
        higher_q = torch.gt(tile_qn, best_q1, out=above_qn).sum(dim=1).long()
        as_high_q = torch.ge(tile_qn, best_q1, out=above_qn).sum(dim=1).long()
        is_tied_q = as_high_q > higher_q
        # Only equals are asked for their order, and they are rare.
        (tied,) = is_tied_q.nonzero(as_tuple=True)
        if len(tied):
            place_n = torch.arange(first_item, first_item + tile_qn.shape[1], device=tile_qn.device)
            is_later_en = place_n > found.relevant_Q[tied].unsqueeze(1)
            higher_q[tied] += ((tile_qn[tied] == best_q1[tied]) & is_later_en).sum(dim=1)
        found.ranks_Q.add_(higher_q)
        found.tied_Q.logical_or_(is_tied_q)

    def _look_for_top(self, tile_qn: Tensor, queries: slice, first_item: int) -> None:
        """Remember the most similar item of each query; of equals the later one."""
        found, highest_q = self._found[queries], tile_qn.amax(dim=1)
        is_equal_and_later_q = (highest_q == found.top_similarity_Q) & (first_item > found.top_Q)
        (new,) = ((highest_q > found.top_similarity_Q) | is_equal_and_later_q).nonzero(as_tuple=True)
        if len(new):
            place_n = torch.arange(first_item, first_item + tile_qn.shape[1], device=tile_qn.device)
            is_top_en = tile_qn[new] == highest_q[new].unsqueeze(1)
            found.top_Q[new] = torch.where(is_top_en, place_n, -1).amax(dim=1)
            found.top_similarity_Q[new] = highest_q[new].double()


def rank_queries(
    similarities: Callable[[slice], Tensor], relevant_items: RelevantItems, items: int, views: int = 1
) -> Ranks:
    """Rank a gallery of N items for queries that have any relevant items in it.

    ``similarities`` returns those of a run of queries with all items, (q, N), as `nan_as_worst` leaves them; -inf takes
    an item out of a query's gallery. Of each query at least one item of the gallery is relevant, else it is a
    ValueError. ``views`` is the number of similarities that are computed for one of the result.
    """
    accumulator = RankAccumulator(len(relevant_items.counts), relevant_items.items_P.device)
    for run in query_runs(relevant_items, items, views):
        accumulator.start(similarities(run), run, 0, *relevant_items.of(run))
    return accumulator.ranks()


def query_runs(relevant_items: RelevantItems, items: int, views: int = 1) -> Iterator[slice]:
    """Yield runs of queries small enough for their similarities with N items; ValueErrors are `rank_queries`'s."""
    queries = len(relevant_items.counts)
    if not queries or int(relevant_items.counts.min()) < 1:
        reason = f"query {int(relevant_items.counts.argmin())} has no relevant item" if queries else "no queries"
        raise ValueError(f"nothing to rank: {reason}; leave out queries that nothing can answer")
    lowest, highest = torch.stack(relevant_items.items_P.aminmax()).tolist()
    if lowest < 0 or highest >= items:
        raise ValueError(f"relevant items must be indices from 0 to {items - 1}; got {lowest} to {highest}")
    size = max(FEWEST_QUERIES, CHUNK_ELEMENTS // (items * views))
    for start in range(0, queries, size):
        yield slice(start, min(start + size, queries))


def nan_as_worst(similarities: Tensor) -> Tensor:
    """Make similarities that are not numbers the highest, in place: no item is found by having none."""
    return similarities.nan_to_num_(nan=torch.inf, posinf=torch.inf, neginf=-torch.inf)
