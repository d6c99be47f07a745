"""Named models: they must fit their features and be evaluated alike."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pipelines.config import load_config
from pipelines.inference.feature_check import write_feature_key
from pipelines.runtime.stage import StageError
from pipelines.stages.model_evaluation import NamedModel, compare_models, evaluate_model, evaluate_models


@pytest.fixture
def named(tmp_path: Path) -> NamedModel:
    config = load_config(None, [f"work_dir={tmp_path}"])
    return NamedModel("a", config, tmp_path)


def test_a_model_of_other_features_is_refused_before_any_work(named: NamedModel) -> None:
    write_feature_key(named.model, "pyramid")
    with pytest.raises(StageError, match="gives it 'grid'"):
        evaluate_model(named)
    assert [path.name for path in named.config.work_dir.iterdir()] == ["reads.json"]


def test_protocols_must_agree(named: NamedModel) -> None:
    folded = replace(named, config=load_config(None, ["evaluation.folds=2"]))
    with pytest.raises(StageError, match=r"evaluation\.folds differs between the configurations: 1 and 2; make it one"):
        evaluate_models([named, folded])
    with pytest.raises(StageError, match=r"evaluation\.folds differs between the configurations: 1 and 2; make it one"):
        compare_models(named, folded)
    attacked = replace(named, config=load_config(None, ["evaluation.protocols=[retrieval, attack]"]))
    with pytest.raises(StageError, match=r"evaluation\.protocols differs"):
        evaluate_models([named, attacked])
