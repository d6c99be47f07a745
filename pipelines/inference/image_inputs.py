"""What a model's image encoder reads: sets of features from the shards, or the pictures themselves."""

from __future__ import annotations

from typing import Any

import torch

from preprocessing.loading.image_source import FeatureSource, ImageSource, PixelSource, SizeAugmentation
from preprocessing.loading.pixels import PixelFormat
from preprocessing.shards.reader import ShardReader
from vse_core.encoders.image import FeatureEncoder
from vse_core.encoders.levels import FrameLevelEncoder
from vse_core.encoders.regions import RegionEncoder
from vse_core.models import Model


def pixel_format(model: Model) -> PixelFormat | None:
    """The pixels that a model takes; None where it takes features."""
    encoder: Any = model.image_encoder
    takes_features = isinstance(encoder, FeatureEncoder | RegionEncoder | FrameLevelEncoder)
    return None if takes_features else PixelFormat(encoder.image_size, encoder.cells)


def image_source(
    model: Model,
    reader: ShardReader,
    seed: int = 0,
    image_augmentation: bool = False,
    size_augmentation: SizeAugmentation = "none",
    feature_dropout: float = 0.0,
) -> ImageSource:
    """The images of a split as a model takes them; pictures are decoded by as many threads as torch computes with.

    Args:
        model: the model.
        reader: of features or pictures, as the model takes them.
        seed: of the augmentations in training.
        image_augmentation: crop and mirror pictures.
        size_augmentation: leave out features or cells.
        feature_dropout: share of the features' dimensions to leave out.
    """
    pixels = pixel_format(model)
    if pixels is None:
        return FeatureSource(reader, seed, size_augmentation, feature_dropout)
    return PixelSource(reader, pixels, torch.get_num_threads(), seed, image_augmentation, size_augmentation)


def misfit(model: Model, reader: ShardReader) -> str | None:
    """Why a model cannot read a split, None where it can."""
    encoder: Any = model.image_encoder
    takes_pixels, are_pixels = pixel_format(model) is not None, reader.is_image_files
    if takes_pixels != are_pixels:
        takes, are = ("pictures" if pixels else "features" for pixels in (takes_pixels, are_pixels))
        return f"takes {takes}, the configuration has {are}"
    if not takes_pixels and encoder.feature_dim != reader.feature_dim:
        return f"takes features of width {encoder.feature_dim}, those of the configuration have {reader.feature_dim}"
    return None
