"""Text encoder over word pieces: a BERT-like transformer, a linear projection, an aggregator."""

from typing import Any

from torch import Tensor, nn

from vse_core.encoders.pretrained import architecture_of, build_from_architecture, load_pretrained
from vse_core.pooling.masks import valid_mask
from vse_core.similarity import unit_length


class BertEncoder(nn.Module):
    """Project the last hidden states of all tokens, ``[CLS]`` and ``[SEP]`` among them, and pool them (VSE-infinity).

    Any BERT-like network that transformers' auto classes load will do. Its own pooler, of which the embedding has no
    use, is left out: every parameter takes part in the loss.

    Args:
        embed_dim: D, width of the joint space.
        pooling: aggregator called with ``(features_CLD, lengths_C)``.
        weights: local folder with config.json and *.safetensors, or a name on the hub; or else
        architecture: as :func:`vse_core.encoders.pretrained.architecture_of` gives it, for random weights. It is also
            an attribute, which rebuilds the encoder without the weights it started from.
        vocabulary_size: number of token ids that captions consist of, to be checked.

    Raises:
        ValueError: not exactly one of ``weights`` and ``architecture`` is given, it cannot be used, or has fewer token
            ids than captions consist of.
    """

    def __init__(
        self,
        embed_dim: int,
        pooling: nn.Module,
        weights: str | None = None,
        architecture: dict[str, Any] | None = None,
        vocabulary_size: int | None = None,
    ) -> None:
        super().__init__()
        if weights is not None and architecture is None:
            self.bert: Any = load_pretrained(weights)
        elif architecture is not None and weights is None:
            self.bert = build_from_architecture(architecture)
        else:
            raise ValueError(f"give one of weights and architecture; got {weights!r} and {architecture!r}")
        if hasattr(self.bert, "pooler"):
            self.bert.pooler = None
        config = self.bert.config
        if vocabulary_size is not None and vocabulary_size > config.vocab_size:
            raise ValueError(
                f"captions consist of {vocabulary_size} token ids, the text encoder knows {config.vocab_size}: its "
                "weights and its tokenizer are of two models"
            )
        self.architecture = architecture_of(self.bert)
        self.max_tokens: int | None = getattr(config, "max_position_embeddings", None)
        self.linear = nn.Linear(config.hidden_size, embed_dim)
        self.pooling = pooling

    @property
    def rebuilt_by(self) -> dict[str, Any]:
        """The options that take the place of pretrained weights."""
        return {"architecture": self.architecture}

    def forward(self, tokens_CL: Tensor, lengths_C: Tensor) -> Tensor:
        """Encode (C, L) token ids into (C, D) unit vectors; ValueError where a caption is empty or too long."""
        if self.max_tokens is not None and tokens_CL.shape[1] > self.max_tokens:
            raise ValueError(
                f"a caption of {tokens_CL.shape[1]} tokens is too long: the text encoder has {self.max_tokens} "
                "positions; shorten it"
            )
        mask_CL = valid_mask(tokens_CL, lengths_C).long()
        states_CLH = self.bert(input_ids=tokens_CL, attention_mask=mask_CL).last_hidden_state
        return unit_length(self.pooling(self.linear(states_CLH), lengths_C))
