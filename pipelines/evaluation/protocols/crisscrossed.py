"""Crisscrossed Captions: retrieval between and within images and captions, with true pairs that COCO does not name."""

from collections.abc import Iterable, Sequence
from itertools import permutations

import pyarrow as pa
import torch
from torch import Tensor

from pipelines.evaluation.protocols.rankings import Embedded, direction_values
from pipelines.evaluation.protocols.results import Results
from pipelines.evaluation.query_table import Items, query_rows, write_query_table
from pipelines.runtime.stage import StageError
from preprocessing.datasets.crisscrossed import Crisscrossed, Rating, read_crisscrossed
from preprocessing.datasets.record import Record
from vse_core.evaluation.directions import DIRECTIONS, Direction, rank_direction
from vse_core.evaluation.ranks import Ranks, RelevantItems

Pair = tuple[int, int]
"""The indices of a query and of an item that is relevant to it."""

# A pair counts as true from this score on: captions with images, captions, images.
_CAPTION_IMAGE, _CAPTIONS, _IMAGES = 3.0, 3.0, 2.5


def crisscrossed(embedded: Embedded) -> Results:
    """Evaluate retrieval of captions by images (i2t), images by captions (t2i), captions by captions, images by images.

    Relevant are the data set's own pairs, the captions of an image among each other, and pairs that people rated: a
    caption with an image, or two captions, at 3 or more, two images at 2.5 or more. A query without a relevant item is
    left out. Metrics are ``cxc/i2t_r01`` ... ``cxc/i2i_ties``, with intervals ``cxc/i2t_r01_low`` and so on,
    ``cxc/i2t_queries``, and ``cxc/unknown_pairs``, the number of ratings of images or captions that are not in the
    gallery: 0 if the split is complete. Raises StageError if the ratings are not of this split, and DatasetError
    if their file is missing or malformed.
    """
    assert embedded.crisscrossed is not None
    ratings = read_crisscrossed(embedded.crisscrossed, embedded.split)
    pairs, unknown = true_pairs(embedded.records, ratings)
    metrics = {"cxc/unknown_pairs": float(unknown)}
    tables = []
    for direction in DIRECTIONS:
        ranks, group_Q, table = rank_pairs(embedded, direction, pairs[direction])
        values = direction_values(ranks, group_Q)
        metrics |= {f"cxc/{direction}_{name}": value for name, value in values.items()}
        metrics[f"cxc/{direction}_queries"] = float(len(ranks))
        tables.append(table)
    file = write_query_table(embedded.directory, "cxc", tables)
    summary = "CxC R@1 " + ", ".join(f"{direction} {metrics[f'cxc/{direction}_r01']:.1f}" for direction in DIRECTIONS)
    return Results("cxc", metrics, summary, files=(file,))


def rank_pairs(embedded: Embedded, direction: Direction, pairs: Sequence[Pair]) -> tuple[Ranks, Tensor, pa.Table]:
    """Rank the gallery for the queries of pairs; returns ranks, the image of each query (Q,) from 0, and their rows."""
    indices_P2 = torch.tensor(pairs)
    queries_Q, query_P = indices_P2[:, 0].unique(return_inverse=True)
    relevant_items = RelevantItems.of_pairs(query_P, indices_P2[:, 1], len(queries_Q))
    ranks = rank_direction(embedded.members, direction, relevant_items, queries_Q)
    images_Q = queries_Q
    if direction[0] == "t":
        images_Q = torch.arange(len(embedded.counts)).repeat_interleave(torch.tensor(embedded.counts))[queries_Q]
    items = {"i": Items.images(embedded.records), "t": Items.captions(embedded.records)}
    table = query_rows(direction, ranks, items[direction[0]].take(queries_Q), items[direction[-1]])
    return ranks, images_Q.unique(return_inverse=True)[1], table


def true_pairs(records: Sequence[Record], ratings: Crisscrossed) -> tuple[dict[Direction, list[Pair]], int]:
    """Return pairs by direction, and the number of ratings of unknown items; StageError if a kind has no pairs."""
    images = {record.image_id: index for index, record in enumerate(records)}
    flat = (caption.caption_id for record in records for caption in record.captions)
    captions = {caption: index for index, caption in enumerate(flat)}
    co_captions: list[Pair] = []
    for record in records:
        co_captions += permutations([captions[caption.caption_id] for caption in record.captions], 2)
    own = [(captions[caption.caption_id], image) for image, record in enumerate(records) for caption in record.captions]
    crossed, crossed_unknown = _rated(ratings.captions_images, _CAPTION_IMAGE, captions, images)
    same_images, images_unknown = _rated(ratings.images, _IMAGES, images, images)
    same_captions, captions_unknown = _rated(ratings.captions, _CAPTIONS, captions, captions)
    if not crossed or not same_images:
        raise StageError(
            "protocol cxc: hardly any of the ratings are of images and captions of this split; they are known by the "
            "ids of Karpathy's dataset_coco.json (dataset.format karpathy), splits dev and test"
        )
    crossed, same_captions = own + crossed, co_captions + same_captions
    pairs: dict[Direction, list[Pair]] = {
        "i2t": _turned(crossed),
        "t2i": crossed,
        "t2t": same_captions + _turned(same_captions),
        "i2i": same_images + _turned(same_images),
    }
    return pairs, crossed_unknown + images_unknown + captions_unknown


def _rated(
    ratings: Iterable[Rating], score: float, first: dict[str, int], second: dict[str, int]
) -> tuple[list[Pair], int]:
    """Return the pairs rated at least so high, and the number of ratings of unknown items."""
    pairs, unknown = [], 0
    for rating in ratings:
        if rating.first not in first or rating.second not in second:
            unknown += 1
        # A pair of a thing with itself says nothing.
        elif rating.score >= score and (first is not second or rating.first != rating.second):
            pairs.append((first[rating.first], second[rating.second]))
    return pairs, unknown


def _turned(pairs: Iterable[Pair]) -> list[Pair]:
    return [(second, first) for first, second in pairs]
