"""ECCV Caption: retrieval with the relevant captions and images that COCO does not name, confirmed by people."""

from collections import Counter

import torch

from pipelines.evaluation.protocols.rankings import Embedded, direction_values, places, rank_pairs
from pipelines.evaluation.protocols.results import Results
from pipelines.evaluation.query_table import write_query_tables
from pipelines.runtime.stage import StageError
from preprocessing.datasets.eccv_caption import IdPair, read_eccv
from vse_core.evaluation.bootstrap import Interval, resampled_means
from vse_core.evaluation.directions import Direction, direction_precisions

_PRECISIONS = ("r_precision", "map_at_r")


def eccv(embedded: Embedded) -> Results:
    """Evaluate retrieval of captions by images (i2t) and images by captions (t2i), each with many relevant items.

    Metrics, in per cent, are ``eccv/i2t_map_at_r``, ``eccv/i2t_r_precision``, ``eccv/i2t_r01`` and so on with their
    intervals, the same of t2i, ``eccv/i2t_queries``, and ``eccv/unknown_pairs``, the number of published pairs of
    images or captions that are not in the gallery: 2 where it has five captions of each of the 5,000 images. They count
    as not found, as in the released code (Chun et al. 2022). Raises StageError where the pairs are not of this split,
    and DatasetError where a file is missing or malformed.
    """
    assert embedded.eccv is not None
    of_images, of_captions = read_eccv(embedded.eccv)
    images, captions = places(embedded.records)
    published: dict[Direction, tuple[list[IdPair], dict[str, int], dict[str, int]]] = {
        "i2t": (of_images, images, captions),
        "t2i": (of_captions, captions, images),
    }
    metrics, tables = {"eccv/unknown_pairs": 0.0}, []
    for direction, (id_pairs, queries, items) in published.items():
        pairs = [(queries[query], items[item]) for query, item in id_pairs if query in queries and item in items]
        if not pairs:
            raise StageError(
                "protocol eccv: none of the relevant pairs are of images and captions of this split; they are known by "
                "the ids of Karpathy's dataset_coco.json (dataset.format karpathy), split test"
            )
        metrics["eccv/unknown_pairs"] += len(id_pairs) - len(pairs)
        ranked = rank_pairs(embedded, direction, pairs)
        relevant = Counter(queries[query] for query, _ in id_pairs if query in queries)
        counts_Q = torch.tensor([relevant[query] for query in ranked.queries_Q.tolist()])
        precisions_Q2 = direction_precisions(
            embedded.members, direction, ranked.relevant_items, ranked.queries_Q, counts_Q
        )
        resampled_R2 = resampled_means(precisions_Q2, ranked.group_Q)
        values = direction_values(ranked.ranks, ranked.group_Q)
        for name, values_Q, values_R in zip(_PRECISIONS, precisions_Q2.T, resampled_R2.T, strict=True):
            interval = Interval.of(100 * values_R)
            values |= {name: 100 * values_Q.mean().item(), f"{name}_low": interval.low, f"{name}_high": interval.high}
        metrics |= {f"eccv/{direction}_{name}": value for name, value in values.items()}
        metrics[f"eccv/{direction}_queries"] = float(len(ranked.ranks))
        tables.append(ranked.table)
    files = write_query_tables(embedded.directory, "eccv", tables)
    summary = "ECCV Caption mAP@R " + ", ".join(f"{way} {metrics[f'eccv/{way}_map_at_r']:.1f}" for way in published)
    return Results("eccv", metrics, summary, files=files)
