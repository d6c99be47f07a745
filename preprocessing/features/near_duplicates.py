"""Near-duplicate images across splits: a model that has seen a test image's twin in training is overrated."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from PIL import Image

from preprocessing.datasets.record import Dataset, Record
from preprocessing.features.images import ImageError, inside, load_image

# The hash is the signs of the 8 x 8 lowest frequencies of a 32 x 32 grey image, without the mean's: 63 bits.
_SIDE = 32
_FREQUENCIES = 8
# Bits in which copies of one photograph differ after scaling, JPEG and slight changes of colour; unrelated photographs
# differ in about half of them.
DEFAULT_DISTANCE = 6

_FREQUENCY, _PLACE = np.mgrid[:_FREQUENCIES, :_SIDE]
# The lowest basis functions of the discrete cosine transform (DCT-II), one a row.
_COSINES: npt.NDArray[np.float64] = np.cos(np.pi * _FREQUENCY * (2 * _PLACE + 1) / (2 * _SIDE))


@dataclass(frozen=True, slots=True)
class Duplicate:
    """Two images of different splits that look alike: their records, and the number of bits that differ."""

    first: Record
    second: Record
    distance: int


def perceptual_hash(image: Image.Image) -> int:
    """The coarse pattern of light and dark as 64 bits (pHash): of little change under scaling, compression and colour.

    The 8 x 8 lowest frequencies of the 32 x 32 grey image's discrete cosine transform are compared with their median,
    the constant one left out. Bit 0 is always 0.
    """
    grey = np.asarray(image.convert("L").resize((_SIDE, _SIDE), Image.Resampling.BOX), dtype=np.float64)
    low = _COSINES @ grey @ _COSINES.T
    values = low.ravel()[1:]
    bits = values > np.median(values)
    return sum(1 << position for position, bit in enumerate(bits, start=1) if bit)


def near_duplicates(
    hashes: Mapping[str, Iterable[tuple[Record, int]]], distance: int = DEFAULT_DISTANCE
) -> Iterator[Duplicate]:
    """Yield all pairs of images of different splits whose hashes differ in at most `distance` (0 to 63) bits.

    A split is compared with all before it, image by image.
    """
    before: list[tuple[Record, int]] = []
    for items in hashes.values():
        known = np.array([value for _, value in before], dtype=np.uint64)
        split = list(items)
        for record, value in split:
            bits = np.bitwise_count(known ^ np.uint64(value))
            for place in np.flatnonzero(bits <= distance):
                yield Duplicate(before[place][0], record, int(bits[place]))
        before += split


def duplicates_across(
    dataset: Dataset, splits: Iterable[str], distance: int = DEFAULT_DISTANCE
) -> tuple[list[Duplicate], list[tuple[Record, str]]]:
    """Find near-duplicates across splits of a data set, and the images that could not be read, each with the reason."""
    unreadable: list[tuple[Record, str]] = []

    def hashed(split: str) -> Iterator[tuple[Record, int]]:
        """The images of a split with their hashes; those that cannot be read are listed."""
        for record in dataset.records(split):
            try:
                yield record, perceptual_hash(load_image(inside(dataset.root, record.image_uri)))
            except ImageError as error:
                unreadable.append((record, str(error)))

    found = list(near_duplicates({split: hashed(split) for split in splits}, distance))
    return found, unreadable
