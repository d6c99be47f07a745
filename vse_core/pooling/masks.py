"""Padded sets: the check of their lengths, the mask of real elements, and masked sums."""

import torch
from torch import Tensor, nn

from vse_core.precision import at_least_float32
from vse_core.static_shapes import has_static_shapes


def reads_padding(model: nn.Module) -> bool:
    """Return whether a model's outputs depend on how far batches are padded, by what its modules say."""
    return any(getattr(module, "reads_padding", False) for module in model.modules())


def check_lengths(features_BND: Tensor, lengths_B: Tensor) -> None:
    """Refuse by a ValueError lengths that do not fit the shapes: of an empty set, or beyond the padded size.

    Lengths on a GPU are not looked at, for which the host would wait.
    """
    if features_BND.dim() != 3 or lengths_B.shape != features_BND.shape[:1]:
        raise ValueError(
            f"pooling takes features (B, N, D) and lengths (B,), got {tuple(features_BND.shape)} "
            f"and {tuple(lengths_B.shape)}"
        )
    if has_static_shapes(lengths_B) or lengths_B.numel() == 0:
        return
    shortest, longest = torch.stack(torch.aminmax(lengths_B)).tolist()
    if shortest < 1:
        index = int(lengths_B.argmin())
        raise ValueError(
            f"sample {index} of the batch has length {shortest}: an empty set cannot be pooled; "
            "drop it or keep one element"
        )
    if longest > features_BND.shape[1]:
        index = int(lengths_B.argmax())
        raise ValueError(
            f"sample {index} of the batch has length {longest}, but the batch is padded to {features_BND.shape[1]}"
        )


def valid_mask(features_BND: Tensor, lengths_B: Tensor) -> Tensor:
    """Return the mask (B, N) of real elements of padded features."""
    return torch.arange(features_BND.shape[1], device=features_BND.device) < lengths_B.unsqueeze(-1)


def real_rows(features_BNF: Tensor, mask_BN: Tensor) -> Tensor:
    """Return the real elements of all sets, one after the other: (M, F).

    Padding is left out before layers: less work, and no trace of it anywhere. With static shapes there are all B * N
    rows.
    """
    if has_static_shapes(features_BNF):
        return features_BNF.flatten(0, 1)
    return features_BNF[mask_BN]


def into_sets(rows_MD: Tensor, mask_BN: Tensor) -> Tensor:
    """Put the rows of :func:`real_rows`, of any width, back into sets (B, N, D) whose padding means nothing."""
    if has_static_shapes(rows_MD):
        split_BND: Tensor = rows_MD.unflatten(0, mask_BN.shape)
        return split_BND
    sets_BND = rows_MD.new_zeros((*mask_BN.shape, rows_MD.shape[-1]))
    return torch.index_put(sets_BND, (mask_BN,), rows_MD)


def softmax_weighted_sum(logits: Tensor, values_BND: Tensor, valid_BN1: Tensor) -> Tensor:
    """Weight the valid elements, one a set at least, by a softmax over the set, in at least float32: (B, D).

    Logits are (B, N, D) for a weight per element and dimension, or (B, N, 1) for one per element.
    """
    weights = at_least_float32(logits).masked_fill(~valid_BN1, -float("inf")).softmax(dim=1)
    return (weights * at_least_float32(values_BND).masked_fill(~valid_BN1, 0.0)).sum(dim=1)
