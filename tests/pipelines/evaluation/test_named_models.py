"""Named models: they must fit their features and be evaluated alike."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from pipelines.config import ConfigError, load_config
from pipelines.evaluation import named_models
from pipelines.evaluation.commands import evaluate_main
from pipelines.evaluation.named_models import NamedModel, compare_models, evaluate_model, evaluate_models
from pipelines.inference.feature_check import write_feature_key
from pipelines.inference.learned_values import write_learned_values
from pipelines.inference.text_embedder import TextEmbedder
from pipelines.retrieval.correction import Correction
from pipelines.runtime.stage import StageError
from tests.dual_encoders import write_dual_encoder
from vse_core.models import load_model
from vse_core.models.model import SPECIFICATION, WEIGHTS


@pytest.fixture
def named(tmp_path: Path) -> NamedModel:
    config = load_config(None, [f"work_dir={tmp_path}"])
    return NamedModel("a", config, tmp_path)


def test_a_model_of_other_features_is_refused_before_any_work(named: NamedModel) -> None:
    write_feature_key(named.model, "pyramid")
    with pytest.raises(StageError, match="gives it 'grid'"):
        evaluate_model(named)
    assert [path.name for path in named.config.work_dir.iterdir()] == ["reads.json"]


def test_what_tells_evaluations_of_the_same_weights_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("require_features", "done_once"):
        monkeypatch.setattr(named_models, name, lambda *_, **_uses: None)
    monkeypatch.setattr(named_models, "saved_kind", lambda _: "vse_c")
    monkeypatch.setattr(
        named_models, "run_stages", lambda *_: {"extract": SimpleNamespace(fingerprint="f", folders=[])}
    )
    model = tmp_path / "bundle" / "model"
    model.mkdir(parents=True)
    (model / WEIGHTS).write_bytes(b"weights")
    (model / SPECIFICATION).write_text("{}")

    def evaluated(*overrides: str) -> Path:
        config = load_config(None, [f"work_dir={tmp_path}", *overrides])
        return evaluate_model(NamedModel("a", config, model)).directory

    off = "evaluation.hub_correction=false"
    uncorrected, switched_off = evaluated(), evaluated(off)
    found = {uncorrected}
    for temperature in (0.1, 0.2):
        correction = Correction(torch.rand(2, 1, 4), torch.rand(2, 4), temperature, "chosen on the split dev")
        correction.save(model.parent / "correction")
        found.add(evaluated())
    assert len(found) == 3
    assert evaluated(off) == switched_off
    write_learned_values(model, {"logit_scale": 3.0})
    assert evaluated() in found - {uncorrected}, "its bank, if the data are others, is not the one that would be fitted"
    (model / SPECIFICATION).write_text('{"pooling": "mean"}')
    assert evaluated() != uncorrected, "another pooling without weights of its own"


def test_protocols_must_agree(named: NamedModel) -> None:
    folded = replace(named, config=load_config(None, ["evaluation.folds=2"]))
    with pytest.raises(StageError, match=r"evaluation\.folds differs between the configurations: 1 and 2; make it one"):
        evaluate_models([named, folded])
    with pytest.raises(StageError, match=r"evaluation\.folds differs between the configurations: 1 and 2; make it one"):
        compare_models(named, folded)
    attacked = replace(named, config=load_config(None, ["evaluation.protocols=[retrieval, attack]"]))
    with pytest.raises(StageError, match=r"evaluation\.protocols differs"):
        evaluate_models([named, attacked])


def test_a_pretrained_dual_encoder_is_a_model_by_its_name(tmp_path: Path) -> None:
    """It is saved once, and evaluated with images in place of the features of another model."""
    weights = write_dual_encoder(tmp_path / "clip", "clip", ["a red square", "two blue circles"])
    overrides = [f"work_dir={tmp_path}/work", "preset=vse_c", "evaluation.folds=2", "seed=3", "dataset.seed=5"]
    left_out = tmp_path / "left_out.csv"  # whose captions an audit does not count
    config = load_config(None, [*overrides, f"training.leave_out={left_out}"])
    found = NamedModel.find(f"hf:{weights}", config)
    assert (found.config.features.extractor, found.config.loss.name) == ("images", "infonce")
    assert {found.config.model.image.name, found.config.model.text.name} == {"dual_encoder"}
    assert found.config.training.leave_out == left_out
    for key in ("evaluation", "dataset", "work_dir", "seed", "name"):
        assert getattr(found.config, key) == getattr(config, key)
    written = (found.model / "model.safetensors").stat().st_mtime_ns
    assert NamedModel.find(f"hf:{weights}", config).model == found.model
    assert (found.model / "model.safetensors").stat().st_mtime_ns == written
    file = tmp_path / "images.yaml"
    dataset = "dataset: {format: scenes, images: {train: 8, dev: 4}}"
    images = "features: {extractor: images, actors: 2}\nmodel: {weights: openai/clip}"
    file.write_text(f"preset: dual_encoder\nwork_dir: {tmp_path}/work\n{dataset}\n{images}\n")
    kept = NamedModel.find(f"hf:{weights}", load_config(file))
    assert (kept.model, kept.config.features.actors) == (found.model, 2)

    library = AutoModel.from_pretrained(weights).eval()
    tokens = AutoTokenizer.from_pretrained(weights)(["a red square"], return_tensors="pt")
    with torch.inference_mode():
        expected_1D = library.get_text_features(**tokens).pooler_output
    texts_1D = TextEmbedder(load_model(found.model), found.model).embed(["a red square"])
    torch.testing.assert_close(texts_1D, torch.nn.functional.normalize(expected_1D), atol=1e-5, rtol=1e-4)


def test_what_is_no_pretrained_dual_encoder_gets_one_message(tmp_path: Path) -> None:
    config = load_config(None, [f"work_dir={tmp_path}/work"])
    (tmp_path / "empty").mkdir()
    for name, reason in (("empty", "holds no configuration"), ("absent", "there is no folder")):
        with pytest.raises(ConfigError, match=rf"model\.weights: .*{reason}"):
            NamedModel.find(f"hf:{tmp_path}/{name}", config)
    text_model = write_dual_encoder(tmp_path / "clip", "clip", ["a dog"])
    settings = text_model / "config.json"
    settings.write_text(settings.read_text().replace('"clip"', '"bert"'))
    with pytest.raises(StageError, match=r"hf:.*/clip: .*clip"):
        NamedModel.find(f"hf:{text_model}", config)
    regions = load_config(write_regions(tmp_path / "regions", {"train": [1], "dev": [2]}))
    with pytest.raises(ConfigError, match=r"features\.extractor: 'images' cannot read dataset\.format 'precomputed'"):
        NamedModel.find(f"hf:{tmp_path}/empty", regions)


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

    monkeypatch.setattr(named_models, "evaluate_model", evaluate)
    monkeypatch.setattr(named_models, "find_model", lambda reference, _: (reference, tmp_path / reference))
    command = ["evaluate.py", "--config", str(grids), "--split", "test", "--model", "r/1", str(regions), "testall"]
    monkeypatch.setattr("sys.argv", [*command, "--model", "g/1", "--model", "p/1", str(grids)])
    with pytest.raises(StageError, match="all three"):
        evaluate_main()
    splits = {named.reference: named.config.dataset.eval_split for named in evaluated}
    assert splits == {"r/1": "testall", "g/1": "test", "p/1": "test"}
    assert [named.config.dataset.root for named in evaluated] == [regions.parent, grids.parent, grids.parent]

    evaluated.clear()
    monkeypatch.setattr("sys.argv", [*command[:-1], "test", "--model", "g/1"])
    with pytest.raises(StageError, match=r"r/1 and g/1 cannot be compared: .* 2 are only in this, such as 2, 3; give"):
        evaluate_main()
    assert evaluated == []
