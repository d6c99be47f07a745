"""Which directories can be evaluated."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.config import load_config
from pipelines.evaluate import embed_split
from pipelines.stage import StageError
from vse_core.models import build_model, save_model

SPECIFICATION = {
    "feature_dim": 5,
    "vocabulary_size": 11,
    "embed_dim": 8,
    "image": {"pooling": {"name": "mean"}, "mlp": False},
    "text": {"pooling": {"name": "mean"}, "word_dim": 6},
}


def test_a_directory_without_a_model_or_its_vocabulary_is_refused(tmp_path: Path) -> None:
    config = load_config(None, [f"work_dir={tmp_path}"])
    with pytest.raises(StageError, match=r"evaluate: .* holds no model: model\.json is missing"):
        embed_split(config, tmp_path)
    save_model(build_model(**SPECIFICATION), SPECIFICATION, tmp_path)
    with pytest.raises(StageError, match=r"neither vocabulary\.json nor tokenizer\.json"):
        embed_split(config, tmp_path)
