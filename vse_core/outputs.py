"""Outputs of models, the inputs of their losses, where these are more than embeddings of images and texts.

b pairs of an image and a caption of this process, K views, N regions, M components of one kind, V a component and its
negatives, T triples, X triples of an image, D dimensions.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, Self, TypeVar

import torch
from torch import Tensor, nn


class Rows:
    """Base of frozen dataclasses of tensors that have one row for each sample."""

    __slots__ = ()

    def __getitem__(self, rows: slice | Tensor | list[int]) -> Self:
        """Select some of the rows."""
        return self._map(lambda tensor: tensor[rows])

    def tensors(self) -> dict[str, Tensor]:
        """Return all tensors by name."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}  # type: ignore[attr-defined]

    def to(self, device: torch.device | str) -> Self:
        """Copy to a device."""
        return self._map(lambda tensor: tensor.to(device))

    def _map(self, change: Callable[[Tensor], Tensor]) -> Self:
        return type(self)(**{name: change(tensor) for name, tensor in self.tensors().items()})


class AdversarialOutput(NamedTuple):
    """Input of VSE-C's loss: unit vectors of this process's images, captions, and hardest adversarials, if any."""

    images_bKD: Tensor
    texts_bD: Tensor
    hardest_bD: Tensor | None


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
    """Input of UniVSE's loss, for this process's b pairs of an image and a caption; all vectors are of unit length.

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


@dataclass(frozen=True, slots=True)
class VideoLevels(Rows):
    """Videos on the three levels of HGR, b videos of N frames: events have unit length, and frames are for phrases."""

    events_bD: Tensor
    action_frames_bND: Tensor
    entity_frames_bND: Tensor
    frame_mask_bN: Tensor

    def __len__(self) -> int:
        return len(self.events_bD)

    def padded(self, frames: int) -> "VideoLevels":
        """Pad the videos to a number of frames that is not below their own."""
        more = frames - self.frame_mask_bN.shape[1]
        return VideoLevels(
            self.events_bD,
            nn.functional.pad(self.action_frames_bND, (0, 0, 0, more)),
            nn.functional.pad(self.entity_frames_bND, (0, 0, 0, more)),
            nn.functional.pad(self.frame_mask_bN, (0, more)),
        )


@dataclass(frozen=True, slots=True)
class TextLevels(Rows):
    """Captions on the three levels of HGR, in unit vectors: c captions, A actions and E entities at most."""

    events_cD: Tensor
    actions_cAD: Tensor
    action_mask_cA: Tensor
    entities_cED: Tensor
    entity_mask_cE: Tensor

    def __len__(self) -> int:
        return len(self.events_cD)


Images = Tensor | VideoLevels
"""A model's output for images or videos: embeddings (B, K, D), or levels."""
Texts = Tensor | TextLevels
"""A model's output for captions: embeddings (C, D), or levels."""

_Rows = TypeVar("_Rows", Tensor, VideoLevels, TextLevels)


def join_rows(parts: Sequence[_Rows]) -> _Rows:
    """Concatenate the rows of several parts; videos are padded to the most frames."""
    first = parts[0]
    if isinstance(first, Tensor):
        return torch.cat(list(parts))
    if isinstance(first, VideoLevels):
        most = max(part.frame_mask_bN.shape[1] for part in parts)
        parts = [part.padded(most) for part in parts]
    tensors = [part.tensors() for part in parts]
    return type(first)(**{name: torch.cat([part[name] for part in tensors]) for name in tensors[0]})


def join_outputs(parts: Sequence[Any]) -> Any:
    """Concatenate a model's outputs for several parts of a batch: images and texts, or UniVSE's output."""
    if isinstance(parts[0], UnifiedOutput):
        return join_unified(parts)
    return tuple(join_rows(side) for side in zip(*parts, strict=True))


def join_unified(parts: Sequence[UnifiedOutput]) -> UnifiedOutput:
    """Concatenate UniVSE's outputs for several parts of a batch, which are padded to equally many regions."""
    counts = [len(part.sentences_bD) for part in parts]
    joined: dict[str, Any] = {}
    for field in fields(UnifiedOutput):
        values = [getattr(part, field.name) for part in parts]
        joined[field.name] = torch.cat(values) if isinstance(values[0], Tensor) else _join_components(values, counts)
    return UnifiedOutput(**joined)


def _join_components(parts: Sequence[ComponentVectors], counts: Sequence[int]) -> ComponentVectors:
    """Concatenate components; their owners, rows of a part of `counts` captions, become rows of all captions."""
    firsts = [sum(counts[:number]) for number in range(len(counts))]
    return ComponentVectors(
        torch.cat([part.vectors_MVD for part in parts]),
        torch.cat([part.owners_M + first for part, first in zip(parts, firsts, strict=True)]),
    )
