"""What models give to their losses where it is more than images and texts.

b pairs of an image and a caption of this process, K views, N regions, M components of one kind, V a component and its
negatives, D dimensions.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import torch
from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class AdversarialOutput:
    """What the loss of VSE-C needs of this process's pairs.

    Attributes:
        images_bKD: (b, K, D) unit vectors of the images.
        texts_bD: (b, D) unit vectors of their captions.
        hardest_bD: (b, D) unit vectors of each image's hardest adversarial caption; None where there are none.
    """

    images_bKD: Tensor
    texts_bD: Tensor
    hardest_bD: Tensor | None


@dataclass(frozen=True, slots=True)
class ComponentVectors:
    """Embeddings of M components of one kind, with their negatives.

    Attributes:
        vectors_MVD: (M, V, D) unit vectors; the component itself comes first.
        owners_M: (M,) rows of their captions.
    """

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
    """All that the loss of UniVSE needs of this process's b pairs of an image and a caption.

    Attributes:
        images_bKD: (b, 1, D) unit vectors of the images.
        regions_bND: (b, N, D) unit vectors of their regions, zero where there is none.
        region_mask_bN: (b, N) true where there is a region.
        sentences_bD: (b, D) unit vectors of the captions as sentences, u_sent.
        composed_bD: (b, D) unit vectors of the captions' components taken together, u_comp, zero where there are none.
        has_components_b: (b,) true where a caption has components.
        objects: nouns.
        pairs: adjectives with their nouns.
        triples: subjects, relations and objects.
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


@dataclass(frozen=True, slots=True)
class VideoLevels:
    """Videos on the three levels of HGR: b videos, N frames, D dimensions.

    Attributes:
        events_bD: unit vectors of the videos as a whole.
        action_frames_bND: frames as actions are looked for in them.
        entity_frames_bND: frames as entities are looked for in them.
        frame_mask_bN: true where there is a frame.
    """

    events_bD: Tensor
    action_frames_bND: Tensor
    entity_frames_bND: Tensor
    frame_mask_bN: Tensor

    def __len__(self) -> int:
        return len(self.events_bD)

    def __getitem__(self, videos: slice | Tensor | list[int]) -> "VideoLevels":
        """Some of the videos."""
        return VideoLevels(**{name: tensor[videos] for name, tensor in self.tensors().items()})

    def tensors(self) -> dict[str, Tensor]:
        """All of it by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def to(self, device: torch.device | str) -> "VideoLevels":
        """Copy to a device."""
        return VideoLevels(**{name: tensor.to(device) for name, tensor in self.tensors().items()})

    def padded(self, frames: int) -> "VideoLevels":
        """The same videos with room for so many frames, as many as there are or more."""
        more = frames - self.frame_mask_bN.shape[1]
        return VideoLevels(
            self.events_bD,
            nn.functional.pad(self.action_frames_bND, (0, 0, 0, more)),
            nn.functional.pad(self.entity_frames_bND, (0, 0, 0, more)),
            nn.functional.pad(self.frame_mask_bN, (0, more)),
        )


@dataclass(frozen=True, slots=True)
class TextLevels:
    """Captions on the three levels of HGR: c captions, A actions and E entities at most, D dimensions.

    Attributes:
        events_cD: unit vectors of the captions as a whole.
        actions_cAD: unit vectors of their actions.
        action_mask_cA: true where there is an action.
        entities_cED: unit vectors of their entities.
        entity_mask_cE: true where there is an entity.
    """

    events_cD: Tensor
    actions_cAD: Tensor
    action_mask_cA: Tensor
    entities_cED: Tensor
    entity_mask_cE: Tensor

    def __len__(self) -> int:
        return len(self.events_cD)

    def __getitem__(self, captions: slice | Tensor | list[int]) -> "TextLevels":
        """Some of the captions."""
        return TextLevels(**{name: tensor[captions] for name, tensor in self.tensors().items()})

    def tensors(self) -> dict[str, Tensor]:
        """All of it by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def to(self, device: torch.device | str) -> "TextLevels":
        """Copy to a device."""
        return TextLevels(**{name: tensor.to(device) for name, tensor in self.tensors().items()})


Images = Tensor | VideoLevels
"""Images or videos as a model gives them: embeddings (B, K, D), or levels."""
Texts = Tensor | TextLevels
"""Captions as a model gives them: embeddings (C, D), or levels."""

_Rows = TypeVar("_Rows", Tensor, VideoLevels, TextLevels)


def join_rows(parts: Sequence[_Rows]) -> _Rows:
    """Rows of several parts in order; videos are padded to the most frames."""
    first = parts[0]
    if isinstance(first, Tensor):
        return torch.cat(list(parts))
    if isinstance(first, VideoLevels):
        most = max(part.frame_mask_bN.shape[1] for part in parts)
        parts = [part.padded(most) for part in parts]
    tensors = [part.tensors() for part in parts]
    return type(first)(**{name: torch.cat([part[name] for part in tensors]) for name in tensors[0]})


def join_outputs(parts: Sequence[Any]) -> Any:
    """What any of the models gives, of several parts of a batch in order: images and texts, or UniVSE's all."""
    if isinstance(parts[0], UnifiedOutput):
        return join_unified(parts)
    return tuple(join_rows(side) for side in zip(*parts, strict=True))


def join_unified(parts: Sequence[UnifiedOutput]) -> UnifiedOutput:
    """What UniVSE gives, of several parts of a batch in order, padded to equally many regions."""
    counts = [len(part.sentences_bD) for part in parts]
    return UnifiedOutput(
        torch.cat([part.images_bKD for part in parts]),
        torch.cat([part.regions_bND for part in parts]),
        torch.cat([part.region_mask_bN for part in parts]),
        torch.cat([part.sentences_bD for part in parts]),
        torch.cat([part.composed_bD for part in parts]),
        torch.cat([part.has_components_b for part in parts]),
        _join_components([part.objects for part in parts], counts),
        _join_components([part.pairs for part in parts], counts),
        _join_components([part.triples for part in parts], counts),
    )


def _join_components(parts: Sequence[ComponentVectors], counts: Sequence[int]) -> ComponentVectors:
    """Components of several parts; their owners, rows of a part of so many captions, become rows of the whole."""
    firsts = [sum(counts[:number]) for number in range(len(counts))]
    return ComponentVectors(
        torch.cat([part.vectors_MVD for part in parts]),
        torch.cat([part.owners_M + first for part, first in zip(parts, firsts, strict=True)]),
    )
