"""Named models: they must fit their features and be evaluated alike."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pipelines.config import load_config
from pipelines.inference.feature_check import write_feature_key
from pipelines.runtime.stage import StageError
from pipelines.stages import model_evaluation
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


def write_regions(folder: Path, splits: dict[str, list[int]]) -> Path:
    """Write published regions and a configuration of them."""
    folder.mkdir()
    for split, images in splits.items():
        np.save(folder / f"{split}_ims.npy", np.ones((len(images), 2, 3), np.float32))
        (folder / f"{split}_ids.txt").write_text("".join(f"{image}\n" for image in images))
        captions = (f"caption {number} of image {image}\n" for image in images for number in range(5))
        (folder / f"{split}_caps.txt").write_text("".join(captions))
    file = folder / "config.yaml"
    data = f"dataset: {{format: precomputed, root: {folder}, train_split: train, eval_split: dev}}"
    file.write_text(f"{data}\nfeatures: {{extractor: precomputed}}\nwork_dir: {folder}/work\n")
    return file


def test_each_model_of_an_ensemble_has_its_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """COCO's 5,000 test images are "testall" in one data set and "test" in the other; by one command."""
    regions = write_regions(tmp_path / "regions", {"train": [9], "dev": [8], "test": [1], "testall": [1, 2, 3]})
    grids = write_regions(tmp_path / "grids", {"train": [9], "dev": [8], "test": [3, 1, 2]})
    evaluated: list[NamedModel] = []

    def evaluate(named: NamedModel) -> None:
        evaluated.append(named)
        if len(evaluated) == 3:
            raise StageError("all three")

    monkeypatch.setattr(model_evaluation, "evaluate_model", evaluate)
    monkeypatch.setattr("pipelines.registry.models.find_model", lambda reference, _: tmp_path / reference)
    command = ["evaluate.py", "--config", str(grids), "--split", "test", "--model", "r/1", str(regions), "testall"]
    monkeypatch.setattr("sys.argv", [*command, "--model", "g/1", "--model", "p/1", str(grids)])
    with pytest.raises(StageError, match="all three"):
        model_evaluation.evaluate_main()
    splits = {named.reference: named.config.dataset.eval_split for named in evaluated}
    assert splits == {"r/1": "testall", "g/1": "test", "p/1": "test"}
    assert [named.config.dataset.root for named in evaluated] == [regions.parent, grids.parent, grids.parent]

    evaluated.clear()
    monkeypatch.setattr("sys.argv", [*command[:-1], "test", "--model", "g/1"])
    with pytest.raises(StageError, match=r"r/1 and g/1 cannot be compared: .* 2 are only in this, such as 2, 3; give"):
        model_evaluation.evaluate_main()
    assert evaluated == []
