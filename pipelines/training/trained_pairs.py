"""The record of the pairs that a model was trained on, as hashes next to it: an audit judges others alone."""

import shutil
from itertools import compress
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pipelines.runtime.stage import StageError
from pipelines.training.left_out import Pair, captions_of
from preprocessing.extraction.split_hashes import DataManifest
from preprocessing.reading import damage_as
from preprocessing.shards.reader import ShardReader

FILE = "trained_pairs.npz"


def write_trained_pairs(
    reader: ShardReader, kept_C: npt.NDArray[np.int64] | None, initial: Path | None, run: Path, is_trained: bool = True
) -> None:
    """Write the pairs of a run into its directory, with those of the model that it starts from, if any.

    They are the captions of a split with the numbers `kept_C`, or all; none if the run does not train, which knows no
    more of the model that it starts from than that model's record.
    """
    if not is_trained and initial is not None and not has_record(initial):
        return
    is_kept_C = np.full(reader.num_captions, is_trained)
    if is_trained and kept_C is not None:
        is_kept_C = np.isin(np.arange(reader.num_captions), kept_C)
    pairs = DataManifest.of_captions(compress(captions_of(reader), is_kept_C))
    before = None if initial is None else _trained_pairs(initial)
    (pairs if before is None else pairs.with_captions(before)).save(run / FILE)


def keep_trained_pairs(run: Path, model: Path) -> None:
    """Copy the record of a run next to its model, if there is one."""
    if has_record(run):
        shutil.copyfile(run / FILE, model / FILE)


def has_record(model: Path) -> bool:
    """Return whether it is known what a model was trained on."""
    return (model / FILE).is_file()


def unseen_pairs(reader: ShardReader, model: Path) -> set[Pair]:
    """Return the pairs of a split that a model was not trained on.

    They are all of them if the model has no record: it was trained elsewhere, or by an earlier version. Raises
    StageError if the record is damaged.
    """
    seen = _trained_pairs(model)
    return {
        (image, caption)
        for image, caption, text in captions_of(reader)
        if seen is None or not seen.has_caption(image, caption, text)
    }


def _trained_pairs(model: Path) -> DataManifest | None:
    if not has_record(model):
        return None
    path = model / FILE
    with damage_as(StageError, f"{path} does not tell the pairs that the model was trained on", "restore the folder"):
        return DataManifest.load(path.read_bytes())
