"""Cached gradients: contrastive batches larger than memory, with the gradients of the batch encoded at once.

B pairs of this process, K views, D dimensions.
"""

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from vse_core.encoders.image import FeatureEncoder
from vse_core.outputs import join_outputs

# Makes the context to encode a chunk in.
_Context = Callable[[], contextlib.AbstractContextManager[None]]


class ChunkedModel(nn.Module):
    """Encode a batch chunk by chunk, holding the activations of one chunk of pairs only (GradCache, Gao et al. 2021).

    Chunks are encoded without keeping what their gradients need, and once more in the backward pass, with the same
    random numbers. The gradients are those of the batch encoded at once, over several processes too
    (DistributedDataParallel is around this module), but for dropout, which draws other numbers.

    Batch norm: the statistics of a region encoder's MLP are those of the global batch. Their sums over the chunks are
    taken before anything is encoded, at the price of a third pass up to there, and take part in the gradient.

    The model is called with ``chunk_size`` pairs, slices of its inputs' rows, and gives outputs that
    :func:`~vse_core.outputs.join_outputs` concatenates. If a module around the towers compares the complete batch
    (:class:`~vse_core.models.adversarial.AdversarialModel`), the towers in it are made chunked.
    """

    def __init__(self, model: nn.Module, chunk_size: int) -> None:
        super().__init__()
        self.model = model
        self.chunk_size = chunk_size

    def forward(self, *inputs: Any) -> Any:
        """Encode a batch of pairs; inputs and outputs are the model's."""
        chunks = [tuple(value[rows] for value in inputs) for rows in self._chunks(len(inputs[0]))]
        normalised = self._normalised(chunks)
        parts = [_encoded_again(_encode_in, normalised, self.model, *chunk) for chunk in chunks]
        return join_outputs(parts)

    def encode_texts(self, tokens_CL: Tensor, lengths_C: Tensor) -> Tensor:
        """Encode captions (C, L) of lengths (C,), chunk by chunk as well: (C, D)."""
        encode: Any = self.model.encode_texts
        chunks = self._chunks(len(tokens_CL))
        return torch.cat([_encoded_again(encode, tokens_CL[rows], lengths_C[rows]) for rows in chunks])

    def _chunks(self, count: int) -> list[slice]:
        return [slice(first, min(first + self.chunk_size, count)) for first in range(0, count, self.chunk_size)]

    def _normalised(self, chunks: list[tuple[Any, ...]]) -> _Context:
        """Return the context in which a batch norm, if any, has the statistics of the complete batch."""
        encoder = next((module for module in self.model.modules() if isinstance(module, FeatureEncoder)), None)
        if encoder is None or encoder.mlp is None or not self.training:
            return contextlib.nullcontext
        sums = [_encoded_again(encoder.norm_sums, *chunk[:2]) for chunk in chunks]
        mean_F, variance_F = encoder.mlp.norm.statistics(torch.stack(sums).sum(dim=0))
        return functools.partial(encoder.mlp.norm.given, mean_F, variance_F)


def _encoded_again(encode: Callable[..., Any], *inputs: Any) -> Any:
    """Encode, and again in the backward pass, with the same random numbers and autocast."""
    return checkpoint(encode, *inputs, use_reentrant=False, preserve_rng_state=True)


def _encode_in(context: _Context, model: nn.Module, *inputs: Any) -> Any:
    # Chunks that shared a weight's copy in half precision would add up its gradient in half precision.
    torch.clear_autocast_cache()
    with context():
        return model(*inputs)
