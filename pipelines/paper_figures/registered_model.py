"""A registered model with the run of its training in MLflow, as figures need it."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pipelines.inference.embedder import Embedder
from pipelines.registry.models import find_bundle, tags_of
from pipelines.reporting.recorded import RecordedRun, recorded_runs
from pipelines.retrieval.gallery import Gallery, GalleryError
from pipelines.runtime.stage import StageError
from preprocessing.features.extractor import ExtractorError


@dataclass(frozen=True)
class RegisteredModel:
    """A registered model (NAME, NAME@ALIAS, NAME/VERSION), or a directory with the same parts.

    `tracking_uri` is the MLflow server; a part that cannot be read raises `StageError`.
    """

    reference: str
    tracking_uri: str

    @cached_property
    def bundle(self) -> tuple[str, Path]:
        """Name of the model (NAME/VERSION), and the directory of its parts."""
        return find_bundle(self.reference, self.tracking_uri)

    @property
    def name(self) -> str:
        """Name of the model."""
        return self.bundle[0]

    @cached_property
    def gallery(self) -> Gallery:
        """The embedded images and captions of its evaluation split."""
        try:
            return Gallery.load(self.bundle[1] / "gallery")
        except GalleryError as error:
            raise StageError(f"{self.name}: {error}") from error

    @cached_property
    def embedder(self) -> Embedder:
        """The model with its caption encoder and its extractor."""
        try:
            return Embedder(self.bundle[1] / "model", self.bundle[1] / "extractor")
        except (FileNotFoundError, ValueError, ExtractorError) as error:
            raise StageError(f"{self.name} cannot be loaded: {error}") from error

    @cached_property
    def training(self) -> RecordedRun:
        """The last run of its training in MLflow; a directory has none."""
        runs = recorded_runs(self.tracking_uri, "train", self._train_fingerprint())
        if not runs:
            raise StageError(
                f"{self.name}: MLflow at {self.tracking_uri} has no run of its training: name a model that was "
                "trained and registered there"
            )
        return runs[-1]

    def _train_fingerprint(self) -> str:
        if self.name == str(self.bundle[1]):
            raise StageError(f"{self.name} is a directory, whose training is unknown: name a registered model")
        name, _, version = self.name.partition("/")
        tags = tags_of(name, int(version), self.tracking_uri)
        if "vse.train_fingerprint" not in tags:
            raise StageError(f"{self.name} has no tag vse.train_fingerprint: it was not registered by this pipeline")
        return tags["vse.train_fingerprint"]
