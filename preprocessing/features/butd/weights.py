"""The released weights of the detector: where they are, and the order of their anchors."""

from collections.abc import Mapping
from pathlib import Path

import torch
from huggingface_hub import snapshot_download
from torch import Tensor

from preprocessing.features.butd.proposals import order_of
from preprocessing.features.extractor import ExtractorError
from preprocessing.features.weights import fill, is_state, read_weights
from preprocessing.reading import damage_as

SOURCES = "the hub id unc-nlp/frcnn-vg-finetuned, or a local path to its model.safetensors or pytorch_model.bin"

_FILES = ("model.safetensors", "pytorch_model.bin")
_ANCHORS = "proposal_generator.anchor_generator.cell_anchors.0"
_RPN = "proposal_generator.rpn_head"
# Tensors of the training, and of pixels that are not scaled here.
_UNUSED = ("num_batches_tracked", "pixel_mean", "pixel_std")


def load_weights(network: torch.nn.Module, weights: str) -> None:
    """Fill the detector with released weights: a file, a folder that holds one, or a hub id.

    ExtractorError: there are no such weights, they cannot be read without running code in them, or do not fit.
    """
    fill(network, read_detector(weights), weights, f"use {SOURCES}")


def canonical(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the released tensors in the network's order: their anchors get the Caffe model's; ValueError if others."""
    state = {name: tensor.float() for name, tensor in state.items() if not name.endswith(_UNUSED)}
    if _ANCHORS not in state:
        return state
    order = order_of(state[_ANCHORS])
    ordered = {_ANCHORS: state[_ANCHORS][order]}
    for part, values in (("objectness_logits", 1), ("anchor_deltas", 4)):
        for kind in ("weight", "bias"):
            name = f"{_RPN}.{part}.{kind}"
            if name in state and len(state[name]) == values * len(order):
                ordered[name] = state[name].unflatten(0, (-1, values))[order].flatten(0, 1)
    return state | ordered


def read_detector(weights: str) -> dict[str, Tensor]:
    """Return released weights, whatever their form, in the network's order; raises as :func:`load_weights`."""
    path = _located(weights)
    with damage_as(ExtractorError, f"weights {path} are not those of this detector", f"use {SOURCES}"):
        state = read_weights(path)
        if not is_state(state):
            raise ExtractorError(f"weights {path} hold no tensors by name; use {SOURCES}")
        return canonical(state)


def _located(weights: str) -> Path:
    """The file of the weights on this machine; fetched from the hub if `weights` is a hub id."""
    path = Path(weights).expanduser()
    if path.is_file():
        return path
    if path.is_dir():
        found = [path / name for name in _FILES if (path / name).is_file()]
        if not found:
            raise ExtractorError(f"weights: {path} holds neither {' nor '.join(_FILES)}; name the file itself")
        return found[0]
    if weights.startswith(("/", ".", "~")) or weights.count("/") != 1:
        raise ExtractorError(f"weights: there is no file or folder {path.absolute()}; give {SOURCES}")
    remedy = f"check the name and the network, or download them elsewhere and name the file. Weights are: {SOURCES}"
    with damage_as(ExtractorError, f"weights {weights!r} cannot be had from the hub", remedy):
        return _located(snapshot_download(weights, allow_patterns=list(_FILES)))
