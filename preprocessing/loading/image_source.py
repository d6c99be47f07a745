"""The images of a batch, as an image encoder takes them: sets of features and lengths, or pixels and a mask of cells.

Shapes: B batch, N set elements or grid cells, F feature width, S side of the pixels.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch

from preprocessing.captions.augment import drop_dimensions, drop_grids, drop_regions
from preprocessing.features.images import ImageError
from preprocessing.loading.batch import FeatureBuffers, pad_features, rounded_up
from preprocessing.loading.pixels import PixelFormat, decode_pixels, full_view, random_view
from preprocessing.randomness import Stream, sample_rng
from preprocessing.shards.index import FIX, ShardError
from preprocessing.shards.reader import ShardReader

SizeAugmentation = Literal["none", "region", "grid"]
Tensors = tuple[torch.Tensor, torch.Tensor]

_DROP = {"none": None, "region": drop_regions, "grid": drop_grids}
# Sets of different sizes are padded to a multiple of it, if batches are to have few shapes.
_BUCKET = 16
# Batches alive at once in training: two prefetched, up to four in preparation, the consumer's and its last one.
_ALIVE = 8


@dataclass(eq=False)
class FeatureSource:
    """Sets of features: float16 (B, N, F), zero-padded, and their lengths, int64 (B,).

    Attributes:
        reader: of features.
        seed: of the augmentation.
        size_augmentation: "none", "region" (:func:`drop_regions`) or "grid" (:func:`drop_grids`).
        feature_dropout: share of the F dimensions that an image is trained without (:func:`drop_dimensions`).
        few_shapes: pad batches of training to the size that their sets have without augmentation, or, if these differ,
            to a multiple of 16.
    """

    reader: ShardReader
    seed: int = 0
    size_augmentation: SizeAugmentation = "none"
    feature_dropout: float = 0.0
    few_shapes: bool = False

    def __post_init__(self) -> None:
        self._buffers = FeatureBuffers(_ALIVE)
        self._drop = _DROP[self.size_augmentation]

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self.reader)

    def unaugmented(self, images: Sequence[int]) -> Tensors:
        """Return images without augmentation."""
        return pad_features([self.reader.features(image) for image in images], None, self._buffers)

    def augmented(self, images: Sequence[int], epoch: int, samples: Sequence[int]) -> Tensors:
        """Return images without some elements of their sets, and some dimensions of all their elements."""
        features = [self.reader.features(image) for image in images]
        kept = self._drop and [
            self._drop(len(array_NF), sample_rng(self.seed, epoch, sample, Stream.SIZE))
            for array_NF, sample in zip(features, samples, strict=True)
        ]
        features_BNF, lengths_B = pad_features(features, kept, self._buffers, self._size(features))
        if self.feature_dropout:
            rngs = (sample_rng(self.seed, epoch, sample, Stream.FEATURE) for sample in samples)
            factors_BF = [drop_dimensions(features_BNF.shape[2], self.feature_dropout, rng) for rng in rngs]
            # By torch: NumPy multiplies float16 twenty times as slowly.
            features_BNF *= torch.from_numpy(np.stack(factors_BF)).unsqueeze(1)
        return features_BNF, lengths_B

    def _size(self, features: Sequence[npt.NDArray[np.float16]]) -> int | None:
        if not self.few_shapes:
            return None
        sizes = {len(array_NF) for array_NF in features}
        return max(sizes) if len(sizes) == 1 else rounded_up(max(sizes), _BUCKET)


@dataclass(eq=False)
class PixelSource:
    """Images as pixels, uint8 (B, 3, S, S), red first, and the mask of cells, bool (B, N); decoded in threads.

    Attributes:
        reader: of image files ("jpg").
        pixels: size and cells of the image encoder.
        threads: that decode, each into its own row, so their order does not matter.
        seed: of the augmentations.
        image_augmentation: random crops and mirroring (:func:`random_view`).
        size_augmentation: leave out cells, as for features.
    """

    reader: ShardReader
    pixels: PixelFormat
    threads: int
    seed: int = 0
    image_augmentation: bool = False
    size_augmentation: SizeAugmentation = "none"

    def __post_init__(self) -> None:
        self._buffers = FeatureBuffers(_ALIVE, np.uint8)
        self._pool = ThreadPoolExecutor(self.threads, thread_name_prefix="pixels")
        self._drop = _DROP[self.size_augmentation]

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self.reader)

    def unaugmented(self, images: Sequence[int]) -> Tensors:
        """Return full images, all cells; raises ShardError if one cannot be decoded."""
        pixels = self._filled(images, [None] * len(images))
        return pixels, torch.ones(len(images), self.pixels.cells, dtype=torch.bool)

    def augmented(self, images: Sequence[int], epoch: int, samples: Sequence[int]) -> Tensors:
        """Return random views of the images, without some of their cells; raises as :meth:`unaugmented`."""
        generators: list[np.random.Generator | None] = [
            sample_rng(self.seed, epoch, sample, Stream.PIXEL) if self.image_augmentation else None
            for sample in samples
        ]
        kept_BN = torch.ones(len(images), self.pixels.cells, dtype=torch.bool)
        if self._drop is not None:
            kept_BN[:] = False
            for row, sample in enumerate(samples):
                kept_N = self._drop(self.pixels.cells, sample_rng(self.seed, epoch, sample, Stream.SIZE))
                kept_BN[row, torch.from_numpy(kept_N)] = True
        return self._filled(images, generators), kept_BN

    def _filled(self, images: Sequence[int], generators: Sequence[np.random.Generator | None]) -> torch.Tensor:
        # Filled through NumPy: the threads do not share the caller's inference_mode.
        out_B3SS = self._buffers.take((len(images), 3, self.pixels.size, self.pixels.size))

        def fill(row: int) -> None:
            try:
                pixels_3hw = decode_pixels(bytes(self.reader.file(images[row])))
            except ImageError as error:
                raise ShardError(f"{self.reader.where(images[row])}: the image is damaged ({error}); {FIX}") from error
            rng = generators[row]
            size, view = self.pixels.size, self.pixels.view
            square = full_view(pixels_3hw, size, view) if rng is None else random_view(pixels_3hw, size, rng, view)
            out_B3SS[row] = square.numpy()

        for _ in self._pool.map(fill, range(len(images))):
            pass  # raises what went wrong in a thread
        return torch.from_numpy(out_B3SS)


ImageSource = FeatureSource | PixelSource
"""The two tensors of a batch's images, a row for each. Augmentation is a function of (seed, epoch, sample) alone."""
