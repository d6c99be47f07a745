"""Reader of the Karpathy JSON files: dataset_flickr8k.json, dataset_flickr30k.json and dataset_coco.json."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from preprocessing.datasets.checks import (
    entries,
    image_path,
    read_json_object,
    require_field,
    require_file,
    require_image_folder,
    require_new,
)
from preprocessing.datasets.record import Caption, DatasetError, Record

# The file's own name of a split -> ours. "restval" is the part of COCO's validation set that all systems train on.
SPLIT_NAMES = {"train": "train", "restval": "train", "val": "dev", "test": "test"}
CAPTIONS_PER_IMAGE = 5


class KarpathyDataset:
    """Karpathy and Fei-Fei's splits of Flickr8k, Flickr30k and COCO: `train`, `dev` (the file's `val`) and `test`.

    The first five sentences of an image are kept, as raw text. The image id is `cocoid` if there is one and `imgid`
    otherwise; a caption's id is its `sentid`. The image lies under `images`, in `filepath` if the file gives one.

    For COCO `images`, local or on S3, holds train2014 and val2014. With `restval` it is taken into `train`; without it
    COCO has the 82,783 images of UniVSE and VSE++'s first tables. `instances` are COCO's JSON files that label objects,
    of all splits that are asked for labels.
    """

    def __init__(
        self, images: str | Path, annotations: str | Path, restval: bool = True, instances: Sequence[str | Path] = ()
    ) -> None:
        self.root = require_image_folder(images, "karpathy dataset, 'images'")
        self._annotations = require_file(annotations, "karpathy dataset, 'annotations'")
        self._restval = restval
        self._instances = [require_file(file, "karpathy dataset, 'instances'") for file in instances]

    @property
    def splits(self) -> tuple[str, ...]:
        """Return those of train, dev and test that the file has images of (reads the file)."""
        return tuple(split for split in ("train", "dev", "test") if split in self._records)

    def records(self, split: str) -> Iterator[Record]:
        """Yield the records of a split in the order of the file; a DatasetError names the malformed entry."""
        yield from self._records[split]

    def detections(self, split: str) -> dict[str, list[str]] | None:
        """Return image id -> names of the objects labelled in it, None without files; DatasetError if none is."""
        if not self._instances:
            return None
        ids = {record.image_id for record in self.records(split)}
        found: dict[str, list[str]] = {}
        for file in self._instances:
            found |= {image_id: names for image_id, names in read_instances(file).items() if image_id in ids}
        if not found:
            raise DatasetError(
                f"karpathy dataset, 'instances': no image of {split!r} is labelled in "
                f"{', '.join(map(str, self._instances))}; name the files of its images (COCO's dev: val2014)"
            )
        return found

    @cached_property
    def _records(self) -> dict[str, list[Record]]:
        records: dict[str, list[Record]] = {}
        seen: dict[str, str] = {}
        captions: dict[str, str] = {}
        for where, entry in entries(read_json_object(self._annotations), "images", self._annotations):
            if self._instances and "cocoid" not in entry:
                raise DatasetError(f"{where}: has no 'cocoid', by which 'instances' label images; leave them out")
            record = self._record(entry, where)
            require_new(seen, "image id", record.image_id, where)
            for place, caption in enumerate(record.captions):
                require_new(captions, "sentid", caption.caption_id, f"{where}.sentences[{place}]")
            if self._restval or entry["split"] != "restval":
                records.setdefault(record.split, []).append(record)
        if not records:
            raise DatasetError(f"{self._annotations}: the list 'images' is empty")
        return records

    def _record(self, entry: Any, where: str) -> Record:
        split = require_field(entry, "split", str, where)
        if split not in SPLIT_NAMES:
            raise DatasetError(f"{where}: split {split!r}, expected one of {', '.join(SPLIT_NAMES)}")
        identifier = require_field(entry, "cocoid" if "cocoid" in entry else "imgid", int, where)
        name = require_field(entry, "filename", str, where)
        if "filepath" in entry:
            name = f"{require_field(entry, 'filepath', str, where)}/{name}"
        captions = []
        for place, sentence in enumerate(require_field(entry, "sentences", list, where)[:CAPTIONS_PER_IMAGE]):
            inside = f"{where}.sentences[{place}]"
            caption_id = require_field(sentence, "sentid", int, inside)
            captions.append(Caption(str(caption_id), require_field(sentence, "raw", str, inside)))
        path = image_path(self.root, name, where)
        return Record(str(identifier), path, SPLIT_NAMES[split], tuple(captions))


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
