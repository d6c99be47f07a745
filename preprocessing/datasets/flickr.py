"""Reader of the Flickr8k and Flickr30k token file with its split lists."""

from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path

from preprocessing.datasets.checks import image_path, numbered_lines, require_file, require_image_folder, require_new
from preprocessing.datasets.record import Caption, DatasetError, Record


class FlickrDataset:
    """Flickr8k or Flickr30k: one caption a line, `NAME.jpg#N<TAB>caption`, and one list of image names a split.

    Blank lines are skipped in both. A list may also name images without their `.jpg`, as the usual Flickr30k lists do.
    The image id is the file's name, a caption's id is `NAME.jpg#N`; an image may have no caption. Files are utf-8,
    `images` is a folder or ``s3://bucket/folder``, and `splits` has the list of each split.
    """

    def __init__(self, images: str | Path, tokens: str | Path, splits: Mapping[str, str | Path]) -> None:
        self.root = require_image_folder(images, "flickr dataset, 'images'")
        self._tokens = require_file(tokens, "flickr dataset, 'tokens'")
        self._lists = {split: require_file(path, f"flickr dataset, 'splits.{split}'") for split, path in splits.items()}
        self.splits = tuple(splits)

    def records(self, split: str) -> Iterator[Record]:
        """Yield the records of a split in the order of its list; a DatasetError names the malformed line."""
        names = self._names(split)
        if not any(name in self._captions for name in names):
            raise DatasetError(f"{self._lists[split]}: none of its {len(names)} images has a caption in {self._tokens}")
        for name in names:
            path = image_path(self.root, name, str(self._lists[split]))
            yield Record(name, path, split, tuple(self._captions.get(name, ())))

    @cached_property
    def _captions(self) -> dict[str, list[Caption]]:
        captions: dict[str, list[Caption]] = {}
        seen: dict[str, str] = {}
        for number, line in numbered_lines(self._tokens):
            if not line.strip():
                continue
            caption_id, tab, text = line.partition("\t")
            name, mark, order = caption_id.rpartition("#")
            name = name.strip()  # as in the lists of splits
            if not (tab and mark and name and order.isdecimal()):
                raise DatasetError(f"{self._tokens}:{number}: expected NAME.jpg#N<TAB>caption, found {line[:80]!r}")
            require_new(seen, "caption", caption_id, f"{self._tokens}:{number}")
            captions.setdefault(name, []).append(Caption(caption_id, text))
        if not captions:
            raise DatasetError(f"{self._tokens}: no captions in the file; one NAME.jpg#N<TAB>caption a line is needed")
        return captions

    def _names(self, split: str) -> list[str]:
        path = self._lists[split]
        seen: dict[str, str] = {}
        for number, line in numbered_lines(path):
            name = line.strip()
            if not name:
                continue
            if name not in self._captions and f"{name}.jpg" in self._captions:
                name = f"{name}.jpg"
            require_new(seen, "image", name, f"{path}:{number}")
        if not seen:
            raise DatasetError(f"{path}: the list of split {split!r} names no image")
        return list(seen)
