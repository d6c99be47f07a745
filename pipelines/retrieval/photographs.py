"""The photographs of published region features, which have an id of each image, and its file's name in a JSON file."""

from dataclasses import replace

from pipelines.config.datasets import Dataset
from pipelines.retrieval.gallery import Gallery
from preprocessing.datasets.checks import image_path, read_json_object


def with_photographs(gallery: Gallery, dataset: Dataset) -> Gallery:
    """Return a gallery of published features with the addresses of photographs, to be drawn; others as they are.

    Raises DatasetError if the file of names cannot be read, or leads out of the folder.
    """
    if dataset.format != "precomputed" or dataset.images is None:
        return gallery
    folder, file = dataset.images, dataset.names_file
    names = read_json_object(file)
    records = [
        replace(record, image_uri=image_path(folder, names[record.image_id], f"{file}, {record.image_id}"))
        if record.image_id in names
        else record
        for record in gallery.records
    ]
    return replace(gallery, records=tuple(records))
