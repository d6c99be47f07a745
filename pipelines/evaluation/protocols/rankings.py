"""Protocols that need embeddings alone, and so fit any model and any ensemble.

B images or videos, C captions, K views, D embedding.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pyarrow as pa
from torch import Tensor

from pipelines.evaluation.protocols.results import Results
from pipelines.evaluation.query_table import Items, query_rows, write_query_table
from pipelines.retrieval.gallery import Gallery
from pipelines.runtime.stage import StageError
from preprocessing.datasets.record import Record
from vse_core.evaluation.bootstrap import Interval, resampled_recalls, retrieval_intervals
from vse_core.evaluation.hubs import corrected
from vse_core.evaluation.members import Member
from vse_core.evaluation.protocols import RETRIEVAL_PROTOCOLS, VIDEO_PROTOCOLS
from vse_core.evaluation.ranks import Ranks
from vse_core.evaluation.recall import RetrievalRanks, direction_metrics, rank_retrieval


@dataclass(frozen=True)
class Embedded:
    """A split embedded by models whose similarities are averaged, in galleries of the same order.

    `cuts` are the numbers of folds of plain retrieval; `crisscrossed` is Crisscrossed Captions' folder, if needed.
    """

    galleries: Sequence[Gallery]
    split: str
    directory: Path
    cuts: tuple[int, ...] = (1,)
    crisscrossed: Path | None = None

    @property
    def members(self) -> list[Member]:
        """Embeddings (B, K, D) of the images and (C, D) of the captions, or other outputs, of each model."""
        return [(gallery.images, gallery.texts) for gallery in self.galleries]

    @property
    def records(self) -> tuple[Record, ...]:
        """The images with their captions."""
        return self.galleries[0].records

    @property
    def counts(self) -> list[int]:
        """Number of captions of each image."""
        return [len(record.captions) for record in self.records]

    @cached_property
    def ranks(self) -> dict[int, RetrievalRanks]:
        """Ranks of image-text retrieval by the number of folds; one pass over the similarities finds them all."""
        return rank_retrieval(self.members, self.counts, self.cuts)

    @property
    def is_corrected(self) -> bool:
        """Return whether hubs are corrected, of all models."""
        return all(gallery.biases is not None for gallery in self.galleries)

    def corrected_ranks(self, folds: int) -> RetrievalRanks:
        """Ranks of image-text retrieval with hubs corrected; several models' corrected similarities are averaged."""
        members = [
            corrected(gallery.images_BKD, gallery.texts_CD, *gallery.biases)
            for gallery in self.galleries
            if gallery.biases
        ]
        return rank_retrieval(members, self.counts, (folds,))[folds]


def retrieval(embedded: Embedded, folds: int) -> Results:
    """Evaluate image-text retrieval of any split, averaged over the folds of one of its cuts.

    Metrics are ``rsum``, ``i2t_r01`` ... ``t2i_ties``, with the intervals ``rsum_low``, ``rsum_high`` and so on.
    """
    images, captions = len(embedded.records), sum(embedded.counts)
    summary = f"RSUM {{}} over {images:,} images and {captions:,} captions"
    return _retrieval("retrieval", summary, embedded, embedded.ranks[folds])


def corrected_retrieval(embedded: Embedded, folds: int) -> Results:
    """Evaluate as `retrieval` with hubs corrected: ``rsum_corrected``, ``rsum_corrected_low`` and so on."""
    return _retrieval("corrected", "corrected RSUM {}", embedded, embedded.corrected_ranks(folds), "{}_corrected")


def published_retrieval(name: str, embedded: Embedded) -> Results:
    """Evaluate a published split (`require_published`) as `retrieval`, under the name: ``coco_5k/rsum`` and so on."""
    protocol = RETRIEVAL_PROTOCOLS[name]
    ranks = embedded.ranks[protocol.folds]
    return _retrieval(name, f"{protocol.title} RSUM {{}}", embedded, ranks, f"{name}/{{}}")


def _retrieval(name: str, summary: str, embedded: Embedded, ranks: RetrievalRanks, form: str = "{}") -> Results:
    """Return metrics with their intervals, their names in a form, and write the table of the queries."""
    found, intervals = ranks.result().as_dict(), retrieval_intervals(ranks)
    metrics = {form.format(metric): value for metric, value in found.items()}
    for metric, interval in intervals.items():
        metrics |= {f"{form.format(metric)}_low": interval.low, f"{form.format(metric)}_high": interval.high}
    file = write_query_table(embedded.directory, name, retrieval_rows(ranks, embedded.records))
    rsum = f"{found['rsum']:.1f} ({intervals['rsum'].low:.1f} to {intervals['rsum'].high:.1f})"
    return Results(name, metrics, summary.format(rsum), files=(file,))


def retrieval_rows(ranks: RetrievalRanks, records: Sequence[Record]) -> list[pa.Table]:
    """Return a table for each direction, with a row for each query."""
    images, captions = Items.images(records), Items.captions(records)
    return [
        query_rows("i2t", ranks.image_to_text, images, captions),
        query_rows("t2i", ranks.text_to_image, captions, images),
    ]


def direction_values(ranks: Ranks, group_Q: Tensor | None = None, round_median: bool = True) -> dict[str, float]:
    """Return ``r01``, ``r01_low`` ... ``ties`` of a direction; queries (Q,) of one group are resampled together."""
    values = dict(vars(direction_metrics(ranks, round_median)))
    for name, values_R in resampled_recalls(ranks, group_Q).items():
        interval = Interval.of(values_R)
        values |= {f"{name}_low": interval.low, f"{name}_high": interval.high}
    return values


def require_published(protocols: Sequence[str], split: str, captions_per_image: Sequence[int]) -> None:
    """Raise StageError if a split is not the published one that a protocol's name promises."""
    published = RETRIEVAL_PROTOCOLS | VIDEO_PROTOCOLS
    for name in protocols:
        misfit = published[name].misfit(captions_per_image) if name in published else None
        if misfit is not None:
            raise StageError(
                f"protocol {name}, split {split!r}: {misfit}; evaluate another split (--split, dataset.eval_split), "
                "fix what was skipped with its features, or leave the protocol out: plain retrieval takes any split"
            )
