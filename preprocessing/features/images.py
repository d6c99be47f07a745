"""Read and decode images of any kind into plain 8-bit RGB."""

import io
import stat
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
from PIL import ExifTags, Image, ImageFile, ImageOps, UnidentifiedImageError

from preprocessing.datasets.image_shards import TarMember
from preprocessing.datasets.scenes import parse_scene_uri, render_scene
from preprocessing.reading import memory_ran_out, reason
from preprocessing.storage.address import is_s3, leads_out, split_s3
from preprocessing.storage.base import ObjectError
from preprocessing.storage.opening import open_storage

# Checked on the header, before any pixel is decoded. A pixel takes about 22 bytes until the image has a network's size:
# 1.1 GB, which a machine of 4 GB has next to torch and Ray.
MAX_PIXELS = 50_000_000
_MAX_REDUCTION = 8

# Raster formats only. Left out on purpose: EPS and WMF (hand the file to other programs) and the many exotic
# formats whose decoders nobody attacks and nobody maintains.
FORMATS = ("JPEG", "PNG", "GIF", "WEBP", "BMP", "DIB", "TIFF", "PPM", "JPEG2000", "AVIF")

_WIDE_GREY = ("I", "I;16", "I;16L", "I;16B", "I;16N")


class ImageError(Exception):
    """An image that cannot be used; the message is the reason, in one line."""

    def __init__(self, reason: str) -> None:
        super().__init__(" ".join(reason.split())[:300])


class TemporaryImageError(ImageError):
    """An image that could not be read this time, which says nothing about the image."""


class _PixelBudget:
    """The pixels that the threads of a process decode at the same time, at most a limit together."""

    def __init__(self) -> None:
        self._changed, self._used = threading.Condition(), 0

    @contextmanager
    def reserved(self, pixels: int, limit: int) -> Iterator[None]:
        """Wait until pixels are within the limit, or are the only ones; free them at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._used == 0 or self._used + pixels <= limit)
            self._used += pixels
        try:
            yield
        finally:
            with self._changed:
                self._used -= pixels
                self._changed.notify_all()


_BUDGET = _PixelBudget()


class _File(io.BytesIO):
    """An image file in memory that refuses to be read in tiny pieces.

    Pillow reads chunks in Python, one by one: 7 MB in chunks of some bytes took seconds before there was a pixel.
    """

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self._reads_left = 4096 + len(data) // 256

    def read(self, size: int | None = -1, /) -> bytes:
        """Read on; raises ValueError after too many reads."""
        self._reads_left -= 1
        if self._reads_left < 0:
            raise ValueError("it consists of too many tiny chunks")
        return super().read(size)


def inside(root: str, uri: str) -> str:
    """Return the URI of an image; raise ImageError if it is a link that leads out of the dataset's root, if any."""
    if root and not is_s3(root) and "://" not in uri and leads_out(uri, root):
        raise ImageError(f"is a link that leads out of {root}, and is not opened; copy the image there")
    return uri


def load_image(uri: str) -> Image.Image:
    """Load the image of a record's URI as RGB; errors are those of read_image_bytes and decode_image."""
    return decode_image(read_image_bytes(uri))


@contextmanager
def bounded_image(data: bytes, max_pixels: int) -> Iterator[Image.Image]:
    """Decode an image as :func:`decode_image` does, for threads: together they hold `max_pixels` pixels, or one image.

    Raises ImageError also if memory runs out while the image is used.
    """
    try:
        _, width, height = probe_image(data)
    except ImageError:
        width = height = 0  # decoding says why
    with _BUDGET.reserved(min(width * height, max_pixels), max_pixels):
        try:
            yield decode_image(data, max_pixels)
        except (MemoryError, RuntimeError) as error:
            if not memory_ran_out(error):
                raise
            raise TemporaryImageError(f"{width} x {height} pixels need more memory than there is") from error


def read_image_bytes(uri: str) -> bytes:
    """Read the file, file in an archive or S3 object of a record's URI; scenes are rendered.

    ImageError: it is missing, no regular file, empty, unreadable, or of an unknown kind. StorageError: S3 does not
    answer, or refuses; the image is not at fault, and the next one would fare no better.
    """
    if uri.startswith("scene://"):
        try:
            return render_scene(*parse_scene_uri(uri))
        except ValueError as error:
            raise ImageError(f"not a scene: {error}") from error
    member = TarMember.parse(uri)
    what = f"archive: {member.tar}" if member else "object" if is_s3(uri) else "file"
    try:
        data = _read_address(uri) if member is None else member.read()
    except FileNotFoundError as error:
        raise TemporaryImageError(f"no such {what}") from error
    except ObjectError as error:
        raise TemporaryImageError(str(error)) from error
    except (OSError, EOFError, ValueError, OverflowError, MemoryError) as error:  # ValueError: a NUL in the path
        raise TemporaryImageError(f"cannot be read: {reason(error)}") from error
    if not data:
        raise ImageError(f"the archive has no image {member.name!r}" if member else "the file is empty (zero bytes)")
    return data


def _read_address(uri: str) -> bytes:
    if is_s3(uri):
        bucket, key = split_s3(uri)
        return open_storage(f"s3://{bucket}").read(key)
    if "://" in uri:
        raise ImageError(f"unsupported address {uri.partition('://')[0]}://; a local path, s3:// or scene:// is needed")
    mode = Path(uri).stat().st_mode
    if stat.S_ISDIR(mode):
        raise ImageError("is a folder, not a file")
    if not stat.S_ISREG(mode):
        raise ImageError("is not a regular file")
    return Path(uri).read_bytes()


@contextmanager
def _opened(data: bytes, formats: Sequence[str] = FORMATS) -> Iterator[ImageFile.ImageFile]:
    """Open an encoded image for the block; whatever Pillow raises on a damaged one becomes an ImageError."""
    if not data:
        raise ImageError("the file is empty (zero bytes)")
    try:
        with Image.open(_File(data), formats=tuple(formats)) as image:
            yield image
    except ImageError:
        raise
    except UnidentifiedImageError as error:
        raise ImageError(f"not an image in one of the formats {', '.join(formats)}") from error
    except MemoryError as error:
        raise TemporaryImageError("decoding it needs more memory than there is") from error
    except Exception as error:  # Pillow's decoders raise what they like
        raise ImageError(f"damaged image: {error or type(error).__name__}") from error


def probe_image(data: bytes, formats: Sequence[str] = FORMATS) -> tuple[str, int, int]:
    """Read format, width and height from an encoded image's header, decoding no pixel; raises ImageError."""
    with _opened(data, formats) as image:
        return "JPEG" if _is_jpeg(image) else image.format or "", *image.size


def decode_image(data: bytes, max_pixels: int = MAX_PIXELS) -> Image.Image:
    """Decode an image into 8-bit RGB, upright.

    Grey levels are replicated; 16-bit levels are scaled to 8 bits; CMYK and other colour spaces are converted;
    transparency is laid over white; of an animation the first frame is taken; the EXIF orientation is applied. EXIF
    data that cannot be parsed are ignored, as browsers do. A baseline JPEG of more than `max_pixels` pixels is decoded
    at a half, a quarter or an eighth of its sides.

    ImageError: empty, in none of FORMATS, damaged or cut short, of more than `max_pixels` pixels, or with pixels that
    have no defined range (floating point, 32-bit integers).
    """
    with _opened(data) as image:
        _reduce(image, max_pixels)
        image.load()
        return _plain(image)


def plain_image(image: Image.Image) -> Image.Image:
    """Convert an image that Pillow has opened as :func:`decode_image` does; raises ImageError."""
    try:
        return _plain(image.copy())
    except (OSError, ValueError) as error:  # its file was not read yet, and is damaged or closed
        raise ImageError(f"cannot be read: {reason(error)}") from error


def _plain(image: Image.Image) -> Image.Image:
    return _to_rgb(image if _is_upright(image) else ImageOps.exif_transpose(image))


def _reduce(image: ImageFile.ImageFile, max_pixels: int) -> None:
    """Have a JPEG that is too large decoded at a fraction of its sides; raise ImageError for any other image."""
    width, height = image.size
    reduction = 1
    while width * height > max_pixels * reduction**2 and reduction < _MAX_REDUCTION:
        reduction *= 2
    # A progressive JPEG has all coefficients in memory at once, at any size.
    if reduction > 1 and _is_jpeg(image) and "progressive" not in image.info:
        image.draft(image.mode, (width // reduction, height // reduction))
    if image.width * image.height > max_pixels:
        raise ImageError(f"{width} x {height} pixels, more than the limit of {max_pixels}")


def _is_jpeg(image: Image.Image) -> bool:
    """Return whether an image is a JPEG, or one with further pictures in it, as cameras write: Pillow calls it MPO."""
    return image.format in ("JPEG", "MPO")


def image_bytes(image: Image.Image, form: str, **options: int) -> bytes:
    """Encode an image as a file of one of FORMATS."""
    data = io.BytesIO()
    image.save(data, form, **options)
    return data.getvalue()


def fitted(image: Image.Image, side: int) -> Image.Image:
    """Scale an image so that its longer side has `side` pixels; the shorter one keeps at least one."""
    scale = side / max(image.size)
    width, height = (max(1, round(length * scale)) for length in image.size)
    return image.resize((width, height), Image.Resampling.BICUBIC)


def thumbnail(image: Image.Image) -> bytes:
    """Return an image as a JPEG of at most 480 pixels a side, for a page; about 30 kB."""
    return image_bytes(fitted(image, 480) if max(image.size) > 480 else image, "JPEG", quality=85)


def is_plain_jpeg(data: bytes) -> bool:
    """Return whether an image is a JPEG of the same pixels to every reader: RGB or grey, and upright."""
    with _opened(data) as image:
        return image.format == "JPEG" and image.mode in ("RGB", "L") and _is_upright(image)


def _is_upright(image: Image.Image) -> bool:
    with suppress(Exception):  # EXIF data that cannot be parsed say nothing about the pixels
        is_turned = image.getexif().get(ExifTags.Base.Orientation) in range(2, 9)
        for key in ("exif", "Raw profile type exif"):  # Pillow would write them for a turned image, which may fail
            image.info.pop(key, None)
        return not is_turned
    return True


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode in _WIDE_GREY:
        return _wide_grey_to_rgb(image)
    if image.mode == "F":
        raise ImageError("floating-point pixels (mode F) have no defined range; convert the image to 8 bits")
    if not image.has_transparency_data:
        return image.convert("RGB")
    if image.mode in ("La", "RGBa"):  # premultiplied; Pillow converts each to its plain counterpart only
        image = image.convert({"La": "LA", "RGBa": "RGBA"}[image.mode])
    colours = image.convert("RGBA")
    over_white = Image.new("RGB", image.size, (255, 255, 255))
    over_white.paste(colours, mask=colours)
    return over_white


def _wide_grey_to_rgb(image: Image.Image) -> Image.Image:
    """Grey levels of 16 bits, 0 .. 65535 -> 0 .. 255, rounded; the transparent level, if there is one, to white."""
    levels = np.asarray(image)
    low, high = int(levels.min()), int(levels.max())
    if low < 0 or high > 65535:
        raise ImageError(f"grey levels {low} .. {high} are not 16-bit; convert the image to 8 bits")
    table = ((np.arange(65536, dtype=np.int64) * 255 + 32767) // 65535).astype(np.uint8)
    transparent = image.info.get("transparency")
    if isinstance(transparent, int) and 0 <= transparent <= 65535:
        table[transparent] = 255
    return Image.fromarray(table[levels]).convert("RGB")
