"""The images of a split in the format of a model's image encoder: features from the shards, or pixels."""

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from preprocessing.features.extractor import RegionFeatures
from preprocessing.loading.image_source import FeatureSource, ImageSource, PixelSource, SizeAugmentation
from preprocessing.loading.pixels import PixelFormat, decode_pixels, full_view
from preprocessing.shards.reader import ShardReader
from vse_core.models import Model


@runtime_checkable
class PixelEncoder(Protocol):
    """An image encoder that takes pixels."""

    image_size: int
    cells: int
    class_tokens: int


def pixel_format(model: Model) -> PixelFormat | None:
    """Return the format of the pixels that a model takes; None if it takes features."""
    encoder = model.image_encoder
    if not isinstance(encoder, PixelEncoder):
        return None
    return PixelFormat(encoder.image_size, encoder.cells, getattr(encoder, "view", "bilinear"))


def model_inputs(model: Model, stored: Sequence[Any]) -> tuple[Tensor, Tensor]:
    """Return an extractor's output as the image encoder takes it: features and lengths, or pixels and cells."""
    pixels = pixel_format(model)
    if pixels is not None:
        views = [full_view(decode_pixels(data), pixels.size, pixels.view) for data in stored]
        return torch.stack(views), torch.ones(len(views), pixels.cells, dtype=torch.bool)
    arrays = (item.features if isinstance(item, RegionFeatures) else item for item in stored)
    sets = [torch.from_numpy(array_NF) for array_NF in arrays]
    return pad_sequence(sets, batch_first=True), torch.tensor([len(set_NF) for set_NF in sets])


def set_size(model: Model, lengths_or_mask: Tensor) -> int:
    """Return N of the first image of a batch: its features, or its cells with the class tokens pooled with them."""
    encoder = model.image_encoder
    return int(lengths_or_mask[0].sum()) + (encoder.class_tokens if isinstance(encoder, PixelEncoder) else 0)


def image_source(
    model: Model,
    reader: ShardReader,
    seed: int = 0,
    image_augmentation: bool = False,
    size_augmentation: SizeAugmentation = "none",
    feature_dropout: float = 0.0,
    few_shapes: bool = False,
) -> ImageSource:
    """Return the source of a split's images for a model, with the augmentations of training.

    The image augmentation crops and mirrors, that of the size leaves out features or cells, and `feature_dropout` is
    the share of the features' dimensions to leave out; `few_shapes` pads batches alike. As many image files are decoded
    at a time as torch has threads.
    """
    pixels = pixel_format(model)
    if pixels is None:
        return FeatureSource(reader, seed, size_augmentation, feature_dropout, few_shapes)
    return PixelSource(reader, pixels, torch.get_num_threads(), seed, image_augmentation, size_augmentation)


def misfit(model: Model, reader: ShardReader) -> str | None:
    """Return the reason why a model cannot read a split; None if it can."""
    takes_pixels, are_pixels = pixel_format(model) is not None, reader.is_image_files
    if takes_pixels != are_pixels:
        takes, are = ("images" if pixels else "features" for pixels in (takes_pixels, are_pixels))
        return f"takes {takes}, the configuration has {are}"
    width = getattr(model.image_encoder, "feature_dim", None)
    if takes_pixels or width == reader.feature_dim:
        return None
    return f"takes features of width {width}, those of the configuration have {reader.feature_dim}"
