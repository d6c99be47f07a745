"""Which directories can be evaluated, and the figures of the pooling weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipelines.config import load_config
from pipelines.evaluation.evaluator import embed_split, pooling_figures
from pipelines.inference.feature_check import require_features, write_feature_key
from pipelines.runtime.stage import StageError
from vse_core.models import build_model

SPECIFICATION = {
    "feature_dim": 5,
    "vocabulary_size": 11,
    "embed_dim": 8,
    "image": {"pooling": {"name": "mean"}, "mlp": False},
    "text": {"pooling": {"name": "mean"}, "word_dim": 6},
}


def test_a_directory_without_a_model_or_its_vocabulary_is_refused(tmp_path: Path) -> None:
    config = load_config(None)
    with pytest.raises(StageError, match=r"evaluate: .* holds no model: model\.json is missing"):
        embed_split(config, tmp_path, {}, tmp_path)
    build_model(**SPECIFICATION).save(tmp_path)
    with pytest.raises(StageError, match=r"no vocabulary\.json or tokenizer\.json"):
        embed_split(config, tmp_path, {}, tmp_path)


def test_a_model_is_never_given_other_features_than_its_own(tmp_path: Path) -> None:
    """Those of another extractor may have the same width."""
    write_feature_key(tmp_path, "grid")
    require_features("grid", tmp_path)
    with pytest.raises(StageError, match=r"on the features 'grid', .* gives it 'pyramid': name the configuration"):
        require_features("pyramid", tmp_path)


@pytest.mark.parametrize(
    ("image", "text", "figures"),
    [
        ({"pooling": {"name": "gpo"}}, "mean", ["gpo_coefficients"]),
        ({"pooling": {"name": "mean"}}, "gpo", ["gpo_coefficients"]),
        ({"pooling": {"name": "gpo"}, "views": 2}, "gpo", ["gpo_coefficients_view_1", "gpo_coefficients_view_2"]),
        ({"pooling": {"name": "max"}, "views": 2}, "mean", []),
    ],
)
def test_pooling_weights_have_a_figure_for_each_view(image: dict[str, Any], text: str, figures: list[str]) -> None:
    model = build_model(**SPECIFICATION | {"image": image, "text": {"pooling": {"name": text}, "word_dim": 6}})
    drawn = pooling_figures(model, set_size=7)
    assert list(drawn) == figures
