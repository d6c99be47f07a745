"""Near-duplicate images across splits: a model that has seen a test image's twin in training is overrated."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from PIL import Image

from preprocessing.datasets.record import Dataset, Record
from preprocessing.features.images import ImageError, inside, load_image

# The hash is the signs of the 8 x 8 lowest frequencies of a 32 x 32 grey image, without the mean's: 63 bits.
_SIDE = 32
_FREQUENCIES = 8
_BITS = _FREQUENCIES * _FREQUENCIES
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

    Of the 32 x 32 grey image's discrete cosine transform the 8 x 8 lowest frequencies are compared with their median,
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

    Two hashes that differ in no more bits agree in one of distance + 1 parts at least: only those that do are compared.
    """
    if not 0 <= distance < _BITS:
        raise ValueError(f"the distance between hashes is from 0 to {_BITS - 1} bits, got {distance}")
    borders = [round(_BITS * part / (distance + 1)) for part in range(distance + 2)]
    buckets: dict[tuple[int, int], list[tuple[str, Record, int]]] = {}
    for split, items in hashes.items():
        entered: list[tuple[tuple[int, int], tuple[str, Record, int]]] = []
        for record, value in items:
            parts = [
                (part, (value >> start) & ((1 << (end - start)) - 1))
                for part, (start, end) in enumerate(pairwise(borders))
            ]
            # By split and id: an image that agrees in several parts is one candidate.
            candidates = {(entry[0], entry[1].image_id): entry for part in parts for entry in buckets.get(part, ())}
            for _, other, other_value in candidates.values():
                bits = (value ^ other_value).bit_count()
                if bits <= distance:
                    yield Duplicate(other, record, bits)
            entered.extend((part, (split, record, value)) for part in parts)
        for part, entry in entered:
            buckets.setdefault(part, []).append(entry)


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
