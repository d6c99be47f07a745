"""Bottom-up attention's TSV files: those of the Caffe code (6 columns) and those of LXMERT (10 columns)."""

import base64
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from preprocessing.features.extractor import LABELS, Array, ExtractorError, RegionFeatures, checked_regions
from preprocessing.features.images import ImageError

# Columns by their number. Note width before height in the one and after it in the other. Arrays are base64 of their
# little-endian bytes: whole numbers of 8 bytes, all else float32.
COLUMNS = {
    6: ("image_id", "width", "height", "count", "boxes", "features"),
    10: ("image_id", "height", "width", *LABELS, "count", "boxes", "features"),
}
# A line of 100 regions has a million characters; a file without lines should not be read at once.
_LONGEST_LINE = 1 << 26

# Offset of a line in the file, and its length, in bytes.
Place = tuple[int, int]


def places(path: Path) -> Iterator[tuple[str, Place]]:
    """Yield ids and lines, in the order of a file of one image a line; reads all of it once, a line at a time."""
    if not path.is_file():
        raise ExtractorError(f"published features: {path} is not a file; name the TSV itself")
    offset = 0
    with path.open("rb") as file:
        while line := file.readline(_LONGEST_LINE):
            if len(line) == _LONGEST_LINE:
                raise ExtractorError(f"{path}: a line of more than {_LONGEST_LINE} bytes: not a TSV file")
            if line.strip():
                yield line.partition(b"\t")[0].decode("utf-8", "replace").strip()[:200], (offset, len(line))
            offset += len(line)


def read_regions(path: Path, place: Place) -> RegionFeatures:
    """Return the regions of the image of a line; ImageError if it is damaged."""
    offset, length = place
    with path.open("rb") as file:
        file.seek(offset)
        values = file.read(length).rstrip(b"\r\n").split(b"\t")
    if len(values) not in COLUMNS:
        raise ImageError(f"{len(values)} columns instead of 6 or 10; the line may be cut short")
    row = dict(zip(COLUMNS[len(values)], values, strict=True))
    if not row["count"].isdigit() or not 0 < len(row["count"]) < 10 or int(row["count"]) == 0:
        raise ImageError(f"count is {row['count'][:40]!r}, a positive whole number is needed")
    count = int(row["count"])
    boxes, features = (_numbers(row[name], "<f4", name) for name in ("boxes", "features"))
    labels = {
        name: _numbers(row[name], "<i8" if kind is np.int32 else "<f4", name)
        for name, kind in LABELS.items()
        if name in row
    }
    if len(features) % count or len(boxes) != 4 * count:
        raise ImageError(f"{len(features)} numbers of features and {len(boxes)} of boxes for {count} boxes")
    return checked_regions(features.reshape(count, -1), boxes.reshape(count, 4), labels)


def _numbers(text: bytes, dtype: str, name: str) -> Array:
    try:
        numbers: Array = np.frombuffer(base64.b64decode(text, validate=True), dtype)
    except ValueError as error:
        raise ImageError(f"{name}: no base64 of {np.dtype(dtype)} ({error}); damaged or cut short") from error
    return numbers
