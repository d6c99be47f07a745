"""Dataset readers: one a format, all yielding the same record."""

from collections.abc import Callable
from typing import Any

from preprocessing.datasets.flickr import FlickrDataset
from preprocessing.datasets.hgr import HgrDataset
from preprocessing.datasets.image_shards import ImageShardsDataset
from preprocessing.datasets.karpathy import KarpathyDataset
from preprocessing.datasets.precomputed import PrecomputedDataset
from preprocessing.datasets.record import Caption, Dataset, DatasetError, Record
from preprocessing.datasets.scenes import ScenesDataset
from preprocessing.datasets.table import TableDataset

__all__ = ["DATASET_FORMATS", "Caption", "Dataset", "DatasetError", "Record", "build_dataset"]

DATASET_FORMATS: dict[str, Callable[..., Dataset]] = {
    "flickr": FlickrDataset,
    "karpathy": KarpathyDataset,
    "table": TableDataset,
    "webdataset": ImageShardsDataset,
    "precomputed": PrecomputedDataset,
    "hgr": HgrDataset,
    "scenes": ScenesDataset,
}


def build_dataset(format: str, **options: Any) -> Dataset:  # noqa: A002 (the configuration's own word)
    """Build the reader of one of `DATASET_FORMATS`; raise DatasetError for missing paths."""
    return DATASET_FORMATS[format](**options)
