"""Images loaded ahead: order, errors, and one that never comes."""

import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

from preprocessing.extraction.image_loader import load_images
from preprocessing.features.images import ImageError


class Files:
    """Loads "n" as n, "bad" as an error; "stuck" waits until `release`."""

    def __init__(self) -> None:
        self.released = threading.Event()
        self.begun: list[str] = []

    def load(self, uri: str) -> int:
        self.begun.append(uri)
        if uri == "stuck":
            self.released.wait()
            return -1
        if uri == "bad":
            raise ImageError("truncated")
        time.sleep(0.001 * (hash(uri) % 5))
        return int(uri)


@pytest.fixture
def files() -> Iterator[Files]:
    files = Files()
    yield files
    files.released.set()


@contextmanager
def loading(files: Files, threads: int, timeout: float | None = None, depth: int = 4) -> Iterator[Any]:
    yield lambda uris: [
        (uri, str(image) if isinstance(image, ImageError) else image)
        for uri, image in load_images(files.load, uris, str, threads, depth, timeout)
    ]


@pytest.mark.parametrize("threads", [1, 3])
def test_images_come_in_order_and_bad_ones_as_errors(files: Files, threads: int) -> None:
    uris = [str(number) for number in range(20)] + ["bad", "7"]
    with loading(files, threads) as load:
        assert load(uris) == [(uri, "truncated" if uri == "bad" else int(uri)) for uri in uris]


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_stuck_images_are_given_up_and_the_others_arrive(files: Files, threads: int) -> None:
    uris = ["0", "stuck", "1", "2", "stuck", "bad", "3", "4", "5", "6"]
    expected = {"stuck": "took longer than 0.3 seconds to load", "bad": "truncated"}
    with loading(files, threads, timeout=0.3) as load:
        assert load(uris) == [(uri, expected.get(uri) or int(uri)) for uri in uris]


def test_not_more_is_loaded_ahead_than_asked_for(files: Files) -> None:
    with closing(load_images(files.load, map(str, range(100)), str, 1, 3, None)) as images:
        next(images)
        while len(files.begun) < 4:  # the test's time limit ends it
            time.sleep(0.01)
        time.sleep(0.1)
        assert len(files.begun) == 4


def test_what_a_loader_raises_by_mistake_surfaces(files: Files) -> None:
    with loading(files, 2, timeout=5) as load, pytest.raises(ValueError, match="invalid literal"):
        load(["1", "no number"])
