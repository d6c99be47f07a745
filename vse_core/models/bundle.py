"""Loading models that `Model.save` has written: safetensors, next to the JSON that rebuilds the model. No pickle."""

import json
from pathlib import Path

from safetensors.torch import load_file

from vse_core.digests import check_digests, damage_named
from vse_core.models.build import build_model
from vse_core.models.model import SPECIFICATION, WEIGHTS, Model
from vse_core.registry import require


def load_model(directory: Path | str, device: str = "cpu") -> Model:
    """Rebuild a saved model, in evaluation mode; low-rank updates (LoRA) are merged into the weights.

    Raises:
        FileNotFoundError: the directory holds no model.
        ValueError: a file is not the one that was saved, or the weights do not fit the specification (missing, unknown
            or misshapen ones are listed).
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
    """Fill a model with saved weights; a ValueError says where they are damaged, or which are missing, unknown or
    misshapen.
    """
    check_digests(directory, WEIGHTS)
    with damage_named(directory / WEIGHTS):
        tensors = load_file(directory / WEIGHTS)
    try:
        model.load_state_dict(tensors, strict=True)
    except RuntimeError as error:
        raise ValueError(f"the weights in {directory / WEIGHTS} do not fit the model: {error}") from error
