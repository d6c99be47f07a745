"""A registered model with the run of its training in MLflow, as figures need it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.inference.embedder import Embedder
from pipelines.registry.models import find_bundle, tags_of
from pipelines.retrieval.gallery import Gallery, GalleryError
from pipelines.runtime.stage import StageError
from pipelines.tracking.client import connect, named_outages
from preprocessing.features.extractor import ExtractorError

if TYPE_CHECKING:
    from mlflow.entities import Run


@dataclass(frozen=True)
class RegisteredModel:
    """A registered model, or a directory with the same parts; one that cannot be read raises StageError."""

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
    def training(self) -> Run:
        """The last run of its training in MLflow; a directory has none."""
        wanted = f"tags.`vse.stage` = 'train' and tags.`vse.fingerprint` = '{self._train_fingerprint()}'"
        with named_outages(self.tracking_uri, "read the runs"):
            client = connect(self.tracking_uri)
            experiments = [experiment.experiment_id for experiment in client.search_experiments()]
            runs = client.search_runs(experiments, wanted, order_by=["start_time DESC"], max_results=1)
        if not runs:
            raise StageError(
                f"{self.name}: MLflow at {self.tracking_uri} has no run of its training: name a model that was "
                "trained and registered there"
            )
        return runs[0]

    def history(self, metric: str) -> dict[int, float]:
        """Return the values of a metric of its training by step; of a step that a restart has repeated the last one."""
        with named_outages(self.tracking_uri, "read the runs"):
            points = connect(self.tracking_uri).get_metric_history(self.training.info.run_id, metric)
        return dict(sorted({point.step: point.value for point in sorted(points, key=attrgetter("timestamp"))}.items()))

    def _train_fingerprint(self) -> str:
        if self.name == str(self.bundle[1]):
            raise StageError(f"{self.name} is a directory, whose training is unknown: name a registered model")
        name, _, version = self.name.partition("/")
        tags = tags_of(name, int(version), self.tracking_uri)
        if "vse.train_fingerprint" not in tags:
            raise StageError(f"{self.name} has no tag vse.train_fingerprint: it was not registered by this pipeline")
        return tags["vse.train_fingerprint"]
