"""Text encoder over pieces of words: a pretrained transformer, a linear projection, an aggregator."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from vse_core.digests import first_line
from vse_core.encoders.pretrained import architecture_of, build_from_architecture, load_pretrained
from vse_core.pooling.masks import valid_mask
from vse_core.similarity import unit_length
from vse_core.static_shapes import has_static_shapes
from vse_core.training.sharding import is_sharded

# Captions in a group on a CPU: 16 take the same time, 64 take more.
_GROUP = 32


class BertEncoder(nn.Module):
    """Project the last hidden states of all tokens, ``[CLS]`` and ``[SEP]`` among them, and pool them (VSE-infinity).

    Any text network that transformers' auto classes load will do, and of a dual encoder (CLIP, SigLIP) the text tower.
    Its own pooler, of which the embedding has no use, is left out: every parameter takes part in the loss.

    Args:
        embed_dim: D, width of the joint space.
        pooling: aggregator called with ``(features_CLD, lengths_C)``.
        weights: local folder with config.json and *.safetensors, or a name on the hub; or else
        architecture: as :func:`vse_core.encoders.pretrained.architecture_of` gives it, for random weights.

    Raises:
        ValueError: the network cannot be loaded or built, or reads no text.
    """

    def __init__(
        self,
        embed_dim: int,
        pooling: nn.Module,
        weights: str | None = None,
        architecture: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        network: Any = load_pretrained(weights) if weights is not None else build_from_architecture(architecture or {})
        self.rebuilt_by = {"architecture": architecture_of(network)}
        self.bert = _text_side(network)
        width = _state_width(self.bert, weights)
        self.vocabulary_size: int = self.bert.get_input_embeddings().num_embeddings
        self.max_tokens = _positions(self.bert)
        self.linear = nn.Linear(width, embed_dim)
        self.pooling = pooling

    def forward(self, tokens_CL: Tensor, lengths_C: Tensor) -> Tensor:
        """Encode (C, L) token ids into (C, D) unit vectors; ValueError if a caption is empty or too long."""
        if self.max_tokens is not None and tokens_CL.shape[1] > self.max_tokens:
            raise ValueError(
                f"a caption of {tokens_CL.shape[1]} tokens is too long: the text encoder has {self.max_tokens} "
                "positions; shorten it"
            )
        return unit_length(self.pooling(self.linear(self._states(tokens_CL, lengths_C)), lengths_C))

    def _states(self, tokens_CL: Tensor, lengths_C: Tensor) -> Tensor:
        """Return the last hidden states. A CPU reads captions in groups of similar length: half a batch is padding."""
        # Of local batches of different sizes, processes would make different numbers of groups.
        if has_static_shapes(tokens_CL) or is_sharded(self.bert):
            return self._padded_states(tokens_CL, lengths_C)
        order_C = lengths_C.argsort()
        groups = []
        for group_c in order_C.split(_GROUP):
            longest = max(1, int(lengths_C[group_c[-1]]))
            states_clH = self._padded_states(tokens_CL[group_c, :longest], lengths_C[group_c])
            groups.append(pad(states_clH, (0, 0, 0, tokens_CL.shape[1] - states_clH.shape[1])))
        return torch.cat(groups)[order_C.argsort()]

    def _padded_states(self, tokens_CL: Tensor, lengths_C: Tensor) -> Tensor:
        mask_CL = valid_mask(tokens_CL, lengths_C).long()
        states_CLH: Tensor = self.bert(input_ids=tokens_CL, attention_mask=mask_CL).last_hidden_state
        return states_CLH


def _text_side(network: Any) -> Any:
    """Return what reads text of a network, without the pooler that no hidden state depends on."""
    if network.config.is_encoder_decoder:
        network = network.get_encoder()
    tower = getattr(network, "text_model", network)
    if hasattr(tower, "pooler"):
        tower.pooler = None
    if hasattr(tower, "head"):  # the pooler of SigLIP
        tower.head = nn.Identity()
    return tower


def _state_width(network: nn.Module, weights: str | None) -> int:
    """Return the width of a network's hidden states; ValueError if it reads no text."""
    tokens_CL, training = torch.zeros(1, 3, dtype=torch.long), network.training
    try:
        with torch.no_grad():
            state = network.eval()(input_ids=tokens_CL, attention_mask=torch.ones_like(tokens_CL)).last_hidden_state
        if state.shape[:2] != tokens_CL.shape:
            raise ValueError(f"its last hidden state of 3 tokens has the shape {tuple(state.shape)}")
    except (TypeError, ValueError, RuntimeError, AttributeError, LookupError) as error:
        raise ValueError(
            f"{weights or 'the architecture'}: {type(network).__name__} is not a text encoder "
            f"({first_line(error)}); name a network that reads text "
            "(BERT, RoBERTa, ModernBERT, ...) or a dual encoder with a text tower (CLIP, SigLIP)"
        ) from error
    network.train(training)
    return int(state.shape[2])


def _positions(network: Any) -> int | None:
    """Return the number of tokens that a network has positions for; RoBERTa's begin after that of the padding."""
    positions: int | None = getattr(network.config, "max_position_embeddings", None)
    table = getattr(getattr(network, "embeddings", None), "position_embeddings", None)
    padding = getattr(table, "padding_idx", None)
    if positions is None or positions < 1:  # XLNet's -1 is not a limit
        return None
    return positions if padding is None else positions - padding - 1
