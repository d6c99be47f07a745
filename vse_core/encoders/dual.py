"""The two towers of a pretrained dual encoder (CLIP, SigLIP) as its authors use them: pixels and tokens to one space.

S side of the pixels; D dimensions of the dual encoder's own space.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from vse_core.encoders.dual_text import DualTextEncoder
from vse_core.encoders.open_clip import OpenClip, adapt, build_open_clip, load_open_clip
from vse_core.encoders.pretrained import architecture_of, build_from_architecture, load_pretrained
from vse_core.hub import open_clip_source
from vse_core.similarity import unit_length

# The projections of attention in every layer of both towers, which LoRA adapts (Hu et al. 2021, section 4.2).
_ADAPTED = r".*self_attn\.(q_proj|k_proj|v_proj|out_proj)"
# What a dual encoder multiplies its similarities by, as a logarithm, and what SigLIP adds.
_LOGITS = ("logit_scale", "logit_bias")


class DualImageEncoder(nn.Module):
    """The vision tower: its pooled state, projected and scaled to unit length.

    ``view`` is how an image becomes S x S pixels: "crop" (CLIP: the short side scaled to S, the centre) or "bicubic".
    There is one cell, for a tower's patches are not left out.
    """

    mean: Tensor
    std: Tensor
    cells = 1
    class_tokens = 0

    def __init__(
        self, tower: nn.Module, projection: nn.Module, image_size: int, pixels: Mapping[str, Any], rebuilt_by: Any
    ) -> None:
        super().__init__()
        self.tower, self.projection = tower, projection
        self.image_size, self.view, self.rebuilt_by = image_size, pixels["view"], rebuilt_by
        self.register_buffer("mean", torch.tensor(pixels["mean"]).reshape(3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(pixels["std"]).reshape(3, 1, 1), persistent=False)

    def forward(self, pixels_BCHW: Tensor, kept_BN: Tensor) -> Tensor:  # noqa: ARG002
        """Encode pixels (B, 3, S, S), red first, from 0 to 255, into (B, 1, D) vectors of unit length."""
        pooled_BH = self.tower(pixel_values=(pixels_BCHW - self.mean) / self.std).pooler_output
        return unit_length(self.projection(pooled_BH)).unsqueeze(1)


def build_dual_encoders(
    weights: str | None = None,
    architecture: dict[str, Any] | None = None,
    pixels: Mapping[str, Any] | None = None,
    lora: Mapping[str, Any] | None = None,
    logits: Mapping[str, float] | None = None,
) -> tuple[DualImageEncoder, DualTextEncoder]:
    """Build the two towers from pretrained weights, or from the architecture and pixels of a saved model.

    Args:
        weights: local folder with config.json, *.safetensors and the settings for images, or of open_clip, or a name on
            the hub.
        architecture: as :func:`~vse_core.encoders.pretrained.architecture_of` gives it, for random weights.
        pixels: normalisation and view of the pixels; by default those of the weights.
        logits: `logit_scale`, and `logit_bias` of SigLIP, which the towers do not use; by default those of the weights.
        lora: ``{"rank": r, "alpha": a, "dropout": p}`` trains only low-rank updates of the attention (Hu et al. 2021).

    Raises:
        ValueError: the weights cannot be loaded, or are not a dual encoder of CLIP's or SigLIP's kind.
    """
    network = _built(architecture or {}) if weights is None else _loaded(weights)
    is_open_clip = isinstance(network, OpenClip)
    if not (hasattr(network, "vision_model") and hasattr(network, "text_model")):
        raise ValueError(
            f"{weights or 'the architecture'}: {type(network).__name__} is not a dual encoder; name one that "
            "transformers loads with a vision_model and a text_model (CLIP, SigLIP)"
        )
    if pixels is None and is_open_clip:
        pixels = network.pixels
    if pixels is None:
        assert weights is not None, "a saved model has its pixels"
        from vse_core.encoders.networks import image_processor, pixels_of  # torchvision

        view = "crop" if "shortest_edge" in dict(image_processor(weights).size) else "bicubic"
        pixels = {**pixels_of(weights), "view": view}
    if logits is None:
        logits = {name: getattr(network, name).item() for name in _LOGITS if weights and name in network.state_dict()}
    rebuilt = network.architecture if is_open_clip else architecture_of(network)
    rebuilt_by = {"architecture": rebuilt, "pixels": dict(pixels), "logits": dict(logits)}
    projections = [getattr(network, f"{name}_projection", nn.Identity()) for name in ("visual", "text")]
    image_size = network.image_size if is_open_clip else network.config.vision_config.image_size
    images = DualImageEncoder(network.vision_model, projections[0], image_size, pixels, rebuilt_by)
    texts = DualTextEncoder(network.text_model, projections[1])
    if weights is not None and not is_open_clip:
        _require_same(network, images, texts, weights)
    if lora is not None:
        for encoder in (images, texts):
            (adapt if is_open_clip else _adapt)(encoder, lora)
    return images, texts


def _loaded(weights: str) -> Any:
    source = open_clip_source(weights)
    return load_pretrained(weights) if source is None else load_open_clip(source)


def _built(architecture: Mapping[str, Any]) -> Any:
    is_open_clip = "open_clip" in architecture
    return build_open_clip(architecture["open_clip"]) if is_open_clip else build_from_architecture(dict(architecture))


@torch.no_grad()
def joined_network(images: DualImageEncoder, texts: DualTextEncoder, logits: Mapping[str, float]) -> Any:
    """Return the library's network that two towers, without LoRA, were taken from, with their weights."""
    network = _built(images.rebuilt_by["architecture"])
    network.vision_model, network.text_model = images.tower, texts.tower
    for name, projection in (("visual_projection", images.projection), ("text_projection", texts.projection)):
        if hasattr(network, name):
            setattr(network, name, projection)
    for name in filter(network.state_dict().__contains__, _LOGITS):
        value = {**images.rebuilt_by["logits"], **logits}.get(name)
        if value is not None:
            getattr(network, name).fill_(value)
    return network.eval()


@torch.no_grad()
def _require_same(network: Any, images: DualImageEncoder, texts: DualTextEncoder, weights: str) -> None:
    """Raise ValueError if the network's own features are not those of its towers."""
    pixels_BCHW = torch.rand(1, 3, images.image_size, images.image_size) * 255
    tokens_CL = torch.full((1, 4), network.config.text_config.eos_token_id or 0)
    try:
        of_images = network.get_image_features(pixel_values=(pixels_BCHW - images.mean) / images.std).pooler_output
        of_texts = network.get_text_features(input_ids=tokens_CL).pooler_output
        ours_BD, ours_CD = images(pixels_BCHW, torch.ones(1, 1))[:, 0], texts(tokens_CL, torch.tensor([4]))
    except (TypeError, ValueError, RuntimeError, AttributeError, LookupError) as error:
        raise ValueError(f"{weights}: {type(network).__name__} cannot be used as a dual encoder ({error})") from error
    pairs = ((of_images, ours_BD), (of_texts, ours_CD))
    if not all(torch.allclose(unit_length(own), ours, atol=1e-4) for own, ours in pairs):
        raise ValueError(
            f"{weights}: {type(network).__name__} does not make its features by projecting the pooled states of its "
            "towers; name a model of CLIP's or SigLIP's kind"
        )


def _adapt(encoder: nn.Module, lora: Mapping[str, Any]) -> None:
    from peft import LoraConfig, inject_adapter_in_model

    encoder.requires_grad_(False)
    options = {"r": lora["rank"], "lora_alpha": lora["alpha"], "lora_dropout": lora["dropout"]}
    inject_adapter_in_model(LoraConfig(**options, target_modules=_ADAPTED), encoder)
