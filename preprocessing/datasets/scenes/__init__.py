"""Scenes, the embedded data set: generated images of coloured, sized shapes in spatial relations, with captions."""

import re
from collections.abc import Iterator, Mapping

from preprocessing.datasets.record import Caption, DatasetError, Record
from preprocessing.datasets.scenes.captions import caption_scene
from preprocessing.datasets.scenes.layout import SPLIT_STARTS, compose_scene
from preprocessing.datasets.scenes.render import encode_png, render_pixels

_URI = re.compile(r"scene://(\d{1,20})/(\d{1,10})", re.ASCII)


def render_scene(seed: int, index: int) -> bytes:
    """Return the image of a scene as a PNG of 128 x 128 pixels; the same bytes every time and everywhere."""
    return encode_png(render_pixels(compose_scene(seed, index)))


def parse_scene_uri(uri: str) -> tuple[int, int]:
    """Return the (seed, index) of `scene://SEED/INDEX`; raise ValueError if it is another address."""
    match = _URI.fullmatch(uri)
    if match is None:
        raise ValueError(f"{uri!r} is not scene://SEED/INDEX with whole numbers")
    return int(match[1]), int(match[2])


class ScenesDataset:
    """Any number of generated scenes, each a function of (seed, index) alone; `images` has the number of each split.

    No composition of objects and relations occurs in two splits.
    """

    def __init__(self, seed: int, images: Mapping[str, int]) -> None:
        for split in images:
            if split not in SPLIT_STARTS:
                raise DatasetError(f"scenes dataset, 'images': split {split!r} is none of {', '.join(SPLIT_STARTS)}")
        self.splits = tuple(images)
        self.root = ""  # the URIs of scenes stand alone
        self._seed = seed
        self._images = dict(images)

    def records(self, split: str) -> Iterator[Record]:
        """Yield the scenes of a split in the order of their index."""
        start = SPLIT_STARTS[split]
        for index in range(start, start + self._images[split]):
            image_id = f"{self._seed}-{index}"
            texts = caption_scene(compose_scene(self._seed, index))
            captions = tuple(Caption(f"{image_id}#{order}", text) for order, text in enumerate(texts))
            yield Record(image_id, f"scene://{self._seed}/{index}", split, captions)
