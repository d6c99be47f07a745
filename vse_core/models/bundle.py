"""Loading models that `Model.save` has written: safetensors, next to the JSON that rebuilds the model. No pickle."""

import json
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from vse_core.digests import check_digests, damage_named
from vse_core.models.build import build_model
from vse_core.models.model import SPECIFICATION, WEIGHTS, Model
from vse_core.registry import require


def load_model(directory: Path | str, device: str = "cpu") -> Model:
    """Rebuild a saved model, in evaluation mode; low-rank updates (LoRA) are merged into the weights.

    Raises:
        FileNotFoundError: the directory holds no model.
        ValueError: a file is not the one that was saved, or the weights do not fit the specification.
    """
    directory = Path(directory)
    for name in (SPECIFICATION, WEIGHTS):
        if not (directory / name).is_file():
            raise FileNotFoundError(f"{directory} holds no model: {name} is missing")
    check_digests(directory, SPECIFICATION, WEIGHTS)
    check_digests(directory)
    with damage_named(directory / SPECIFICATION):
        specification = json.loads((directory / SPECIFICATION).read_text(encoding="utf-8"))
    require(f"the model in {directory}", specification.pop("plugins", {}))
    with damage_named(directory / SPECIFICATION):
        model = build_model(**specification)
    load_weights(model, directory)
    _merge_updates(model)
    return model.to(device).eval()


def _merge_updates(model: Model) -> None:
    """Merge low-rank updates into the weights that they update, so that the model is one without them."""
    image = model.specification["image"]
    if not image.get("lora"):
        return
    from peft.tuners.tuners_utils import BaseTunerLayer

    for name, layer in list(model.named_modules()):
        if isinstance(layer, BaseTunerLayer):
            layer.merge()
            model.set_submodule(name, layer.get_base_layer())
    model.specification = {**model.specification, "image": {**image, "lora": None}}


def load_weights(model: Model, directory: Path) -> None:
    """Fill a model with saved weights; ValueError if they are damaged, missing, unknown or misshapen."""
    check_digests(directory, WEIGHTS)
    with damage_named(directory / WEIGHTS):
        tensors = load_file(directory / WEIGHTS)
    _fill(model, tensors, f"the weights in {directory / WEIGHTS}")


@torch.no_grad()
def start_from(model: Model, weights: Mapping[str, Tensor], words: tuple[Tensor, Tensor] | None = None) -> None:
    """Begin training with the weights, by name, of a model of the same architecture, which may know other words.

    Word embeddings of words that both know are reused; the others stay as they are. ``words`` are the ids (W,) of the
    common words in the model, and in the other one; None if all ids mean the same. ValueError if weights do not fit.
    """
    filled = dict(weights)
    if words is not None:
        own_W, other_W = words
        for name, embedding in model.named_modules():
            key = f"{name}.weight"
            # One of another width is refused when it is loaded.
            is_known = isinstance(embedding, nn.Embedding) and key in weights
            if is_known and weights[key].shape[1:] == embedding.weight.shape[1:]:
                filled[key] = embedding.weight.detach().clone()
                filled[key][own_W] = weights[key][other_W].to(filled[key])
    _fill(model, filled, "the weights")


def _fill(model: Model, tensors: Mapping[str, Tensor], source: str) -> None:
    try:
        model.load_state_dict(tensors, strict=True)
    except RuntimeError as error:
        raise ValueError(f"{source} do not fit the model: {error}") from error
