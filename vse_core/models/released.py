"""Checkpoints as the authors of VSE-infinity, MV-VSE and VSE+2AD publish them: read safely, and put into our names."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from vse_core.encoders.resnet import RELEASED_MODULES, TOPOLOGIES
from vse_core.tensor_files import is_state, read_tensor_file

# The published grid models read 512 x 512 pixels, the patch models 224 x 224.
_GRID_SIZE = 512
_HEAD_WIDTH = 64
_VIT_PIXELS = {"bgr": False, "mean": [127.5] * 3, "std": [127.5] * 3}
_LISTED = 8

# Official names of tensors, as patterns, and what they are here, or None for tensors that the released code stores but
# never uses; the first match counts.
Names = tuple[tuple[str, str | None], ...]

# VSE-infinity names its modules `fc`, `mlp`, `gpool`; with a network in front `backbone`, `image_encoder`. VSE+2AD says
# `pool` and `img_proj`, and its patch models `vit_model`.
IMAGE_NAMES: Names = (
    (r"fc\.(\w+)", r"image_encoder.fc.\1"),
    (r"mlp\.layers\.0\.(\w+)", r"image_encoder.mlp.hidden.\1"),
    (r"mlp\.layers\.1\.(\w+)", r"image_encoder.mlp.out.\1"),
    (r"mlp\.bns\.0\.(\w+)", r"image_encoder.mlp.norm.\1"),
    (r"mlp\.bns\.1\.\w+", None),
    (r"(?:gpool|pool)\.(.+)", r"image_encoder.pooling.\1"),
    (r"(?:image_encoder|img_proj)\.fc\.(\w+)", r"image_encoder.head.fc.\1"),
    (r"(?:image_encoder|img_proj)\.(?:gpool|pool)\.(.+)", r"image_encoder.head.pooling.\1"),
    (r"img_proj\.mlp\..+", None),
    (r"backbone\.resnet\.fc\.\w+", None),
    (r"backbone\.resnet\.(.+)", r"image_encoder.backbone.\1"),
    *(
        (rf"backbone\.{re.escape(theirs)}\.(.+)", rf"image_encoder.backbone.{ours}.\1")
        for theirs, ours in RELEASED_MODULES.items()
    ),
    # ViT's names before and since transformers 5.
    (
        r"vit_model\.encoder\.layer\.(\d+)\.attention\.attention\.(q|k|v)(?:uery|ey|alue)\.(\w+)",
        r"image_encoder.backbone.layers.\1.attention.\2_proj.\3",
    ),
    (
        r"vit_model\.encoder\.layer\.(\d+)\.attention\.output\.dense\.(\w+)",
        r"image_encoder.backbone.layers.\1.attention.o_proj.\2",
    ),
    (r"vit_model\.encoder\.layer\.(\d+)\.intermediate\.dense\.(\w+)", r"image_encoder.backbone.layers.\1.mlp.fc1.\2"),
    (r"vit_model\.encoder\.layer\.(\d+)\.output\.dense\.(\w+)", r"image_encoder.backbone.layers.\1.mlp.fc2.\2"),
    (
        r"vit_model\.encoder\.layer\.(\d+)\.(layernorm_(?:before|after))\.(\w+)",
        r"image_encoder.backbone.layers.\1.\2.\3",
    ),
    (r"vit_model\.((?:embeddings|layernorm|pooler|layers)\..+)", r"image_encoder.backbone.\1"),
)

# VSE-infinity projects BERT's states by `linear`, VSE+2AD by `fc`.
TEXT_NAMES: Names = (
    (r"embed\.weight", r"text_encoder.embed.weight"),
    (r"rnn\.(\w+)", r"text_encoder.rnn.\1"),
    (r"bert\.pooler\..+", None),
    (r"bert\.embeddings\.position_ids", None),
    (r"bert\.(.+)", r"text_encoder.bert.\1"),
    (r"(?:linear|fc)\.(\w+)", r"text_encoder.linear.\1"),
    (r"(?:gpool|pool)\.(.+)", r"text_encoder.pooling.\1"),
)


class CheckpointError(ValueError):
    """A file that is not a checkpoint of a known format; the message says what is wrong with it."""


@dataclass(frozen=True)
class ReleasedCheckpoint:
    """A released file: both encoders' tensors by their official names without `module.`, and the training's options."""

    image: dict[str, Tensor]
    text: dict[str, Tensor]
    options: Mapping[str, Any]


@dataclass(frozen=True)
class ConvertedCheckpoint:
    """The same as arguments of `build_model` and a state dict; `unused` are tensors that the released code ignores."""

    specification: dict[str, Any]
    state: dict[str, Tensor]
    unused: tuple[str, ...]


def read_released(path: Path) -> ReleasedCheckpoint:
    """Read a released file without executing anything in it.

    VSE-infinity and MV-VSE store ``{"model": [image state, text state], "opt": options, ...}``, VSE+2AD
    ``{"model": state of both, "args": options, ...}``, with an ``argparse.Namespace`` of options. A file that cannot be
    read or asks for code to be run is a TensorFileError, one of another format a CheckpointError.
    """
    content = read_tensor_file(path)
    model = content.get("model") if isinstance(content, dict) else None
    if isinstance(model, list | tuple) and len(model) == 2 and all(map(is_state, model)):
        image, text = (_part(state, "") for state in model)
    elif is_state(model):
        image, text = _part(model, "img_enc."), _part(model, "txt_enc.")
        others = [name for name in model if not _plain(name).startswith(("img_enc.", "txt_enc."))]
        if others:
            raise CheckpointError(f"{path}: names that are in neither img_enc nor txt_enc: {_listed(others)}")
    else:
        raise CheckpointError(
            f"{path} is not a released checkpoint: expected a dictionary whose 'model' is a pair of state dicts, or "
            "one state dict with names in img_enc and txt_enc"
        )
    options = content.get("opt", content.get("args"))
    return ReleasedCheckpoint(image, text, vars(options) if isinstance(options, SimpleNamespace) else {})


def convert(
    checkpoint: ReleasedCheckpoint, image_size: int | None = None, pixels: str | None = None
) -> ConvertedCheckpoint:
    """Put a released checkpoint into this library's names, and infer its architecture from the tensors' shapes.

    What shapes do not tell: attention heads are 64 wide, as in every BERT and ViT of the published systems.
    ``image_size`` is the side of the pixels of a grid or patch model, ``pixels`` the normalisation of a grid model's,
    ``caffe`` (networks of the BUTD detector) or ``imagenet``: by default those of the options in the file, or the
    published ones. An unknown name or architecture, or two tensors of one name, is a CheckpointError.
    """
    if not checkpoint.image or not checkpoint.text:
        raise CheckpointError("the checkpoint has no tensors for one of its two encoders")
    image, unused_image = _renamed(_joined_projections(checkpoint.image), IMAGE_NAMES, "image")
    text, unused_text = _renamed(checkpoint.text, TEXT_NAMES, "text")
    state = image | text
    if any(name.startswith("image_encoder.backbone.") for name in image):
        image_options = _backbone(image, checkpoint.options, image_size, pixels)
        head, feature_dim = image["image_encoder.head.fc.weight"], None
    else:
        if image_size is not None or pixels is not None:
            raise CheckpointError("an image size or normalisation has no effect: the model reads features, not pixels")
        image_options = _features(image, checkpoint.image)
        head = image["image_encoder.fc.weight"]
        feature_dim = head.shape[1]
    text_options, vocabulary_size = _text(text)
    specification = {
        "feature_dim": feature_dim,
        "vocabulary_size": vocabulary_size,
        "embed_dim": head.shape[0] // image_options.get("projections", 1),
        "image": image_options,
        "text": text_options,
    }
    return ConvertedCheckpoint(specification, state, (*unused_image, *unused_text))


def _plain(name: str) -> str:
    """Return a name without the `module` of nn.DataParallel."""
    return ".".join(part for part in name.split(".") if part != "module")


def _part(state: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {
        _plain(name).removeprefix(prefix): tensor for name, tensor in state.items() if _plain(name).startswith(prefix)
    }


def _joined_projections(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The K linear layers of MV-VSE's released code as the one wide layer of our encoder."""
    views = range(_count(state, r"fc_list\.(\d+)\."))
    if not views:
        return dict(state)
    names = {f"fc.{kind}": [f"fc_list.{view}.{kind}" for view in views] for kind in ("weight", "bias")}
    listed = {name for parts in names.values() for name in parts}
    if not listed <= set(state):
        raise CheckpointError(f"projections are missing: {_listed(listed - set(state))}")
    joined = {wide: torch.cat([state[name] for name in parts]) for wide, parts in names.items()}
    return {name: tensor for name, tensor in state.items() if name not in listed} | joined


def _renamed(state: Mapping[str, Tensor], names: Names, side: str) -> tuple[dict[str, Tensor], list[str]]:
    renamed: dict[str, Tensor] = {}
    unknown, unused = [], []
    for name, tensor in state.items():
        matches = ((ours, found) for theirs, ours in names if (found := re.fullmatch(theirs, name)))
        ours, found = next(matches, ("", None))
        if found is None:
            unknown.append(name)
        elif ours is None:
            unused.append(name)
        else:
            new = found.expand(ours)
            # Grid files store the network twice, under the names of two modules that share it.
            if new in renamed and not torch.equal(renamed[new], tensor):
                raise CheckpointError(f"two different tensors of the {side} encoder are both {new}")
            renamed[new] = tensor
    if unknown:
        raise CheckpointError(f"unknown names in the {side} encoder: {_listed(unknown)}")
    return renamed, unused


def _features(state: Mapping[str, Tensor], official: Mapping[str, Tensor]) -> dict[str, Any]:
    _require(state, ["image_encoder.fc.weight"], "image")
    views = sum(1 for name in official if re.fullmatch(r"fc_list\.\d+\.weight", name))
    if views:
        return {"pooling": {"name": "max"}, "mlp": False, "projections": views}
    has_mlp = any(name.startswith("image_encoder.mlp.") for name in state)
    return {"pooling": _pooling(state, "image_encoder.pooling."), "mlp": has_mlp}


def _pooling(state: Mapping[str, Tensor], prefix: str) -> dict[str, Any]:
    if f"{prefix}gru.weight_ih_l0" in state:
        hidden_dim, position_dim = (state[f"{prefix}gru.weight_{kind}_l0"].shape[1] for kind in ("hh", "ih"))
        return {"name": "gpo", "position_dim": position_dim, "hidden_dim": hidden_dim}
    if f"{prefix}balance.weight" in state:
        return {"name": "adpool", "variant": "release"}
    raise CheckpointError(f"no aggregator is known by its tensors {_listed(n for n in state if n.startswith(prefix))}")


def _text(state: Mapping[str, Tensor]) -> tuple[dict[str, Any], int]:
    if "text_encoder.embed.weight" in state:
        vocabulary_size, word_dim = state["text_encoder.embed.weight"].shape
        if "text_encoder.rnn.weight_ih_l0_reverse" in state:
            return {"pooling": _pooling(state, "text_encoder.pooling."), "word_dim": word_dim}, vocabulary_size
        return {"pooling": {"name": "last"}, "word_dim": word_dim, "directions": 1}, vocabulary_size
    embeddings = "text_encoder.bert.embeddings"
    tables = [f"{embeddings}.{kind}_embeddings.weight" for kind in ("word", "position", "token_type")]
    intermediate = "text_encoder.bert.encoder.layer.0.intermediate.dense.weight"
    _require(state, [*tables, intermediate], "text")
    (vocabulary_size, width), (positions, _), (types, _) = (state[table].shape for table in tables)
    architecture = {
        "model_type": "bert",
        "vocab_size": vocabulary_size,
        "max_position_embeddings": positions,
        "type_vocab_size": types,
        **_transformer(width, _count(state, r"text_encoder\.bert\.encoder\.layer\.(\d+)\."), state[intermediate]),
    }
    pooling = _pooling(state, "text_encoder.pooling.")
    return {"name": "bert", "pooling": pooling, "architecture": architecture}, vocabulary_size


def _backbone(
    state: Mapping[str, Tensor], options: Mapping[str, Any], image_size: int | None, pixels: str | None
) -> dict[str, Any]:
    _require(state, ["image_encoder.head.fc.weight"], "image")
    pooling = {"pooling": _pooling(state, "image_encoder.head.pooling.")}
    if "image_encoder.backbone.embeddings.cls_token" in state:
        return {"name": "backbone", **pooling, **_vit(state, image_size), "pixels": _VIT_PIXELS}
    scale = options.get("input_scale_factor")
    size = image_size or (round(256 * scale) if isinstance(scale, int | float) else _GRID_SIZE)
    architecture = _resnet(state)
    from_detector = str(options.get("backbone_source", "detector")) == "detector"
    if pixels is None:
        pixels = "caffe" if architecture.endswith("_caffe") and from_detector else "imagenet"
    return {"name": "backbone", **pooling, "architecture": architecture, "image_size": size, "pixels": pixels}


def _resnet(state: Mapping[str, Tensor]) -> str:
    """The network whose blocks and groups these are; all but ResNeXt have Caffe's topology in the released code."""
    prefix = "image_encoder.backbone."
    _require(state, [f"{prefix}layer1.0.conv2.weight"], "image")
    blocks = tuple(_count(state, rf"image_encoder\.backbone\.layer{layer}\.(\d+)\.") for layer in (1, 2, 3, 4))
    out_channels, group_channels = state[f"{prefix}layer1.0.conv2.weight"].shape[:2]
    known = {(blocks, groups): name for name, (blocks, groups, _) in TOPOLOGIES.items()}
    found = (blocks, out_channels // group_channels)
    if found not in known:
        raise CheckpointError(f"no published system has a ResNet of {blocks} blocks in {found[1]} groups")
    return known[found]


def _vit(state: Mapping[str, Tensor], image_size: int | None) -> dict[str, Any]:
    prefix = "image_encoder.backbone."
    patches = f"{prefix}embeddings.patch_embeddings.projection.weight"
    positions, intermediate = f"{prefix}embeddings.position_embeddings", f"{prefix}layers.0.mlp.fc1.weight"
    _require(state, [patches, positions, intermediate], "image")
    width, _, patch_size, _ = state[patches].shape
    side = round((state[positions].shape[1] - 1) ** 0.5) * patch_size
    if image_size not in (None, side):
        raise CheckpointError(f"the patch model reads {side} x {side} pixels, not {image_size}")
    layers = _count(state, r"image_encoder\.backbone\.layers\.(\d+)\.")
    transformer = _transformer(width, layers, state[intermediate])
    architecture = {"model_type": "vit", "image_size": side, "patch_size": patch_size, **transformer}
    return {"architecture": architecture, "image_size": side}


def _transformer(width: int, layers: int, intermediate: Tensor) -> dict[str, int]:
    if width % _HEAD_WIDTH:
        raise CheckpointError(f"a transformer of width {width} has no heads of width {_HEAD_WIDTH}")
    return {
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": width // _HEAD_WIDTH,
        "intermediate_size": intermediate.shape[0],
    }


def _count(state: Iterable[str], pattern: str) -> int:
    return len({found[1] for name in state if (found := re.match(pattern, name))})


def _require(state: Mapping[str, Tensor], names: Sequence[str], side: str) -> None:
    missing = [name for name in names if name not in state]
    if missing:
        raise CheckpointError(f"the {side} encoder is none of a published system: it has no {_listed(missing)}")


def _listed(names: Iterable[str]) -> str:
    listed = sorted(names)
    more = f" and {len(listed) - _LISTED} more" if len(listed) > _LISTED else ""
    return ", ".join(listed[:_LISTED]) + more
