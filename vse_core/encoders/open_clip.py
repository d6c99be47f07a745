"""Dual encoders of open_clip (CLIP, MobileCLIP2, SigLIP 2, OpenVision): its own networks, as two towers.

Weights are read from safetensors, or by `torch.load(weights_only=True)`.
"""

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.utils import parametrize

from vse_core.digests import first_line
from vse_core.open_clip_format import CONFIG, open_clip

WEIGHTS = "open_clip_model.safetensors"
_LOADING_ERRORS = (OSError, ValueError, KeyError, TypeError, AttributeError, ImportError, RuntimeError, AssertionError)


class Tower(nn.Module):
    """A tower of open_clip that is called as one of transformers; its pooled state is projected already."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.length: int | None = getattr(network, "context_length", None)

    def forward(self, pixel_values: Tensor | None = None, input_ids: Tensor | None = None, **_: Any) -> SimpleNamespace:
        """Encode pixels or token ids; these come padded to one length, so that no mask is needed."""
        return SimpleNamespace(pooler_output=self.network(input_ids if pixel_values is None else pixel_values))

    def get_input_embeddings(self) -> Any:
        """Return the embeddings of tokens."""
        return self.network.token_embedding

    def train(self, mode: bool = True) -> Self:
        """Train all but the statistics of batch norms (MobileCLIP2's), which would be of one process's local batch."""
        super().train(mode)
        for module in self.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.eval()
        return self


class OpenClip(nn.Module):
    """A network of open_clip with the names that dual encoders of transformers have."""

    image_size: int
    pixels: Mapping[str, Any]

    def __init__(self, network: Any, config: Mapping[str, Any]) -> None:
        super().__init__()
        self.vision_model, self.text_model = Tower(network.visual), Tower(network.text)
        self.logit_scale, self.logit_bias = network.logit_scale, network.logit_bias
        self.architecture = {"open_clip": dict(config)}
        size = network.visual.image_size
        self.image_size, other = (size, size) if isinstance(size, int) else size
        if self.image_size != other:
            raise ValueError(f"its images have {self.image_size} x {other} pixels, and only square ones are made here")

    def save_pretrained(self, folder: Path, pixels: Mapping[str, Any]) -> None:
        """Write the configuration and weights as open_clip does."""
        mode, _, interpolation = pixels["view"].partition("-")
        mean, std = ([value / 255 for value in pixels[name]] for name in ("mean", "std"))
        preprocess = {"mean": mean, "std": std, "interpolation": interpolation, "resize_mode": mode}
        content = {"model_cfg": {**self.architecture["open_clip"], "custom_text": True}, "preprocess_cfg": preprocess}
        (folder / CONFIG).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
        named: dict[str, Any] = {"visual": self.vision_model.network, "text": self.text_model.network}
        state = {f"{side}.{name}": each for side, tower in named.items() for name, each in tower.state_dict().items()}
        state |= dict(self.named_parameters(recurse=False))
        save_file({name: tensor.detach().contiguous() for name, tensor in state.items()}, folder / WEIGHTS)


def load_open_clip(source: str) -> OpenClip:
    """Load `local-dir:FOLDER` or `hf-hub:NAME`; the network says how images become its pixels, of 0 to 255.

    ValueError if the package is missing, the weights cannot be loaded, or are not two towers with square images.
    """
    package = open_clip()
    try:
        config = package.get_model_config(source)
        _require_towers(config)
        network = package.create_model(source, force_custom_text=True, require_pretrained=True)
        given = network.visual.preprocess_cfg
        if given["resize_mode"] == "longest" and given["fill_color"]:
            raise ValueError(f"its images are padded with the colour {given['fill_color']}, and only with 0 here")
        found = OpenClip(network, config)
    except _LOADING_ERRORS as error:
        raise ValueError(f"{source}: open_clip's network cannot be used ({first_line(error)})") from error
    interpolation = "bilinear" if given["interpolation"] == "bilinear" else "bicubic"
    pixels = {name: [255 * value for value in given[name]] for name in ("mean", "std")}
    found.pixels = {**pixels, "view": f"{given['resize_mode']}-{interpolation}"}
    return found


def build_open_clip(config: Mapping[str, Any]) -> OpenClip:
    """Build a network with random weights from its configuration; ValueError if this is not one of two towers."""
    package = open_clip()
    try:
        _require_towers(config)
        vision = {**config["vision_cfg"], "timm_model_pretrained": False}
        options = {name: value for name, value in config.items() if name != "custom_text"}
        return OpenClip(package.CustomTextCLIP(**{**options, "vision_cfg": vision}), config)
    except _LOADING_ERRORS as error:
        raise ValueError(f"open_clip cannot build the network ({first_line(error)})") from error


def _require_towers(config: Mapping[str, Any]) -> None:
    if "multimodal_cfg" in config or config["text_cfg"].get("hf_model_name"):
        raise ValueError("it is not two towers of open_clip's own: CoCa, or a text tower of transformers")


class LowRank(nn.Module):
    """The update (alpha / rank) B A of a weight W (Hu et al. 2021), B zero at first.

    Multi-head attention of PyTorch, which open_clip has, takes its weights without calling layers that could add it.
    """

    def __init__(self, weight: Tensor, rank: int, alpha: float) -> None:
        super().__init__()
        self.lora_a = nn.Parameter(torch.empty(rank, weight.shape[1]))
        self.lora_b = nn.Parameter(torch.zeros(weight.shape[0], rank))
        nn.init.kaiming_uniform_(self.lora_a, a=math.sqrt(5))
        self.scale = alpha / rank

    def forward(self, weight: Tensor) -> Tensor:
        """Return W + (alpha / rank) B A."""
        return weight + self.scale * self.lora_b @ self.lora_a


def adapt(encoder: nn.Module, lora: Mapping[str, Any]) -> None:
    """Train low-rank updates of attention's weights alone; ValueError with dropout, which has no place."""
    if lora["dropout"]:
        raise ValueError("model.lora.dropout: networks of open_clip are trained without it; set it to 0")
    encoder.requires_grad_(False)
    for module, name in list(_attention(encoder)):
        update = LowRank(getattr(module, name), lora["rank"], lora["alpha"])
        parametrize.register_parametrization(module, name, update)


def merge(model: nn.Module) -> None:
    """Merge low-rank updates into the weights that they update."""
    module: Any
    for module in list(model.modules()):
        if parametrize.is_parametrized(module):
            for name in [*module.parametrizations]:
                parametrize.remove_parametrizations(module, name)


def _attention(encoder: nn.Module) -> Iterator[tuple[Any, str]]:
    """Yield the weights of open_clip's and of timm's attention, as module and name."""
    module: Any
    for module in encoder.modules():
        if getattr(module, "in_proj_weight", None) is not None:
            yield from ((module, "in_proj_weight"), (module.out_proj, "weight"))
        elif isinstance(getattr(module, "qkv", None), nn.Linear):
            yield from ((module.qkv, "weight"), (module.proj, "weight"))
