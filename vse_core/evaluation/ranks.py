"""Ranks of each query's best relevant item in its gallery: exact under ties, computed tile by tile."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

# Q queries, N items of the gallery, P pairs of a query and an item that is relevant to it; q and n those of one tile.

# Similarities of a chunk of queries with the whole gallery; 64 MiB in float32.
CHUNK_ELEMENTS = 2**24
# Fewer queries at once would leave a matrix product waiting for memory, however large the gallery is.
FEWEST_QUERIES = 64


@dataclass(frozen=True)
class Ranks:
    """The rank of each query's best relevant item, and the item that comes first, `top_Q`.

    The rank of an item is the number of items with a higher similarity; among equal ones the later comes first, as in
    the published evaluation code.

    Attributes:
        ranks_Q: from 0.
        tied_Q: whether an irrelevant item has exactly the similarity of the best relevant one.
        relevant_Q: that item; of equally similar relevant items the last.
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
        self._ranks_Q = torch.zeros(queries, dtype=torch.int64, device=device)
        self._tied_Q = torch.zeros(queries, dtype=torch.bool, device=device)
        self._relevant_Q = torch.full((queries,), -1, device=device)
        # In float64, into which and back from which every similarity goes unchanged.
        self._similarity_Q = torch.full((queries,), -torch.inf, dtype=torch.float64, device=device)
        self._top_Q = torch.full((queries,), -1, device=device)
        self._top_similarity_Q = torch.full((queries,), -torch.inf, dtype=torch.float64, device=device)

    def start(self, tile_qn: Tensor, queries: slice, first_item: int, query_P: Tensor, item_P: Tensor) -> None:
        """Take the tile that holds all relevant items of its run of queries; the run of items begins at ``first_item``.

        ``query_P`` and ``item_P`` are the relevant pairs, counted from the tile's first; every query has a pair.
        """
        relevant_P = tile_qn[query_P, item_P]
        relevant_P = relevant_P.masked_fill(relevant_P.isposinf(), -torch.inf)
        best_q = torch.full_like(tile_qn[:, 0], -torch.inf).scatter_reduce(0, query_P, relevant_P, "amax")
        is_best_P = relevant_P == best_q[query_P]
        last_q = item_P.new_full((len(best_q),), -1)
        last_q = last_q.scatter_reduce(0, query_P, torch.where(is_best_P, item_P, -1), "amax")
        higher_q, as_high_q = _counts(tile_qn, best_q)
        equal_q = as_high_q - higher_q
        self._tied_Q[queries] = equal_q > torch.zeros_like(higher_q).index_add(0, query_P, is_best_P.long())
        # Only where there are equals does their order matter, and that is rare.
        (among_equals,) = (equal_q > 1).nonzero(as_tuple=True)
        if len(among_equals):
            later_en = torch.arange(tile_qn.shape[1], device=tile_qn.device) > last_q[among_equals].unsqueeze(1)
            equal_en = tile_qn[among_equals] == best_q[among_equals].unsqueeze(1)
            higher_q[among_equals] += (equal_en & later_en).sum(dim=1)
        self._ranks_Q[queries] = higher_q
        self._relevant_Q[queries] = last_q + first_item
        self._similarity_Q[queries] = best_q.double()
        self._look_for_top(tile_qn, queries, first_item)

    def add(self, tile_qn: Tensor, queries: slice, first_item: int) -> None:
        """Take a tile without relevant items of its queries; its run of items lies wholly before or behind theirs."""
        higher_q, as_high_q = _counts(tile_qn, self._similarity_Q[queries].to(tile_qn.dtype))
        is_later_q = first_item > self._relevant_Q[queries]
        self._ranks_Q[queries] += torch.where(is_later_q, as_high_q, higher_q)
        self._tied_Q[queries] |= as_high_q > higher_q
        self._look_for_top(tile_qn, queries, first_item)

    def ranks(self) -> Ranks:
        """The ranks, when all tiles have come by, on the CPU."""
        return Ranks(**{name.removeprefix("_"): values_Q.cpu() for name, values_Q in vars(self).items()})

    def _look_for_top(self, tile_qn: Tensor, queries: slice, first_item: int) -> None:
        """Remember the most similar item of each query; of equals the later one."""
        highest_q, top_q, so_far_q = tile_qn.amax(dim=1), self._top_Q[queries], self._top_similarity_Q[queries]
        is_new_q = (highest_q > so_far_q) | ((highest_q == so_far_q) & (first_item > top_q))
        (new,) = is_new_q.nonzero(as_tuple=True)
        if not len(new):
            return
        places_n = torch.arange(tile_qn.shape[1], device=tile_qn.device)
        is_top_en = tile_qn[new] == highest_q[new].unsqueeze(1)
        top_q[new] = torch.where(is_top_en, places_n, -1).amax(dim=1) + first_item
        so_far_q[new] = highest_q[new].double()


def rank_queries(
    similarities: Callable[[slice], Tensor], relevant_items: RelevantItems, items: int, views: int = 1
) -> Ranks:
    """Rank a gallery of N items for queries that have any relevant items in it.

    Args:
        similarities: of a run of queries with all items, (q, N), as `nan_as_worst` leaves them; -inf takes an item
            out of a query's gallery.
        relevant_items: of each query at least one; none, or one that is not in the gallery, is a ValueError.
        items: N.
        views: how many similarities are computed for one of the result.
    """
    accumulator = RankAccumulator(len(relevant_items.counts), relevant_items.items_P.device)
    for run in query_runs(relevant_items, items, views):
        accumulator.start(similarities(run), run, 0, *relevant_items.of(run))
    return accumulator.ranks()


def query_runs(relevant_items: RelevantItems, items: int, views: int = 1) -> Iterator[slice]:
    """Yield runs of queries small enough for their similarities with N items; ValueErrors are `rank_queries`'s."""
    queries = len(relevant_items.counts)
    if not queries or int(relevant_items.counts.min()) < 1:
        place = (
            f"query {int(relevant_items.counts.argmin())} has no relevant item" if queries else "there are no queries"
        )
        raise ValueError(f"nothing to rank: {place}; leave out queries that nothing can answer")
    if int(relevant_items.items_P.min()) < 0 or int(relevant_items.items_P.max()) >= items:
        raise ValueError(
            f"relevant items must be indices from 0 to {items - 1}; got {int(relevant_items.items_P.min())} to "
            f"{int(relevant_items.items_P.max())}"
        )
    size = max(FEWEST_QUERIES, CHUNK_ELEMENTS // (items * views))
    for start in range(0, queries, size):
        yield slice(start, min(start + size, queries))


def nan_as_worst(similarities: Tensor) -> Tensor:
    """Make similarities that are not numbers the highest, in place: no item is found by having none."""
    return similarities.nan_to_num_(nan=torch.inf, posinf=torch.inf, neginf=-torch.inf)


def _counts(tile_qn: Tensor, best_q: Tensor) -> tuple[Tensor, Tensor]:
    """Count the items that are more similar than each query's best relevant one, and those at least as similar."""
    # Comparing into floats and adding those up takes a quarter of the time that Booleans take, and is as exact: a tile
    # has fewer than 2**24 columns.
    found_qn = torch.empty_like(tile_qn)
    higher_q = torch.gt(tile_qn, best_q.unsqueeze(1), out=found_qn).sum(dim=1)
    as_high_q = torch.ge(tile_qn, best_q.unsqueeze(1), out=found_qn).sum(dim=1)
    return higher_q.long(), as_high_q.long()
