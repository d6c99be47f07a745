"""The text side of a pretrained dual encoder, around the tower of its library or, for queries, around one of its own.

C captions, L tokens, H width of the tower, D dimensions of the dual encoder's own space.
"""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, scaled_dot_product_attention

from vse_core.pooling.masks import valid_mask
from vse_core.similarity import unit_length

_ACTIVATIONS = {
    "quick_gelu": lambda values: values * torch.sigmoid(1.702 * values),
    "gelu": gelu,
    "gelu_pytorch_tanh": lambda values: gelu(values, approximate="tanh"),
}


class DualTextEncoder(nn.Module):
    """The text tower: its pooled state, projected and scaled to unit length; (C, L) tokens become (C, D)."""

    def __init__(self, tower: Any, projection: nn.Module) -> None:
        super().__init__()
        self.tower, self.projection = tower, projection
        self.vocabulary_size: int = tower.get_input_embeddings().num_embeddings
        self.rebuilt_by: dict[str, Any] = {}  # the image side rebuilds both towers

    def forward(self, tokens_CL: Tensor, lengths_C: Tensor) -> Tensor:
        """Encode token ids with lengths (C,); SigLIP's captions are all as long as it was trained with."""
        mask_CL = valid_mask(tokens_CL, lengths_C).long()
        pooled_CH = self.tower(input_ids=tokens_CL, attention_mask=mask_CL).pooler_output
        return unit_length(self.projection(pooled_CH))


class TextTower(nn.Module):
    """The text tower of CLIP (Radford et al. 2021, section 2.4) or SigLIP, with the names of transformers' weights.

    Transformers' own gives the same vectors, and takes longer to import than all else that a search does.
    """

    embeddings: Any
    encoder: Any

    def __init__(self, config: Mapping[str, Any], is_clip: bool) -> None:
        super().__init__()
        width, epsilon = config["hidden_size"], config["layer_norm_eps"]
        positions = nn.Embedding(config["max_position_embeddings"], width)
        words = nn.Embedding(config["vocab_size"], width)
        self.embeddings = nn.ModuleDict({"token_embedding": words, "position_embedding": positions})
        layers = [_Layer(config) for _ in range(config["num_hidden_layers"])]
        self.encoder = nn.ModuleDict({"layers": nn.ModuleList(layers)})
        self.final_layer_norm = nn.LayerNorm(width, epsilon)
        self.is_clip, self.end = is_clip, config["eos_token_id"]
        if not is_clip:
            self.head = nn.Linear(width, config["projection_size"])

    def get_input_embeddings(self) -> Any:
        """Return the embeddings of tokens."""
        return self.embeddings["token_embedding"]

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> SimpleNamespace:
        """Encode token ids (C, L), of which a mask (C, L) tells padding, into the pooled state (C, H)."""
        length = input_ids.shape[1]
        places_LH = self.embeddings["position_embedding"].weight[:length]
        states_CLH = self.embeddings["token_embedding"](input_ids) + places_LH
        seen_C1LL = attention_mask.bool()[:, None, None, :].expand(-1, -1, length, -1)
        if self.is_clip:
            seen_C1LL = seen_C1LL.tril()
        for layer in self.encoder["layers"]:
            states_CLH = layer(states_CLH, seen_C1LL)
        states_CLH = self.final_layer_norm(states_CLH)
        if not self.is_clip:
            return SimpleNamespace(pooler_output=self.head(states_CLH[:, -1]))
        # The end is the highest id in OpenAI's vocabulary, whose configuration on the hub names another one, 2.
        ends_CL = input_ids if self.end == 2 else (input_ids == self.end).int()
        return SimpleNamespace(pooler_output=states_CLH[torch.arange(len(states_CLH)), ends_CL.argmax(dim=1)])


class _Layer(nn.Module):
    """Attention and two linear layers, each normalised before it and added to what came in."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        width, inner, epsilon = (config[name] for name in ("hidden_size", "intermediate_size", "layer_norm_eps"))
        self.heads, self.activation = config["num_attention_heads"], _ACTIVATIONS[config["hidden_act"]]
        self.layer_norm1, self.layer_norm2 = nn.LayerNorm(width, epsilon), nn.LayerNorm(width, epsilon)
        self.self_attn = nn.ModuleDict({f"{name}_proj": nn.Linear(width, width) for name in ("q", "k", "v", "out")})
        self.mlp = nn.ModuleDict({"fc1": nn.Linear(width, inner), "fc2": nn.Linear(inner, width)})

    def forward(self, states_CLH: Tensor, seen_C1LL: Tensor) -> Tensor:
        """Return the states (C, L, H) of the next layer; a mask (C, 1, L, L) tells which ones a token sees."""
        normal_CLH = self.layer_norm1(states_CLH)
        projected = (self.self_attn[f"{name}_proj"](normal_CLH) for name in ("q", "k", "v"))
        query, key, value = (each.unflatten(-1, (self.heads, -1)).transpose(1, 2) for each in projected)
        attended = scaled_dot_product_attention(query, key, value, attn_mask=seen_C1LL)
        states_CLH = states_CLH + self.self_attn["out_proj"](attended.transpose(1, 2).flatten(2))
        inner = self.activation(self.mlp["fc1"](self.layer_norm2(states_CLH)))
        added: Tensor = states_CLH + self.mlp["fc2"](inner)
        return added


def build_text_side(image: Mapping[str, Any]) -> DualTextEncoder | None:
    """Build the text side of CLIP or SigLIP, with random weights, without transformers; None of another model.

    ``image`` is the image side of a saved model's specification, which rebuilds both. With low-rank updates it is None:
    their library has to merge them.
    """
    if image.get("name") != "dual_encoder" or image.get("lora"):
        return None
    architecture: Mapping[str, Any] = image["architecture"]
    config, kind = architecture.get("text_config", {}), architecture.get("model_type")
    if kind not in ("clip", "siglip", "siglip2") or config.get("hidden_act") not in _ACTIVATIONS:
        return None
    is_clip = kind == "clip"
    projection: nn.Module = nn.Identity()
    if is_clip:
        projection = nn.Linear(config["hidden_size"], architecture["projection_dim"], bias=False)
    return DualTextEncoder(TextTower(config, is_clip), projection)
