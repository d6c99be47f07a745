"""ECCV Caption: retrieval with the relevant captions and images that COCO does not name, confirmed by people."""

from collections.abc import Mapping, Sequence

from pipelines.evaluation.protocols.rankings import Embedded, Pair, direction_values, places, rank_pairs
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
    images or captions that are not in the gallery: 0 where the split is complete (Chun et al. 2022, section 4; released
    code). Raises StageError where the pairs are not of this split, and DatasetError where a file is missing or
    malformed.
    """
    assert embedded.eccv is not None
    of_images, of_captions = read_eccv(embedded.eccv)
    images, captions = places(embedded.records)
    known: dict[Direction, list[Pair]] = {
        "i2t": _known(of_images, images, captions),
        "t2i": _known(of_captions, captions, images),
    }
    if not all(known.values()):
        raise StageError(
            "protocol eccv: none of the relevant pairs are of images and captions of this split; they are known by the "
            "ids of Karpathy's dataset_coco.json (dataset.format karpathy), split test"
        )
    unknown = len(of_images) + len(of_captions) - sum(map(len, known.values()))
    metrics = {"eccv/unknown_pairs": float(unknown)}
    tables = []
    for direction, pairs in known.items():
        ranked = rank_pairs(embedded, direction, pairs)
        precisions_Q2 = direction_precisions(embedded.members, direction, ranked.relevant_items, ranked.queries_Q)
        resampled_R2 = resampled_means(precisions_Q2, ranked.group_Q)
        values = direction_values(ranked.ranks, ranked.group_Q)
        for name, values_Q, values_R in zip(_PRECISIONS, precisions_Q2.T, resampled_R2.T, strict=True):
            interval = Interval.of(100 * values_R)
            values |= {name: 100 * values_Q.mean().item(), f"{name}_low": interval.low, f"{name}_high": interval.high}
        metrics |= {f"eccv/{direction}_{name}": value for name, value in values.items()}
        metrics[f"eccv/{direction}_queries"] = float(len(ranked.ranks))
        tables.append(ranked.table)
    files = write_query_tables(embedded.directory, "eccv", tables)
    summary = "ECCV Caption mAP@R " + ", ".join(f"{way} {metrics[f'eccv/{way}_map_at_r']:.1f}" for way in known)
    return Results("eccv", metrics, summary, files=files)


def _known(pairs: Sequence[IdPair], queries: Mapping[str, int], items: Mapping[str, int]) -> list[Pair]:
    return [(queries[query], items[item]) for query, item in pairs if query in queries and item in items]
