"""Evaluated models, their galleries in one order, and evaluations that are done once."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.config import PipelineConfig
from pipelines.evaluation import GALLERY
from pipelines.kinds.kind import ModelKind
from pipelines.retrieval.gallery import Gallery, GalleryError
from pipelines.runtime.lock import exclusive
from pipelines.runtime.outputs import record_outputs
from pipelines.runtime.stage import StageDir, StageError, manifest_in
from pipelines.stages.on_worker import on_worker
from pipelines.tracking import PipelineRuns
from preprocessing.storage.mirror import Mirror
from vse_core.digests import file_digest
from vse_core.models.model import SPECIFICATION, WEIGHTS


@dataclass(frozen=True)
class EvaluatedModel:
    """A model (its directory, its kind, the user's name for it) that was evaluated on a split, into a directory."""

    reference: str
    model: Path
    kind: ModelKind
    data_fingerprint: str
    directory: Path

    @property
    def metrics(self) -> dict[str, float]:
        """The metrics of the evaluation."""
        metrics: dict[str, float] = manifest_in(self.directory)["metrics"]
        return metrics


def model_digests(model: Path) -> list[str]:
    """Return the digests of what decides a model's embeddings: its specification and its weights."""
    return [file_digest(model / name) for name in (SPECIFICATION, WEIGHTS)]


def aligned_galleries(models: Sequence[EvaluatedModel], mirror: Mirror) -> list[Gallery]:
    """Return the galleries of evaluated models in the first one's order; StageError if images or captions differ."""
    for model in models:
        mirror.pull(model.directory)
    galleries = [Gallery.load(model.directory / GALLERY, model.kind) for model in models]
    return in_one_order([model.reference for model in models], galleries)


def in_one_order(names: Sequence[str], galleries: Sequence[Gallery]) -> list[Gallery]:
    """Return the galleries of named models in the first one's order; StageError if images or captions differ."""
    ordered = [galleries[0]]
    for name, gallery in zip(names[1:], galleries[1:], strict=True):
        try:
            ordered.append(gallery.in_order_of(galleries[0]))
        except GalleryError as error:
            raise StageError(
                f"{names[0]} and {name} cannot be compared: {error}; give both the same split of the same images"
            ) from error
    return ordered


def done_once(
    stage: StageDir, config: PipelineConfig, work: Callable[..., object], *arguments: Any, uses: Iterable[Path] = ()
) -> dict[str, Any]:
    """Do work that completes a stage, unless it is complete, in a run of its own in MLflow; returns the manifest.

    The work gets the arguments and the run's tracker, where a worker of the training would run (`on_worker`); what it
    has written is on this machine afterwards. The folders that it `uses` are kept from pruning meanwhile.
    """
    if not stage.is_complete():
        with exclusive(stage.mirror, stage.path):
            if not stage.is_complete():  # another process may have done it before this one had the lock
                with PipelineRuns(config.experiment, stage.fingerprint) as runs, runs.parent as tracker:
                    record_outputs(stage.mirror, runs.folder, stage.path, *uses, model=config.registered_model)
                    on_worker(config, work, *arguments, tracker=tracker)
    stage.pull()
    return stage.read_manifest()
