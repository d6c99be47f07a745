"""What is refused before training starts: sizes of the splits that do not fit, a loss that cannot be saved."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pipelines.config import load_config
from pipelines.kinds.inputs import SplitData
from pipelines.runtime.stage import StageError
from pipelines.training.prepare import prepare
from preprocessing.shards.reader import ShardReader
from tests.pipelines.training.by_hand import SMALL
from tests.pipelines.training.test_schedules import TRIPLET, PluginLoss, PluginSettings
from tests.pipelines.training.test_trainer import write_split
from vse_core import registry


@pytest.fixture(scope="module")
def splits(tmp_path_factory: pytest.TempPathFactory) -> list[SplitData]:
    """23 images to train on, 9 to evaluate on, with five captions each."""
    root = tmp_path_factory.mktemp("shards")
    write_split(root / "train", 23, 0)
    write_split(root / "dev", 9, 1)
    return [SplitData(ShardReader(root / split, "grid")) for split in ("train", "dev")]


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("evaluation.folds=5", r"evaluation\.folds 5 does not divide the 9 images of dev .* set it to 1"),
        ("training.batch_size=116", r"115 captions to train on, fewer than training\.batch_size 116: lower it"),
        ("training.workers=9", r"training\.workers 9 are too many for batches of 16 pairs and 9 images of dev"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(setting: str, message: str, splits: list[SplitData], tmp_path: Path) -> None:
    settings = load_config(None, [*SMALL, "vocabulary.min_count=1", setting]).training_settings
    with pytest.raises(StageError, match=message):
        prepare(settings, *splits, tmp_path)


def test_a_loss_that_cannot_be_saved_is_refused(
    splits: list[SplitData], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(registry._ADDED, "loss", {"plugin": PluginLoss})
    loss = PluginSettings(**TRIPLET | {"name": "plugin", "size": 2})
    settings = replace(load_config(None, [*SMALL, "vocabulary.min_count=1"]).training_settings, loss=loss)
    with pytest.raises(StageError, match=r"^train: the loss 'plugin' learns 'inner\.factor' of 2 numbers"):
        prepare(settings, *splits, tmp_path)


def test_folds_that_divide_the_evaluation_split_are_accepted(splits: list[SplitData], tmp_path: Path) -> None:
    settings = load_config(None, [*SMALL, "vocabulary.min_count=1", "evaluation.folds=3"]).training_settings
    prepare(settings, *splits, tmp_path)
