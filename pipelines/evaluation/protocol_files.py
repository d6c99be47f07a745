"""The files of protocols that have some of their own: annotations, in the folders that the settings name."""

from collections.abc import Sequence
from pathlib import Path

from pipelines.config.training import EvaluationConfig
from preprocessing.datasets.choices import BENCHMARKS
from preprocessing.datasets.crisscrossed import crisscrossed_files
from preprocessing.datasets.eccv_caption import eccv_files


def protocol_files(settings: EvaluationConfig, split: str) -> dict[str, Sequence[Path]]:
    """Return the files of annotations by protocol; raise DatasetError where one is missing."""
    found: dict[str, Sequence[Path]] = {}
    for name, folder in settings.folders.items():
        if name in BENCHMARKS:
            found[name] = BENCHMARKS[name].present(folder)
        else:
            found[name] = crisscrossed_files(folder, split) if name == "cxc" else eccv_files(folder)
    return found
