"""The plan of a training reads the best checkpoint from the manifest, which may come from a storage."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.runtime.stage import StageDir, StageError
from pipelines.stages.train import _best


@pytest.mark.parametrize("name", ["../../elsewhere", "/elsewhere", None, 3])
def test_the_best_checkpoint_lies_in_its_training(tmp_path: Path, name: object) -> None:
    stage = StageDir(tmp_path, "train", "f" * 64)
    stage.complete({"best": "best-001"})
    assert _best(stage) == stage.path / "best-001"
    stage.complete({"best": name})
    with pytest.raises(StageError, match=r"manifest\.json, best: .* no"):
        _best(stage)
