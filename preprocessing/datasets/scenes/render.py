"""Draws a scene: anti-aliased shapes in whole-number arithmetic, and a PNG of the same bytes on every machine."""

import struct
import zlib
from collections.abc import Callable
from functools import cache, partial

import numpy as np
import numpy.typing as npt

from preprocessing.datasets.scenes.layout import CANVAS, Scene, SceneObject

# Chosen to differ in lightness as well as in hue, so that they stay apart for colour-blind eyes.
_FILL = {
    "red": (200, 30, 35),
    "orange": (240, 140, 20),
    "yellow": (248, 226, 60),
    "green": (20, 140, 80),
    "blue": (25, 85, 200),
    "pink": (245, 150, 195),
    "white": (250, 250, 250),
    "black": (15, 15, 15),
}
_BACKGROUND = {"grey": (140, 143, 148), "beige": (216, 198, 164), "purple": (104, 76, 140), "brown": (122, 84, 58)}
_LIGHT, _DARK = (252, 252, 252), (18, 18, 18)
_GREY_MARK = (120, 120, 120)

# Geometry in eighths of a pixel; each pixel has 4 x 4 sample points at its odd eighths.
_UNIT = 8
_SAMPLES = 4
_OUTLINE = 5  # samples, i.e. 1.25 pixels
_STRIPE = 28  # width of a stripe, eighths of a pixel
_DOT_PERIOD, _DOT_RADIUS = 52, 15

# Corners in thousandths of the radius; y points down.
_TRIANGLE = ((0, -1000), (950, 760), (-950, 760))
_STAR = (
    (0, -1000), (250, -344), (998, -324), (404, 131), (617, 849),
    (0, 425), (-617, 849), (-404, 131), (-998, -324), (-250, -344),
)  # fmt: skip
_HEART_TIP = ((-905, -55), (0, 960), (905, -55), (0, -420))

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


def render_pixels(scene: Scene) -> npt.NDArray[np.uint8]:
    """Return the image of a scene, (CANVAS, CANVAS, 3) uint8 RGB.

    Whole numbers throughout, so that no machine rounds differently. The background is lit from the top left, so that
    even a feature with a small field of view can tell where in the image it is.
    """
    canvas = _background(scene.background).copy()
    for item in scene.objects:
        _paint(canvas, item)
    return canvas.astype(np.uint8)


@cache
def _background(name: str) -> Ints:
    rows, columns = np.mgrid[0:CANVAS, 0:CANVAS].astype(np.int64)
    light = (CANVAS // 2 - rows) * 40 // CANVAS + (CANVAS // 2 - columns) * 24 // CANVAS
    lit: Ints = np.clip(np.array(_BACKGROUND[name], dtype=np.int64) + light[..., None], 0, 255)
    return lit


def encode_png(pixels: npt.NDArray[np.uint8]) -> bytes:
    """Return an 8-bit RGB PNG of (H, W, 3) pixels as one stored block: compressors differ between builds of zlib."""
    height, width, _ = pixels.shape
    raw = b"".join(b"\x00" + row.tobytes() for row in pixels)
    stream = (
        b"\x78\x01" + struct.pack("<BHH", 1, len(raw), 65535 - len(raw)) + raw + struct.pack(">I", zlib.adler32(raw))
    )
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", stream) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _paint(canvas: Ints, item: SceneObject) -> None:
    outline, fill, marks = _coverage(item.shape, item.texture, item.radius)
    half = outline.shape[0] // 2
    window = canvas[item.y - half : item.y + half, item.x - half : item.x + half]
    edge = _LIGHT if item.colour == "black" else _DARK
    mark = _GREY_MARK if item.colour in ("white", "black") else _LIGHT
    for coverage, colour in ((outline, edge), (fill, _FILL[item.colour]), (marks, mark)):
        full = _SAMPLES * _SAMPLES
        share = coverage[..., None]
        window[...] = (window * (full - share) + np.array(colour, dtype=np.int64) * share + full // 2) // full


@cache
def _coverage(shape: str, texture: str, radius: int) -> tuple[Ints, Ints, Ints]:
    """Return the covered samples of each pixel for outline, fill and the texture's marks, three (S, S) arrays."""
    half = radius + 2  # room for the outline
    points = np.arange(-half * _SAMPLES, half * _SAMPLES, dtype=np.int64) * (_UNIT // _SAMPLES) + 1
    y, x = np.meshgrid(points, points, indexing="ij")
    fill = _INSIDE[shape](x, y, radius * _UNIT)
    marks = fill & _texture(texture, x, y)
    return _per_pixel(_dilate(fill)), _per_pixel(fill), _per_pixel(marks)


def _per_pixel(samples: Bools) -> Ints:
    pixels = samples.shape[0] // _SAMPLES
    counts: Ints = samples.reshape(pixels, _SAMPLES, pixels, _SAMPLES).sum(axis=(1, 3), dtype=np.int64)
    return counts


def _dilate(samples: Bools) -> Bools:
    """Return all samples within _OUTLINE of a covered one; shapes keep clear of the border, so the roll never wraps."""
    grown = samples.copy()
    for dy in range(-_OUTLINE, _OUTLINE + 1):
        for dx in range(-_OUTLINE, _OUTLINE + 1):
            if dx * dx + dy * dy <= _OUTLINE * _OUTLINE:
                grown |= np.roll(samples, (dy, dx), axis=(0, 1))
    return grown


def _texture(texture: str, x: Ints, y: Ints) -> Bools:
    """Return the points that a texture marks in its second colour, none if it is plain."""
    marked: Bools = np.zeros(x.shape, dtype=np.bool_)
    if texture == "striped":
        marked = (x + y) // _STRIPE % 2 == 0
    elif texture == "dotted":
        half = _DOT_PERIOD // 2
        marked = _disc((x + half) % _DOT_PERIOD - half, (y + half) % _DOT_PERIOD - half, _DOT_RADIUS)
    return marked


def _disc(x: Ints, y: Ints, r: int) -> Bools:
    return x * x + y * y <= r * r


def _polygon(x: Ints, y: Ints, r: int, corners: tuple[tuple[int, int], ...]) -> Bools:
    """Even-odd rule: a point is inside when a ray to the right of it crosses an odd number of edges."""
    inside = np.zeros(x.shape, dtype=np.bool_)
    scaled = [(cx * r, cy * r) for cx, cy in corners]
    px, py = x * 1000, y * 1000
    for (x1, y1), (x2, y2) in zip(scaled, scaled[1:] + scaled[:1], strict=True):
        spans = (y1 > py) != (y2 > py)
        side = (px - x1) * (y2 - y1) - (x2 - x1) * (py - y1)
        inside ^= spans & ((side < 0) == (y2 > y1))
    return inside


def _heart(x: Ints, y: Ints, r: int) -> Bools:
    lobes = _disc(np.abs(x) - r * 470 // 1000, y + r * 360 // 1000, r * 530 // 1000)
    return lobes | _polygon(x, y, r, _HEART_TIP)


# For each shape the points (x, y), in eighths of a pixel from the centre, that it covers with a radius of r.
_INSIDE: dict[str, Callable[[Ints, Ints, int], Bools]] = {
    "circle": _disc,
    "square": lambda x, y, r: np.maximum(np.abs(x), np.abs(y)) * 100 <= 88 * r,
    "triangle": partial(_polygon, corners=_TRIANGLE),
    "star": partial(_polygon, corners=_STAR),
    "cross": lambda x, y, r: (
        (np.minimum(np.abs(x), np.abs(y)) * 100 <= 34 * r) & (np.maximum(np.abs(x), np.abs(y)) <= r)
    ),
    "ring": lambda x, y, r: _disc(x, y, r) & ~_disc(x, y, r * 60 // 100),
    "diamond": lambda x, y, r: np.abs(x) * 100 + np.abs(y) * 82 <= 82 * r,
    "heart": _heart,
}
