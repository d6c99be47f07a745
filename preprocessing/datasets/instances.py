"""Labels of objects in COCO's instances JSON (instances_val2014.json and its like)."""

from pathlib import Path

from preprocessing.datasets.checks import entries, read_json_object, require_field
from preprocessing.datasets.record import DatasetError


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
