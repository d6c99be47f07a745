"""Embeddings of many images or captions, batch by batch, on the CPU."""

from collections.abc import Callable, Iterable
from typing import Any

import torch

from vse_core.models.model import Model
from vse_core.outputs import join_outputs


@torch.inference_mode()
def embed(model: Model, encode: Callable[..., Any], batches: Iterable[tuple[Any, ...]]) -> Any:
    """Encode batches of the inputs of a model's method, which must be evaluating; the outputs are joined on the CPU."""
    device = next(model.parameters()).device
    return join_outputs([_on_cpu(encode(*(part.to(device) for part in batch))) for batch in batches])


def _on_cpu(output: Any) -> Any:
    return tuple(map(_on_cpu, output)) if isinstance(output, tuple) else output.to("cpu")
