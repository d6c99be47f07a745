"""Rows of tensors, joined and padded, against lists."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from vse_core.outputs import Rows, join_outputs


@dataclass(frozen=True, slots=True)
class Sets(Rows):
    ids_B: Tensor
    features_BNF: Tensor
    mask_BN: Tensor


def sets(ids: list[int], size: int) -> Sets:
    ids_B = torch.tensor(ids)
    return Sets(ids_B, ids_B.view(-1, 1, 1).expand(-1, size, 2).float(), torch.ones(len(ids), size, dtype=torch.bool))


def test_parts_are_padded_to_the_largest() -> None:
    joined = Sets.join([sets([1, 2], 1), sets([3], 3)])
    assert (len(joined), joined.sizes()) == (3, [3, 2, 3])
    assert joined.ids_B.tolist() == [1, 2, 3]
    assert joined.features_BNF[..., 1].tolist() == [[1, 0, 0], [2, 0, 0], [3, 3, 3]]
    assert joined.mask_BN.tolist() == [[True, False, False], [True, False, False], [True, True, True]]


def test_rows_are_selected() -> None:
    chosen = sets([5, 6, 7], 2)[[2, 0]]
    assert (chosen.ids_B.tolist(), chosen.features_BNF[:, 0, 0].tolist()) == ([7, 5], [7.0, 5.0])


def test_outputs_of_several_kinds_are_joined_side_by_side() -> None:
    texts, images = join_outputs([(torch.tensor([1]), sets([1], 1)), (torch.tensor([2, 3]), sets([2, 3], 2))])
    assert texts.tolist() == [1, 2, 3]
    assert images.ids_B.tolist() == [1, 2, 3]
