"""Extracted splits as the data sets of runs in MLflow."""

from collections.abc import Mapping

from pipelines.config import PipelineConfig
from pipelines.config.datasets import Dataset
from pipelines.runtime.stage import StagePlan, manifest_in
from pipelines.tracking import LoggedData, Tracker
from preprocessing.datasets import build_dataset

# MLflow takes no longer digest.
_DIGEST_CHARACTERS = 36


def uses_of(dataset: Dataset) -> dict[str, str]:
    """Return the use of each split: both may be the same one, to see whether a model can memorise it."""
    return {dataset.eval_split: "validation", dataset.train_split: "training"}


def logged_data(config: PipelineConfig, split: str, extracted: StagePlan) -> LoggedData:
    """Return the name and digest by which MLflow knows an extracted split."""
    return f"{config.name} {split}", manifest_in(extracted.outputs[split])["fingerprint"][:_DIGEST_CHARACTERS]


def log_splits(config: PipelineConfig, extracted: StagePlan, contexts: Mapping[str, str], tracker: Tracker) -> None:
    """Log extracted splits as a run's data sets, each for a context: "training", "validation" or "evaluation"."""
    dataset, feature = config.dataset, config.features.member
    root = build_dataset(dataset.format, **dataset.options()).root
    for split, context in contexts.items():
        manifest = manifest_in(extracted.outputs[split])
        tracker.log_dataset(
            logged_data(config, split, extracted),
            kind=dataset.format,
            source={"images": root, "split": split, "features": feature},
            profile={items: manifest["counts"][items] for items in ("images", "captions")},
            context=context,
        )
