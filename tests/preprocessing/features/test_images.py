"""Odd image files of every kind: converted properly, or refused with one line of reason; nothing else escapes."""

import io
import os
import random
import struct
import threading
import time
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from preprocessing.datasets.scenes import render_scene
from preprocessing.features.images import (
    FORMATS,
    MAX_PIXELS,
    ImageError,
    bounded_image,
    decode_image,
    load_image,
    plain_image,
    probe_image,
    read_image_bytes,
)

RED, GREEN, WHITE = (255, 0, 0), (0, 255, 0), (255, 255, 255)


def encode(image: Image.Image, format_name: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format_name, **options)
    return buffer.getvalue()


def photo(size: tuple[int, int] = (40, 30)) -> Image.Image:
    y, x = np.mgrid[0 : size[1], 0 : size[0]]
    return Image.fromarray(np.stack([x * 5, y * 7, x + y], -1).astype(np.uint8))


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width: int, height: int, depth: int, colour_type: int, rows: bytes, extra: bytes = b"") -> bytes:
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour_type, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + extra + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def png16(values: list[int], colour_type: int, channels: int, extra: bytes = b"") -> bytes:
    rows = b"\x00" + struct.pack(f">{len(values)}H", *values)
    return png(len(values) // channels, 1, 16, colour_type, rows, extra)


def palette_image(**options: object) -> bytes:
    image = Image.new("P", (2, 1))
    image.putpalette([255, 0, 0, 0, 255, 0])
    image.putpixel((1, 0), 1)
    return encode(image, "PNG", **options)


def animation(format_name: str) -> bytes:
    frames = [Image.new("RGB", (4, 4), colour) for colour in (RED, GREEN)]
    options = {"lossless": True} if format_name == "WEBP" else {}
    return encode(frames[0], format_name, save_all=True, append_images=frames[1:], **options)


def grey_alpha() -> bytes:
    image = Image.new("LA", (2, 1), (0, 255))
    image.putpixel((1, 0), (0, 0))
    return encode(image, "PNG")


def half_transparent() -> bytes:
    image = Image.new("RGBA", (2, 1), (255, 0, 0, 255))
    image.putpixel((1, 0), (0, 0, 0, 128))
    return encode(image, "PNG")


# What is made of each file: the pixels of its first row.
CONVERTED: dict[str, tuple[Callable[[], bytes], list[tuple[int, int, int]]]] = {
    "RGB PNG": (lambda: encode(Image.new("RGB", (2, 1), RED), "PNG"), [RED, RED]),
    "greyscale": (lambda: encode(Image.new("L", (1, 1), 77), "PNG"), [(77, 77, 77)]),
    "greyscale JPEG": (lambda: encode(Image.new("L", (1, 1), 128), "JPEG"), [(128, 128, 128)]),
    "black and white": (lambda: encode(Image.new("1", (1, 1), 1), "PNG"), [WHITE]),
    "CMYK TIFF": (lambda: encode(Image.new("CMYK", (1, 1), (0, 255, 255, 0)), "TIFF"), [RED]),
    "palette": (palette_image, [RED, GREEN]),
    "palette, one colour transparent": (lambda: palette_image(transparency=1), [RED, WHITE]),
    "palette, half transparent": (lambda: palette_image(transparency=bytes([255, 127])), [RED, (128, 255, 128)]),
    "RGBA over white": (half_transparent, [RED, (127, 127, 127)]),
    "LA over white": (grey_alpha, [(0, 0, 0), WHITE]),
    "RGB, one colour transparent": (
        lambda: encode(Image.new("RGB", (1, 1), GREEN), "PNG", transparency=GREEN),
        [WHITE],
    ),
    "grey, one level transparent": (lambda: encode(Image.new("L", (1, 1), 9), "PNG", transparency=9), [WHITE]),
    "16-bit grey": (lambda: png16([0, 257, 32768, 65535], 0, 1), [(v, v, v) for v in (0, 1, 128, 255)]),
    "16-bit grey, transparent level": (
        lambda: png16([0, 257], 0, 1, chunk(b"tRNS", struct.pack(">H", 257))),
        [(0, 0, 0), WHITE],
    ),
    "16-bit RGB": (lambda: png16([65535, 0, 32896, 257, 514, 771], 2, 3), [(255, 0, 128), (1, 2, 3)]),
    "16-bit RGBA": (lambda: png16([65535, 0, 0, 65535, 0, 0, 0, 0], 6, 4), [RED, WHITE]),
    "16-bit grey and alpha": (lambda: png16([32896, 65535, 0, 0], 4, 2), [(128, 128, 128), WHITE]),
    "16-bit TIFF": (
        lambda: encode(Image.fromarray(np.array([[0, 65535]], dtype=np.uint16)), "TIFF"),
        [(0, 0, 0), WHITE],
    ),
    "16-bit PGM": (lambda: b"P5 2 1 65535\n" + struct.pack(">2H", 65535, 257), [WHITE, (1, 1, 1)]),
    "32-bit TIFF within 16 bits": (
        lambda: encode(Image.fromarray(np.array([[0, 65535]], dtype=np.int32)), "TIFF"),
        [(0, 0, 0), WHITE],
    ),
    "animated GIF": (lambda: animation("GIF"), [RED] * 4),
    "animated WebP": (lambda: animation("WEBP"), [RED] * 4),
    "animated PNG": (lambda: animation("PNG"), [RED] * 4),
    "BMP": (lambda: encode(Image.new("RGB", (1, 1), GREEN), "BMP"), [GREEN]),
    "LAB TIFF": (lambda: encode(Image.new("LAB", (1, 1), (255, 128, 128)), "TIFF"), [WHITE]),
}


@pytest.mark.parametrize("kind", CONVERTED)
def test_converts(kind: str, tmp_path: Path) -> None:
    make, expected = CONVERTED[kind]
    path = tmp_path / "image.jpg"
    path.write_bytes(make())
    image = load_image(str(path))
    assert image.mode == "RGB"
    found = [image.getpixel((x, 0)) for x in range(image.width)]
    assert np.abs(np.array(found) - np.array(expected)).max() <= 1, found


def test_cmyk_jpeg_keeps_its_colours() -> None:
    """Adobe's CMYK JPEGs hold inverted inks: read naively, this red would turn cyan."""
    image = decode_image(encode(Image.new("CMYK", (16, 16), (0, 255, 255, 0)), "JPEG", quality=95))
    assert np.abs(np.asarray(image).astype(int) - RED).max() < 12


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_applied(orientation: int) -> None:
    """The oracle moves each pixel by the definition of the eight orientations."""
    upright = np.arange(6, dtype=np.uint8).reshape(2, 3) * 40
    stored = {
        1: upright, 2: upright[:, ::-1], 3: upright[::-1, ::-1], 4: upright[::-1], 5: upright.T,
        6: np.rot90(upright, 1), 7: upright[::-1, ::-1].T, 8: np.rot90(upright, -1),
    }[orientation]  # fmt: skip
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = encode(Image.fromarray(np.ascontiguousarray(stored)), "PNG", exif=exif)
    assert np.asarray(decode_image(data))[..., 0].tolist() == upright.tolist()
    opened = Image.open(io.BytesIO(data))
    for _ in range(2):  # the caller's image stays as it is
        assert np.asarray(plain_image(opened))[..., 0].tolist() == upright.tolist()


@pytest.mark.parametrize("mode", ["1", "P", "L", "LA", "RGBA", "CMYK", "YCbCr", "HSV", "I;16"])
def test_a_decoded_image_becomes_what_its_file_gives(mode: str) -> None:
    image = photo().convert("L") if mode == "I;16" else photo()
    plain = plain_image(image.convert(mode))
    assert (plain.mode, plain.size) == ("RGB", (40, 30))
    if mode in ("RGBA", "CMYK"):
        data = encode(image.convert(mode), "TIFF")
        assert np.array_equal(np.asarray(plain), np.asarray(decode_image(data)))


def test_a_decoded_image_that_cannot_be_converted_is_refused() -> None:
    with pytest.raises(ImageError, match="floating-point pixels"):
        plain_image(Image.new("F", (2, 2), 0.5))
    with pytest.raises(ImageError, match=r"cannot be read: .*truncated"):
        plain_image(Image.open(io.BytesIO(encode(photo(), "JPEG")[:-20])))


@pytest.mark.filterwarnings("ignore:Corrupt EXIF data")
def test_broken_exif_does_not_lose_the_photograph() -> None:
    assert decode_image(encode(photo(), "JPEG", exif=b"Exif\x00\x00II*\x00\xff\xff\xff\xff")).size == (40, 30)


@pytest.mark.parametrize("format_name", ["JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF", "PPM", "JPEG2000", "AVIF"])
def test_every_format_is_read_and_refused_when_cut_short(format_name: str) -> None:
    assert format_name in FORMATS
    rng = np.random.default_rng(0)
    whole = encode(Image.fromarray(rng.integers(0, 256, (40, 50, 3), dtype=np.uint8)), format_name)
    assert decode_image(whole).size == (50, 40)
    for part in (0.3, 0.6, 0.9):
        if format_name == "JPEG2000":
            # By design a JPEG 2000 stream decodes, coarsely, from any prefix of its packets.
            continue
        with pytest.raises(ImageError) as caught:
            decode_image(whole[: int(len(whole) * part)])
        assert "\n" not in str(caught.value)


BOMB = png(20_000, 20_000, 8, 2, b"")

REFUSED: dict[str, tuple[Callable[[], bytes], str]] = {
    "zero bytes": (lambda: b"", r"empty \(zero bytes\)"),
    "text": (lambda: b"This is no picture.\n", "not an image in one of the formats"),
    "SVG": (lambda: b"<svg xmlns='http://www.w3.org/2000/svg'/>", "not an image in one of the formats"),
    "HTML error page": (lambda: b"<!DOCTYPE html><title>404</title>", "not an image in one of the formats"),
    "PDF": (lambda: b"%PDF-1.7\n", "not an image in one of the formats"),
    "EPS is never handed to Ghostscript": (lambda: encode(photo(), "EPS"), "not an image in one of the formats"),
    "only the first bytes": (lambda: encode(photo(), "JPEG")[:3], "not an image|damaged"),
    "truncated JPEG": (lambda: encode(photo((400, 300)), "JPEG")[:3000], "damaged image: .*truncated"),
    "truncated PNG": (lambda: encode(photo((400, 300)), "PNG")[:600], "damaged image"),
    "corrupt PNG": (lambda: encode(photo(), "PNG").replace(b"IDAT", b"IDAT\x00", 1), "damaged image"),
    "bomb by its header": (lambda: BOMB, "decompression bomb"),
    "bomb just over the limit": (lambda: png(MAX_PIXELS + 1, 1, 8, 0, b""), "pixels, more than the limit"),
    "bomb of text": (
        lambda: png(1, 1, 8, 0, b"\x00\x00", chunk(b"zTXt", b"k\x00\x00" + zlib.compress(b"x" * 3_000_000))),
        "damaged image",
    ),
    "no width": (lambda: png(0, 5, 8, 2, b""), "damaged image|not an image"),
    "floating point": (lambda: encode(Image.new("F", (2, 2), 0.5), "TIFF"), "floating-point pixels"),
    "32-bit integers": (
        lambda: encode(Image.fromarray(np.array([[0, 10**6]], dtype=np.int32)), "TIFF"),
        r"grey levels 0 \.\. 1000000 are not 16-bit",
    ),
    "negative levels": (
        lambda: encode(Image.fromarray(np.array([[-5, 7]], dtype=np.int32)), "TIFF"),
        r"grey levels -5 \.\. 7 are not 16-bit",
    ),
}


@pytest.mark.parametrize("kind", REFUSED)
@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_refuses_with_a_reason(kind: str, tmp_path: Path) -> None:
    make, reason = REFUSED[kind]
    path = tmp_path / "image.jpg"
    path.write_bytes(make())
    with pytest.raises(ImageError, match=reason) as caught:
        load_image(str(path))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) <= 300
    assert "This is no picture" not in str(caught.value), "a link may lead to a secret"


def test_the_limit_holds_where_pillows_own_is_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
    with pytest.raises(ImageError, match=r"20000 x 20000 pixels, more than the limit"):
        decode_image(BOMB)


def test_paths_that_are_no_files(tmp_path: Path) -> None:
    fifo = tmp_path / "pipe.jpg"
    os.mkfifo(fifo)
    for uri, reason in (
        (tmp_path / "gone.jpg", "no such file"),
        (tmp_path, "is a folder, not a file"),
        (fifo, "is not a regular file"),
        ("/dev/zero", "is not a regular file"),
        (tmp_path / "gone" / "a.jpg", "no such file"),
        (f"{tmp_path}/a\0.jpg", "cannot be read"),
        (tmp_path / ("x" * 5000), "cannot be read: File name too long"),
        ("https://example.org/a.jpg", "unsupported address https://"),
        ("scene://0", "not a scene"),
        ("scene://0/9999999999", "not a scene: scene index 9999999999 is outside"),
    ):
        with pytest.raises(ImageError, match=reason) as caught:
            load_image(str(uri))
        assert "\n" not in str(caught.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(encode(photo(), "PNG"))
    path.chmod(0)
    with pytest.raises(ImageError, match="cannot be read: Permission denied"):
        load_image(str(path))


def test_scenes_are_rendered() -> None:
    assert read_image_bytes("scene://3/4") == render_scene(3, 4)
    assert load_image("scene://3/4").size == (128, 128)


@pytest.mark.parametrize("format_name", ["JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF", "PPM", "JPEG2000", "AVIF"])
@pytest.mark.filterwarnings("ignore")
def test_nothing_but_image_errors_escapes_from_damaged_bytes(format_name: str) -> None:
    """Bytes flipped, cut out and doubled at random: decoded or refused, never anything else."""
    rng = random.Random(format_name)
    exif = Image.Exif()
    exif[0x0112], exif[0x010F] = 6, "maker"
    options = {"exif": exif} if format_name in ("JPEG", "PNG", "WEBP") else {}
    whole = encode(photo(), format_name, **options)
    for _ in range(60):
        data = bytearray(whole)
        for _ in range(rng.randint(1, 6)):
            place = rng.randrange(min(len(data), rng.choice((64, 400, len(data)))))
            action = rng.randrange(3)
            if action == 0:
                data[place] = rng.randrange(256)
            elif action == 1:
                del data[place : place + rng.randint(1, 9)]
            else:
                data[place:place] = data[place : place + rng.randint(1, 9)]
        try:
            image = decode_image(bytes(data))
        except ImageError:
            continue
        assert image.mode == "RGB"
        assert np.asarray(image).shape == (image.height, image.width, 3)


def test_a_jpeg_above_the_limit_is_decoded_at_a_fraction_of_its_sides() -> None:
    picture = photo((401, 303))
    data = encode(picture, "JPEG", quality=95)
    assert np.array_equal(np.asarray(decode_image(data, 401 * 303)), np.asarray(decode_image(data)))
    for limit, size in ((401 * 303 - 1, (201, 152)), (30_000, (101, 76)), (2_000, (51, 38))):
        assert decode_image(data, limit).size == size
        of_a_camera = encode(picture, "MPO", save_all=True, append_images=[photo((40, 30))])
        assert decode_image(of_a_camera, limit).size == size
        assert probe_image(of_a_camera) == ("JPEG", 401, 303)
    for other in (encode(picture, "JPEG", progressive=True), encode(picture, "PNG")):
        with pytest.raises(ImageError, match="401 x 303 pixels, more than the limit of 30000"):
            decode_image(other, 30_000)
    with pytest.raises(ImageError, match="401 x 303 pixels, more than the limit of 1000"):
        decode_image(data, 1_000)


def test_threads_share_the_limit() -> None:
    data, held, most, lock = encode(photo(), "PNG"), 0, 0, threading.Lock()

    def work(_: int) -> None:
        nonlocal held, most
        with bounded_image(data, 2 * 40 * 30) as image:
            with lock:
                held += image.width * image.height
                most = max(most, held)
            time.sleep(0.05)
            with lock:
                held -= image.width * image.height

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert most == 2 * 40 * 30


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes")]
)
def test_an_image_for_which_memory_runs_out_is_named(error: Exception) -> None:
    data = encode(photo(), "PNG")
    with pytest.raises(ImageError, match="40 x 30 pixels need more memory"), bounded_image(data, 9999):
        raise error
    with pytest.raises(RuntimeError, match="a mistake"), bounded_image(data, 9999):
        raise RuntimeError("a mistake")
