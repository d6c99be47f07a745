"""The pairs that a model was trained on, next to it as hashes: who judges pairs by it asks whether it has seen them."""

import shutil
from collections.abc import Collection
from pathlib import Path

from pipelines.runtime.stage import StageError
from pipelines.training.left_out import Pair, pairs_of
from preprocessing.extraction.split_hashes import DataManifest
from preprocessing.reading import damage_as
from preprocessing.shards.reader import ShardReader

FILE = "trained_pairs.npz"


def write_trained_pairs(reader: ShardReader, left_out: Collection[Pair], initial: Path | None, run: Path) -> None:
    """Write the pairs of a run into its directory: those of a split but for some, and of the model it starts from."""
    pairs = DataManifest.of_captions(
        (*pair, text) for pair, text in zip(pairs_of(reader), reader.texts(), strict=True) if pair not in left_out
    )
    before = None if initial is None else trained_pairs(initial)
    (pairs if before is None else pairs.with_captions(before)).save(run / FILE)


def keep_trained_pairs(run: Path, model: Path) -> None:
    """Copy the pairs of a run next to its model; a run that trains nothing has none."""
    if (run / FILE).is_file():
        shutil.copyfile(run / FILE, model / FILE)


def trained_pairs(model: Path) -> DataManifest | None:
    """Return the pairs of a model; None if it was not trained here, or by a version that did not keep them."""
    path = model / FILE
    if not path.is_file():
        return None
    with damage_as(StageError, f"{path} does not tell the pairs that the model was trained on", "restore the folder"):
        return DataManifest.load(path.read_bytes())
