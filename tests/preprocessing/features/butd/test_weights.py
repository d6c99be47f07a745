"""The released files into the network, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from preprocessing.features.butd.proposals import caffe_anchors
from preprocessing.features.butd.weights import load_weights
from preprocessing.features.extractor import ExtractorError
from tests.preprocessing.features.butd.tiny import tiny_detector

ANCHORS = "proposal_generator.anchor_generator.cell_anchors.0"
RPN = "proposal_generator.rpn_head"
BOX = "roi_heads.box_predictor"
# Place of each anchor of ours (ratio by ratio) among detectron2's (size by size).
SIZE_BY_SIZE = [ratio * 4 + scale for scale in range(4) for ratio in range(3)]

State = dict[str, Tensor]


@pytest.fixture
def state() -> State:
    """Tensors that every file below holds, in the network's own names and order."""
    state = tiny_detector(seed=7).state_dict()
    generator = torch.Generator().manual_seed(0)
    for name, tensor in state.items():
        if tensor.is_floating_point() and name != ANCHORS:
            tensor.uniform_(0.1, 1.0, generator=generator)
    return {name: tensor.clone() for name, tensor in state.items()}


def huggingface(state: State) -> State:
    """Anchors and their channels size by size."""
    changed = dict(state)
    changed[ANCHORS] = state[ANCHORS][SIZE_BY_SIZE]
    for kind in ("weight", "bias"):
        logits, deltas = f"{RPN}.objectness_logits.{kind}", f"{RPN}.anchor_deltas.{kind}"
        changed[logits] = state[logits][SIZE_BY_SIZE]
        changed[deltas] = torch.cat([state[deltas][4 * row : 4 * row + 4] for row in SIZE_BY_SIZE])
    return changed


def assert_loads(path: Path | str, state: State) -> None:
    detector = tiny_detector(seed=1)
    load_weights(detector, str(path))
    for name, tensor in detector.state_dict().items():
        torch.testing.assert_close(tensor, state[name], rtol=1e-5, atol=1e-6, msg=name)


def test_huggingface_as_a_folder_or_a_file(tmp_path: Path, state: State) -> None:
    torch.save(huggingface(state), tmp_path / "pytorch_model.bin")
    assert_loads(tmp_path, state)
    assert_loads(tmp_path / "pytorch_model.bin", state)
    save_file(huggingface(state), tmp_path / "model.safetensors")
    (tmp_path / "pytorch_model.bin").write_bytes(b"not read")
    assert_loads(tmp_path, state)


def test_the_networks_own_state(tmp_path: Path, state: State) -> None:
    save_file(state, tmp_path / "own.safetensors")
    assert_loads(tmp_path / "own.safetensors", state)


def test_anchors_of_the_file_are_kept(tmp_path: Path, state: State) -> None:
    """The files' anchors are not quite those that detectron2 would make."""
    changed = {**state, ANCHORS: caffe_anchors() + 0.5}
    save_file(huggingface(changed), tmp_path / "model.safetensors")
    assert_loads(tmp_path, changed)


def test_all_that_does_not_fit_is_told(tmp_path: Path, state: State) -> None:
    changed = huggingface(state)
    for name in ("weight", "bias"):
        del changed[f"{BOX}.attr_score.{name}"]
    changed["backbone.res5.0.conv1.weight"] = torch.zeros(1)
    changed[f"{BOX}.cls_score.bias"] = torch.zeros(7)
    save_file(changed, tmp_path / "model.safetensors")
    with pytest.raises(ExtractorError) as caught:
        load_weights(tiny_detector(), str(tmp_path))
    message = str(caught.value)
    assert f'Missing key(s) in state_dict: "{BOX}.attr_score.weight", "{BOX}.attr_score.bias"' in message
    assert 'Unexpected key(s) in state_dict: "backbone.res5.0.conv1.weight"' in message
    assert f"size mismatch for {BOX}.cls_score.bias" in message
    assert "unc-nlp/frcnn-vg-finetuned" in message


@pytest.mark.parametrize(
    ("weights", "reason"),
    [
        ("/no/such/file.pth", "there is no file or folder /no/such/file.pth; give the hub id unc-nlp"),
        ("some/deep/path", "there is no file or folder"),
        ("owner/name", "'owner/name' cannot be had from the hub"),
    ],
)
def test_weights_that_are_not_there(weights: str, reason: str) -> None:
    with pytest.raises(ExtractorError, match=reason):
        load_weights(tiny_detector(), weights)
