"""A model on disk: its weights as safetensors next to the JSON that rebuilds it. No pickle."""

import json
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file

from vse_core.damage import damage_named
from vse_core.digests import check_digests, write_digests
from vse_core.models.build import build_model
from vse_core.models.model import Model

WEIGHTS = "model.safetensors"
SPECIFICATION = "model.json"


def save_model(model: Model, specification: dict[str, Any], directory: Path) -> None:
    """Write ``model.safetensors`` and ``model.json``, the arguments of :func:`build_model`, with their digests.

    Where an encoder started from pretrained weights, its architecture takes their place in the JSON: they are all in
    the model now, and are not needed to load it.
    """
    save_file({name: tensor.contiguous() for name, tensor in model.state_dict().items()}, directory / WEIGHTS)
    (directory / SPECIFICATION).write_text(
        json.dumps(_self_contained(model, specification), indent=2) + "\n", encoding="utf-8"
    )
    write_digests(directory, WEIGHTS, SPECIFICATION)


def _self_contained(model: Model, specification: dict[str, Any]) -> dict[str, Any]:
    towers: dict[str, Any] = {"image": model.image_encoder, "text": model.text_encoder}
    content = dict(specification)
    for side, encoder in towers.items():
        if "weights" in specification[side]:
            options = {key: value for key, value in specification[side].items() if key != "weights"}
            content[side] = {**options, **encoder.rebuilt_by}
    return content


def load_model(directory: Path | str, device: str = "cpu") -> Model:
    """Rebuild a saved model, in evaluation mode.

    Raises:
        FileNotFoundError: the directory holds no model.
        ValueError: a file is not the one that was saved, or the weights do not fit the specification (missing, unknown
            or misshapen ones are listed).
    """
    directory = Path(directory)
    for name in (SPECIFICATION, WEIGHTS):
        if not (directory / name).is_file():
            raise FileNotFoundError(f"{directory} holds no model: {name} is missing")
    check_digests(directory)
    with damage_named(directory / SPECIFICATION):
        model = build_model(**json.loads((directory / SPECIFICATION).read_text(encoding="utf-8")))
    load_weights(model, directory)
    return model.to(device).eval()


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
