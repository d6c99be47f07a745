"""Any model from plain values, as configurations have them, or as `Model.save` has written it: no pickle is read."""

import json
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from vse_core.digests import check_digests, damage_named
from vse_core.encoders.components import ComponentEncoder
from vse_core.encoders.dual_text import build_text_side
from vse_core.encoders.image import FeatureEncoder, RegionEncoder
from vse_core.encoders.open_clip import merge
from vse_core.encoders.text import BiGRUEncoder, WordEmbedding
from vse_core.models.hierarchical import FrameLevelEncoder, HierarchicalModel, RoleGraphEncoder
from vse_core.models.model import SPECIFICATION, WEIGHTS, Model, TwoTower
from vse_core.models.unified import UnifiedModel
from vse_core.pooling import build_views
from vse_core.registry import choose, require


def _build_backbone(
    embed_dim: int,
    pooling: nn.Module,
    image_size: int,
    weights: str | None = None,
    architecture: str | dict[str, Any] | None = None,
    pixels: str | Mapping[str, Any] | None = None,
) -> nn.Module:
    # Imported when asked for: torchvision takes seconds, and features need none of it.
    from vse_core.encoders.backbone import BackboneEncoder
    from vse_core.encoders.networks import build_network, resolve_pixels

    network, architecture = build_network(architecture, weights)
    pixels = resolve_pixels(pixels, architecture, weights)
    return BackboneEncoder(network, architecture, embed_dim, pooling, image_size, pixels)


def _build_bert(
    vocabulary_size: int,
    embed_dim: int,
    pooling: nn.Module,
    weights: str | None = None,
    architecture: dict[str, Any] | None = None,
) -> nn.Module:
    # Imported when asked for: transformers takes seconds.
    from vse_core.encoders.bert import BertEncoder

    encoder = BertEncoder(embed_dim, pooling, weights, architecture)
    _require_known(vocabulary_size, encoder.vocabulary_size)
    return encoder


def _require_known(words: int, known: int) -> None:
    if words > known:
        raise ValueError(
            f"captions consist of {words} token ids, the text encoder knows {known}: its weights and its tokenizer are "
            "of two models"
        )


IMAGE_ENCODERS: dict[str, Callable[..., nn.Module]] = {
    "features": FeatureEncoder,
    "backbone": _build_backbone,
    "regions": RegionEncoder,
    "levels": FrameLevelEncoder,
}
TEXT_ENCODERS: dict[str, Callable[..., nn.Module]] = {
    "bigru": BiGRUEncoder,
    "bert": _build_bert,
    "components": ComponentEncoder,
    "role_graphs": RoleGraphEncoder,
}
MODELS: dict[tuple[str, str], Callable[..., Model]] = {
    ("regions", "components"): UnifiedModel,
    ("levels", "role_graphs"): HierarchicalModel,
    ("dual_encoder", "dual_encoder"): TwoTower,
}
"""Models whose two sides belong together, by their names; others are two-tower models."""

# transformers has functions of its own in their places while it builds a network.
_DRAWING = ("normal_", "uniform_", "kaiming_uniform_")


def build_model(
    feature_dim: int | None, vocabulary_size: int, embed_dim: int | None, image: dict[str, Any], text: dict[str, Any]
) -> Model:
    """Build a model by the names of its sides: one of `MODELS`, or else two towers.

    The model keeps the arguments, with which it is saved.

    Args:
        feature_dim: F, width of the image features; None for what takes pixels.
        vocabulary_size: number of token ids that captions consist of.
        embed_dim: D, width of the joint space; None for a dual encoder, which has one of its own.
        image: ``{"name": one of `IMAGE_ENCODERS` ("features"), "pooling": {"name": ..., **options}, **options}``, with
            ``"views": K`` for several aggregators; a backbone's options are those of
            :func:`~vse_core.encoders.networks.build_network` and `resolve_pixels`, those of "dual_encoder" are
            :func:`~vse_core.encoders.dual.build_dual_encoders`'s.
        text: ``{"name": one of `TEXT_ENCODERS` ("bigru"), "pooling": {"name": ..., **options}, **options}``.

    Raises:
        ValueError: a name or an option is unknown, the two sides do not go together, or pretrained weights cannot be
            used.
    """
    names = (image.get("name", "features"), text.get("name", "bigru"))
    for one, other in MODELS:
        if (names[0] == one) != (names[1] == other):
            raise ValueError(f"the image side {one!r} and the text side {other!r} go together, got {names}")
    sizes = {"feature_dim": feature_dim, "vocabulary_size": vocabulary_size, "embed_dim": embed_dim}
    sides = _dual_sides(sizes, image) if embed_dim is None else _towers(names, sizes, image, text)
    model = MODELS.get(names, TwoTower)(*sides)
    model.specification = {**sizes, "image": image, "text": text}
    return model


def _towers(
    names: tuple[str, str], sizes: dict[str, Any], image: dict[str, Any], text: dict[str, Any]
) -> tuple[nn.Module, nn.Module]:
    """Build both encoders, the image's first: recorded losses depend on the order of their random weights."""
    width = {} if sizes["feature_dim"] is None else {"feature_dim": sizes["feature_dim"]}
    image_options = {**width, **_with_pooling(sizes["embed_dim"], image)}
    image_encoder = choose("image encoder", IMAGE_ENCODERS, names[0], **image_options)
    text_options = {"vocabulary_size": sizes["vocabulary_size"], **_with_pooling(sizes["embed_dim"], text)}
    return image_encoder, choose("text encoder", TEXT_ENCODERS, names[1], **text_options)


def _with_pooling(embed_dim: int, side: dict[str, Any]) -> dict[str, Any]:
    """Return the options of an encoder: those of a side, with its aggregators built."""
    options = {key: value for key, value in side.items() if key not in ("name", "views")} | {"embed_dim": embed_dim}
    if side.get("views", 1) > 1 and side.get("projections", 1) > 1:
        raise ValueError("views are several aggregators or several projections, not both: give one of the two")
    if side.get("pooling") is not None:
        options["pooling"] = build_views(side.get("views", 1), dim=embed_dim, **side["pooling"])
    return options


def _dual_sides(sizes: dict[str, Any], image: dict[str, Any]) -> tuple[nn.Module, nn.Module]:
    # Imported when asked for: torchvision takes seconds.
    from vse_core.encoders.dual import build_dual_encoders

    images, texts = build_dual_encoders(**{key: value for key, value in image.items() if key != "name"})
    _require_known(sizes["vocabulary_size"], texts.vocabulary_size)
    return images, texts


def load_model(directory: Path | str, device: str = "cpu") -> Model:
    """Rebuild a saved model, in evaluation mode; low-rank updates (LoRA) are merged into the weights.

    FileNotFoundError if the directory holds no model; ValueError if its files are not those that were saved.
    """
    directory = Path(directory)
    specification = _specification(directory)
    # A dual encoder has most weights; others run their network on a probe when they are built, which needs some.
    is_dual = specification.get("embed_dim", 0) is None
    with damage_named(directory / SPECIFICATION), _Unset() if is_dual else nullcontext():
        model = build_model(**specification)
    load_weights(model, directory)
    _merge_updates(model)
    return model.to(device).eval()


def load_text_side(directory: Path, device: str = "cpu") -> Model | None:
    """Load the text side alone of a saved CLIP or SigLIP, for texts; None if the model is another one.

    It takes neither transformers, whose import is longer than a search, nor the weights of the image side. Raises as
    :func:`load_model`.
    """
    specification = _specification(directory)
    with damage_named(directory / SPECIFICATION), _Unset():
        texts = build_text_side(specification["image"])
    if texts is None:
        return None
    model = TwoTower(nn.Identity(), texts)
    with damage_named(directory / WEIGHTS), safe_open(directory / WEIGHTS, "pt") as file:
        own = {name: file.get_tensor(name) for name in file.keys() if name.startswith("text_encoder.")}  # noqa: SIM118
    _fill(model, own, f"the weights in {directory / WEIGHTS}")
    return model.to(device).eval()


def _specification(directory: Path) -> dict[str, Any]:
    """Return what a saved model is built from; raises as :func:`load_model`."""
    for name in (SPECIFICATION, WEIGHTS):
        if not (directory / name).is_file():
            raise FileNotFoundError(f"{directory} holds no model: {name} is missing")
    check_digests(directory, SPECIFICATION, WEIGHTS)
    check_digests(directory)
    specification: dict[str, Any] = json.loads((directory / SPECIFICATION).read_text(encoding="utf-8"))
    require(f"the model in {directory}", specification.pop("plugins", {}))
    return specification


class _Unset(TorchFunctionMode):
    """Draws no values for new parameters, which saved weights replace: they take longer than reading these."""

    def __torch_function__(self, function: Any, types: Any, given: Any = (), named: Any = None) -> Any:
        """Call a function of torch, but for those that draw, in `nn.init` and of tensors."""
        target = given[0] if given else (named or {}).get("tensor")
        is_drawn = getattr(function, "__name__", "") in _DRAWING and isinstance(target, nn.Parameter)
        return target if is_drawn else function(*given, **named or {})


def _merge_updates(model: Model) -> None:
    """Merge low-rank updates into the weights that they update, so that the model is one without them."""
    image = model.specification["image"]
    if not image.get("lora"):
        return
    merge(model)
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
            is_known = isinstance(embedding, WordEmbedding) and key in weights
            if is_known and weights[key].shape[1:] == embedding.weight.shape[1:]:
                filled[key] = embedding.weight.detach().clone()
                filled[key][own_W] = weights[key][other_W].to(filled[key])
    _fill(model, filled, "the weights")


def _fill(model: Model, tensors: Mapping[str, Tensor], source: str) -> None:
    try:
        model.load_state_dict(tensors, strict=True)
    except RuntimeError as error:
        raise ValueError(f"{source} do not fit the model: {error}") from error
