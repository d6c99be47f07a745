"""The names of the object and attribute classes, from the lists that come with the model."""

from pathlib import Path

from preprocessing.features.extractor import ExtractorError


def read_labels(path: Path, classes: int | None = None) -> list[str]:
    """Read the names of all classes in order, from a file such as `objects_vocab.txt` or `attributes_vocab.txt`.

    A line is a class; of the synonyms in it, separated by commas, the first is its name. Raises ExtractorError where
    the file cannot be read, or has not as many lines as the model has `classes` (without "none").
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ExtractorError(f"labels {path} cannot be read ({error}); name a text file with a class a line") from error
    if classes is not None and len(lines) != classes:
        raise ExtractorError(f"labels {path} have {len(lines)} lines, and the model {classes} classes")
    return [line.partition(",")[0].strip() for line in lines]
