"""Encoders: features of images and tokens of captions become vectors of unit length in the joint space."""

from collections.abc import Callable
from typing import Any

from torch import nn

from vse_core.encoders.bert import BertEncoder
from vse_core.encoders.text import BiGRUEncoder
from vse_core.names import choose

TEXT_ENCODERS: dict[str, Callable[..., nn.Module]] = {"bigru": BiGRUEncoder, "bert": BertEncoder}


def build_text_encoder(
    name: str, vocabulary_size: int, embed_dim: int, pooling: nn.Module, **options: Any
) -> nn.Module:
    """Build a text encoder by name; it is called with ``(tokens_CL, lengths_C)`` and returns ``(C, D)`` unit vectors.

    Args:
        name: ``bigru`` or ``bert``.
        vocabulary_size: number of token ids that captions consist of.
        embed_dim: D, width of the joint space.
        pooling: aggregator of the tokens' vectors.
        **options: keyword arguments of the encoder's class.

    Raises:
        ValueError: the name or an option is unknown, or the encoder has fewer tokens than the captions.
    """
    sizes = {"vocabulary_size": vocabulary_size, "embed_dim": embed_dim}
    return choose("text encoder", TEXT_ENCODERS, name, pooling=pooling, **sizes, **options)
