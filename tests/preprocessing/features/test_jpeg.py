"""Images for the shards: bytes kept where they can be, encoded again where they must be, refused where damaged."""

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from preprocessing.features import build_extractor
from preprocessing.features.images import decode_image, load_image


def noise(width: int, height: int, mode: str = "RGB") -> Image.Image:
    """Smooth colours, as in photographs, so that encoding loses little."""
    rng = np.random.default_rng(0)
    coarse = Image.fromarray(rng.integers(0, 256, (4, 4, 3), dtype=np.uint8))
    return coarse.resize((width, height), Image.Resampling.BICUBIC).convert(mode)


def save(path: Path, image: Image.Image, **options: object) -> str:
    image.save(path, **options)
    return str(path)


@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_a_plain_jpeg_keeps_its_bytes(tmp_path: Path, mode: str) -> None:
    uri = save(tmp_path / "a.jpg", noise(64, 48, mode), quality=60)
    assert build_extractor("images", largest_side=64).load(uri) == Path(uri).read_bytes()


def test_what_is_no_plain_jpeg_is_encoded_with_the_same_pixels(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # lies on its side
    uris = [
        save(tmp_path / "a.png", noise(60, 40)),
        save(tmp_path / "b.jpg", noise(60, 40, "CMYK")),
        save(tmp_path / "c.jpg", noise(60, 40), exif=exif),
        save(tmp_path / "d.gif", noise(60, 40)),
        "scene://0/3",
    ]
    extractor = build_extractor("images")
    for uri in uris:
        data = extractor.load(uri)
        with Image.open(io.BytesIO(data)) as stored:
            assert (stored.format, stored.mode, stored.getexif().get(0x0112)) == ("JPEG", "RGB", None)
            expected = load_image(uri)
            assert stored.size == expected.size
            difference = np.abs(np.asarray(stored, dtype=int) - np.asarray(expected, dtype=int))
        assert difference.mean() < 3


@pytest.mark.parametrize(("size", "expected"), [((200, 100), (80, 40)), ((30, 90), (27, 80)), ((3000, 1), (80, 1))])
def test_large_images_become_smaller(tmp_path: Path, size: tuple[int, int], expected: tuple[int, int]) -> None:
    uri = save(tmp_path / "a.jpg", noise(*size))
    assert decode_image(build_extractor("images", largest_side=80).load(uri)).size == expected
