"""Published features in the forms in which they were published, one reader a form, all giving the same regions."""

from collections.abc import Callable
from pathlib import Path

from preprocessing.features.extractor import ExtractorError
from preprocessing.features.importers.butd_tsv import ButdTsv
from preprocessing.features.importers.folder import NpzFolder
from preprocessing.features.importers.hdf5 import Hdf5File
from preprocessing.features.importers.source import FeatureSource

FORMS: dict[str, Callable[[Path], FeatureSource]] = {"butd_tsv": ButdTsv, "npz": NpzFolder, "hdf5": Hdf5File}


def open_source(path: str | Path, form: str) -> FeatureSource:
    """The reader of a form, on a file or folder that exists; ExtractorError if not, or if its library is missing."""
    if form not in FORMS:
        raise ExtractorError(f"there is no form {form!r} of published features; there are {', '.join(FORMS)}")
    absolute = Path(path).expanduser().absolute()
    if not absolute.exists():
        raise ExtractorError(f"published features: there is no {absolute}; correct the path")
    return FORMS[form](absolute)
