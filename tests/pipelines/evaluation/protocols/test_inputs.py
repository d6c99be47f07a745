"""Inputs of the protocols that read captions: the first images, labels of Karpathy's splits."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from pipelines.config import load_config
from pipelines.evaluation import protocols
from pipelines.evaluation.evaluator import evaluate_captions
from pipelines.evaluation.protocols.inputs import EvaluationInputs
from pipelines.retrieval.gallery import Gallery
from preprocessing.datasets import build_dataset
from tests.pipelines.tiny_graphs import write_split


def test_the_first_images_of_karpathy_s_split_with_their_labels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The paper attacks the first 1,000 of COCO's 5,000 test images: 30,000 candidates of 5,000 true captions."""
    write_split(tmp_path, 6, 0)
    images = [
        {
            "cocoid": 10 + n,
            "imgid": n,
            "filename": f"{n}.jpg",
            "split": "test",
            "sentences": [{"sentid": n, "raw": "a"}],
        }
        for n in range(6)
    ]
    (tmp_path / "dataset.json").write_text(json.dumps({"images": images}))
    labels = {
        "categories": [{"id": 1, "name": "cat"}],
        "annotations": [{"image_id": image_id, "category_id": 1} for image_id in (11, 15)],
    }
    (tmp_path / "instances.json").write_text(json.dumps(labels))
    config = load_config(
        None,
        [
            f"dataset={{format: karpathy, images: {tmp_path}, annotations: {tmp_path}/dataset.json, eval_split: test, "
            f"instances: [{tmp_path}/instances.json]}}",
            "features={extractor: grid, weights: microsoft/resnet-50}",
            "evaluation.protocols=[retrieval, attack]",
            "evaluation.first_images=4",
        ],
    )
    records = tuple(build_dataset(config.dataset.format, **config.dataset.options()).records("test"))
    gallery = Gallery(torch.eye(6).unsqueeze(1), torch.eye(6), records)
    seen: list[EvaluationInputs] = []
    monkeypatch.setitem(protocols.CAPTION_PROTOCOLS, "attack", lambda inputs: seen.append(inputs))
    graphs = {"train": tmp_path / "graphs", "test": tmp_path / "graphs"}
    embedded = SimpleNamespace(gallery=gallery, texts=None, reader=None)
    evaluate_captions(config, graphs, "attack", cast("Any", embedded), tmp_path)
    (inputs,) = seen
    assert [record.image_id for record in inputs.gallery.records] == ["10", "11", "12", "13"]
    assert inputs.gallery.images_BKD.shape == (4, 1, 6)
    assert len(inputs.gallery.texts_CD) == 4
    assert [captions[0].image_id for captions in inputs.captions] == ["0", "1", "2", "3"]
    assert inputs.detections == [(), ["cat"], (), ()]
