"""Reader of the published precomputed layout: `{split}_caps.txt`, `{split}_ids.txt` and `{split}_ims.npy`."""

from collections.abc import Iterator
from pathlib import Path

from preprocessing.datasets.checks import load_array, numbered_lines, require_file, require_folder, require_new
from preprocessing.datasets.record import Caption, DatasetError, Record

CAPTIONS_PER_IMAGE = 5
_FILES = ("caps.txt", "ids.txt", "ims.npy")


class PrecomputedDataset:
    """The layout in which SCAN and VSE-infinity published their region features, in the folder `root`.

    A caption a line, five lines in a row an image. The files of ids and of features hold either one row an image (as
    train does) or each image five times in a row (as dev, test and testall do), as the counts tell of each file. The
    image id is that of the ids file, a caption's id is `SPLIT#LINE` with lines counted from 0.

    Differs from the released training code, which looks at the first 5,000 captions of dev only.
    """

    def __init__(self, root: str | Path) -> None:
        self._folder = require_folder(root, "precomputed dataset, 'root'")
        self.root = str(self._folder)
        found = sorted(path.name.removesuffix("_ims.npy") for path in self._folder.glob("*_ims.npy"))
        if not found:
            needed = "SPLIT_ims.npy, SPLIT_caps.txt and SPLIT_ids.txt of each split are needed"
            raise DatasetError(f"precomputed dataset, 'root': no SPLIT_ims.npy in {self._folder}; {needed}")
        self.splits = tuple(found)

    def records(self, split: str) -> Iterator[Record]:
        """Yield the records of a split, one an image, in the order of its files; a DatasetError says what is wrong."""
        captions_file, ids_file, features_file = (
            require_file(self._folder / f"{split}_{ending}", f"split {split!r}") for ending in _FILES
        )
        captions = [text for _, text in numbered_lines(captions_file)]
        ids = [line.strip() for _, line in numbered_lines(ids_file)]
        rows = len(load_array(features_file, "floats of shape (images, regions, features) are", "f", [2, 3]))
        if not captions or len(captions) % CAPTIONS_PER_IMAGE:
            raise DatasetError(f"{captions_file}: {len(captions)} captions are not five an image; copy it again")
        id_step = _rows_per_image(len(ids), len(captions), ids_file)
        row_step = _rows_per_image(rows, len(captions), features_file)
        for image, image_id in enumerate(_distinct_ids(ids, id_step, ids_file)):
            first = image * CAPTIONS_PER_IMAGE
            lines = range(first, first + CAPTIONS_PER_IMAGE)
            yield Record(
                image_id,
                f"{features_file}#{image * row_step}",
                split,
                tuple(Caption(f"{split}#{line}", captions[line]) for line in lines),
            )


def _rows_per_image(rows: int, captions: int, file: Path) -> int:
    """Return 1 if the file holds each image once, 5 if it holds each five times in a row."""
    if rows * CAPTIONS_PER_IMAGE == captions:
        return 1
    if rows == captions:
        return CAPTIONS_PER_IMAGE
    raise DatasetError(
        f"{file}: {rows} rows for {captions} captions; expected {captions // CAPTIONS_PER_IMAGE} (one an image) or "
        f"{captions} (each image five times in a row): take all files from one release"
    )


def _distinct_ids(ids: list[str], step: int, file: Path) -> list[str]:
    """Return one id an image; check that repeated ids repeat the same image and that no two images share an id."""
    seen: dict[str, str] = {}
    for start in range(0, len(ids), step):
        image_id = ids[start]
        if not image_id:
            raise DatasetError(f"{file}:{start + 1}: empty line instead of an image id")
        other = next((line for line in range(start, start + step) if ids[line] != image_id), None)
        if other is not None:
            raise DatasetError(f"{file}:{other + 1}: id {ids[other]} among the five rows of image {image_id}")
        require_new(seen, "image id", image_id, f"{file}:{start + 1}")
    return list(seen)
