"""The input of UniVSE's loss: embeddings of images, regions, sentences and their components, all of unit length.

b pairs of an image and a caption of this process, K views, N regions, M components of one kind, V a component and its
negatives, D dimensions.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class ComponentVectors:
    """Embeddings of M components of one kind, each before its negatives, and the rows of their captions."""

    vectors_MVD: Tensor
    owners_M: Tensor

    def __len__(self) -> int:
        return len(self.owners_M)

    @property
    def own(self) -> Tensor:
        """The components' own vectors (M, D)."""
        return self.vectors_MVD[:, 0]


@dataclass(frozen=True, slots=True)
class UnifiedOutput:
    """UniVSE's output for this process's b pairs of an image and a caption.

    Regions are zero where there is none; ``sentences_bD`` is u_sent, and ``composed_bD`` is u_comp, zero for a caption
    without components. The numbers of triples are equal where the triples are; those of all that are true of an image
    are filled up with -1.
    """

    images_bKD: Tensor
    regions_bND: Tensor
    region_mask_bN: Tensor
    sentences_bD: Tensor
    composed_bD: Tensor
    has_components_b: Tensor
    objects: ComponentVectors
    pairs: ComponentVectors
    triples: ComponentVectors
    triple_numbers_T: Tensor
    true_triples_bX: Tensor

    @classmethod
    def join(cls, parts: Sequence[Self]) -> Self:
        """Concatenate the outputs of several parts of a batch, which are padded to equally many regions."""
        counts = [len(part.sentences_bD) for part in parts]
        joined: dict[str, Any] = {}
        for field in fields(cls):
            values = [getattr(part, field.name) for part in parts]
            joined[field.name] = (
                torch.cat(values) if isinstance(values[0], Tensor) else _join_components(values, counts)
            )
        return cls(**joined)


def _join_components(parts: Sequence[ComponentVectors], counts: Sequence[int]) -> ComponentVectors:
    """Concatenate components; their owners, rows of a part of `counts` captions, become rows of all captions."""
    firsts = [sum(counts[:number]) for number in range(len(counts))]
    return ComponentVectors(
        torch.cat([part.vectors_MVD for part in parts]),
        torch.cat([part.owners_M + first for part, first in zip(parts, firsts, strict=True)]),
    )
