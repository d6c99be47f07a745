"""Begin training with the weights of a model that was trained before, also if it knows other words."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from vse_core.models.model import Model


@torch.no_grad()
def start_from(model: Model, weights: Mapping[str, Tensor], words: tuple[Tensor, Tensor] | None = None) -> None:
    """Fill a model with the weights, by name, of one of the same architecture; a ValueError lists what does not fit.

    Word embeddings of words that both know are reused; the others stay as they are. ``words`` are the ids (W,) of the
    common words in the model, and in the other one; None if all ids mean the same.
    """
    filled = dict(weights)
    if words is not None:
        own_W, other_W = words
        for name, embedding in model.named_modules():
            key = f"{name}.weight"
            if isinstance(embedding, nn.Embedding) and key in weights:
                if weights[key].shape[1:] != embedding.weight.shape[1:]:
                    continue  # as the loading will say
                rows = embedding.weight.detach().clone()
                rows[own_W] = weights[key][other_W].to(rows)
                filled[key] = rows
    try:
        model.load_state_dict(filled, strict=True)
    except RuntimeError as error:
        raise ValueError(f"the weights do not fit the model: {error}") from error
