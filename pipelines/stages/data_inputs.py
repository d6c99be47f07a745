"""The splits that a run reads, as MLflow shows the data sets of runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pipelines.config import PipelineConfig
from pipelines.runtime.stage import manifest_in
from pipelines.stages import extract
from preprocessing.datasets import build_dataset

if TYPE_CHECKING:
    from pipelines.tracking import Tracker


def log_splits(config: PipelineConfig, tracker: Tracker, contexts: Mapping[str, str]) -> None:
    """Log extracted splits as inputs of a run.

    Args:
        config: the pipeline's configuration.
        tracker: of the run.
        contexts: split -> what it is read for: "training", "validation", "evaluation".
    """
    root = build_dataset(config.dataset.format, **config.dataset.options()).root
    for split, context in contexts.items():
        manifest = manifest_in(extract.plan(config).outputs[split])
        tracker.log_dataset(
            name=f"{config.name} {split}",
            digest=manifest["fingerprint"],
            kind=config.dataset.format,
            source={"images": root, "split": split, "features": config.features.member},
            profile={name: manifest["counts"][name] for name in ("images", "captions")},
            context=context,
        )
