"""Readers of COCO's own JSON files: captions, one file and image folder a split, and labelled objects."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from preprocessing.datasets.checks import (
    entries,
    image_path,
    read_json_object,
    require_field,
    require_file,
    require_image_folders,
    require_new,
)
from preprocessing.datasets.record import Caption, DatasetError, Record


class CocoDataset:
    """COCO captions as the data set publishes them, under COCO's own ids, in the order of the file's `images` list.

    Args:
        images: split name -> folder of its photographs, all local or all ``s3://bucket/folder``.
        annotations: split name -> captions JSON; the same splits as `images`.
        instances: split name -> instances JSON, which labels objects, for any of the splits.
    """

    def __init__(
        self,
        images: Mapping[str, str | Path],
        annotations: Mapping[str, str | Path],
        instances: Mapping[str, str | Path] | None = None,
    ) -> None:
        if not images or set(images) != set(annotations):
            found = f"'images' names {sorted(images)}, 'annotations' {sorted(annotations)}"
            raise DatasetError(f"coco dataset: {found}; both must name the same splits, at least one")
        self._images, self.root = require_image_folders(images, "coco dataset, images")
        self.splits = tuple(images)
        self._annotations, self._instances = (
            {split: require_file(path, f"coco dataset, '{option}.{split}'") for split, path in files.items()}
            for option, files in (("annotations", annotations), ("instances", instances or {}))
        )
        if not set(self._instances) <= set(self._images):
            raise DatasetError(f"coco dataset, 'instances': name only splits with images: {sorted(self._images)}")

    def records(self, split: str) -> Iterator[Record]:
        """Yield the records of a split in the order of its file; a DatasetError names the malformed entry."""
        file = self._annotations[split]
        content = read_json_object(file)
        names = self._names(content, split)
        captions: dict[int, list[Caption]] = {image_id: [] for image_id in names}
        seen: dict[str, str] = {}
        for where, entry in entries(content, "annotations", file):
            image_id = require_field(entry, "image_id", int, where)
            caption_id = require_field(entry, "id", int, where)
            if image_id not in names:
                raise DatasetError(f"{where}: image_id {image_id} is not in the file's list of images")
            require_new(seen, "caption id", caption_id, where)
            captions[image_id].append(Caption(str(caption_id), require_field(entry, "caption", str, where)))
        if not seen:
            raise DatasetError(f"{file}: 'annotations' is empty: none of its {len(names)} images has a caption")
        for image_id, path in names.items():
            yield Record(str(image_id), path, split, tuple(captions[image_id]))

    def detections(self, split: str) -> dict[str, list[str]] | None:
        """Return image id -> names of the objects labelled in it, each once; None if the split has no labels."""
        file = self._instances.get(split)
        return None if file is None else read_instances(file)

    def _names(self, content: dict[str, object], split: str) -> dict[int, str]:
        file = self._annotations[split]
        names: dict[int, str] = {}
        seen: dict[str, str] = {}
        for where, entry in entries(content, "images", file):
            image_id = require_field(entry, "id", int, where)
            require_new(seen, "image id", image_id, where)
            names[image_id] = image_path(self._images[split], require_field(entry, "file_name", str, where), where)
        if not names:
            raise DatasetError(f"{file}: the list 'images' is empty")
        return names


def read_instances(file: Path) -> dict[str, list[str]]:
    """Return image id -> names of the objects labelled in it, each once; a DatasetError names the malformed entry."""
    content = read_json_object(file)
    categories: dict[int, str] = {}
    for where, entry in entries(content, "categories", file):
        categories[require_field(entry, "id", int, where)] = require_field(entry, "name", str, where)
    found: dict[str, dict[str, None]] = {}
    for where, entry in entries(content, "annotations", file):
        category = require_field(entry, "category_id", int, where)
        if category not in categories:
            raise DatasetError(f"{where}: category_id {category} is not in the file's list of categories")
        image_id = str(require_field(entry, "image_id", int, where))
        found.setdefault(image_id, {})[categories[category]] = None
    return {image_id: list(names) for image_id, names in found.items()}
