"""LMDB stores with one entry an image: npz files, or ViLBERT's dictionaries of base64 arrays."""

import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from preprocessing.features.extractor import ExtractorError
from preprocessing.features.images import ImageError
from preprocessing.features.importers.folder import read_npz
from preprocessing.features.importers.source import PublishedRegions, base64_array, flat_regions
from preprocessing.features.plain_pickle import read_plain
from preprocessing.reading import damage_as

# ViLBERT's stores list their keys under this one.
_KEYS = b"keys"


class LmdbStore:
    """Entries by image id. A value is an npz file with MILVLG's names, or a pickled dictionary of plain values.

    ViLBERT's dictionaries hold num_boxes, boxes and features (base64 of float32) and perhaps image_w and image_h; see
    :func:`read_plain` for what of such a pickle is built.
    """

    def __init__(self, path: Path) -> None:
        try:
            import lmdb
        except ImportError as error:
            raise ExtractorError("LMDB stores are read by lmdb: pip install 'vse-pipeline[features]'") from error
        self._path = path
        file = path / "data.mdb" if path.is_dir() else path
        if not file.is_file():
            raise ExtractorError(f"{path} holds no data.mdb; name the folder of the LMDB store")
        with damage_as(ExtractorError, f"{path} cannot be read as an LMDB store", "download it again"):
            # Unlocked, for the folder may be read-only: nobody writes a published store.
            self._store = lmdb.open(str(path), subdir=path.is_dir(), readonly=True, lock=False, readahead=False)
        needed = (self._store.info()["last_pgno"] + 1) * self._store.stat()["psize"]
        if file.stat().st_size < needed:  # reading beyond the end of the mapped file would kill the process
            raise ExtractorError(
                f"{file} was cut short: {file.stat().st_size:,} of {needed:,} bytes; download it again"
            )

    def places(self) -> Iterator[tuple[str, bytes]]:
        """Keys, in their order."""
        damage = damage_as(ExtractorError, f"{self._path} is damaged", "download it again")
        with damage, self._store.begin() as transaction:
            for key in transaction.cursor().iternext(keys=True, values=False):
                if key != _KEYS:
                    yield key.decode("utf-8", "replace"), key

    def read(self, place: bytes) -> PublishedRegions:
        """The entry of a key."""
        with damage_as(ImageError, "damaged entry", "download the store again"), self._store.begin() as transaction:
            value = transaction.get(place)
        if value is None:
            raise ImageError("the entry is gone")
        if value.startswith(b"PK"):
            return read_npz(io.BytesIO(value))
        with damage_as(ImageError, "neither an npz file nor a pickle of plain values", "download the store again"):
            entry = read_plain(value)
        return _from_dictionary(entry)


def _from_dictionary(entry: Any) -> PublishedRegions:
    if not isinstance(entry, Mapping):
        raise ImageError(f"a {type(entry).__name__} where a dictionary is needed")
    missing = {"num_boxes", "boxes", "features"} - set(entry)
    if missing:
        raise ImageError(f"a dictionary without {', '.join(sorted(missing))}")
    count = entry["num_boxes"]
    if not isinstance(count, int) or count < 1:
        raise ImageError(f"num_boxes is {count!r:.40}, a positive whole number is needed")
    features, boxes = (base64_array(entry[name], "<f4", name) for name in ("features", "boxes"))
    width, height = entry.get("image_w"), entry.get("image_h")
    size = (width, height) if isinstance(width, int) and isinstance(height, int) else None
    return flat_regions(count, features, boxes, size)
