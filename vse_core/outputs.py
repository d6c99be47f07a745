"""Outputs of models: embeddings, or tensors with a row for each image or caption that are compared in their own way.

B images or videos, C captions, K views, D dimensions.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from typing import Any, Self

import torch
from torch import Tensor, nn


class Rows:
    """Base of frozen dataclasses of tensors that have one row for each sample.

    Other axes may be longer in one batch than in another, such as frames: they are padded with zeros, or False.
    """

    __slots__ = ()

    def __len__(self) -> int:
        """Number of samples."""
        return len(next(iter(self.tensors().values())))

    def __getitem__(self, rows: slice | Tensor | list[int]) -> Self:
        """Select some of the rows."""
        return self.map(lambda tensor: tensor[rows])

    @property
    def device(self) -> torch.device:
        """The device of the tensors."""
        return next(iter(self.tensors().values())).device

    def tensors(self) -> dict[str, Tensor]:
        """Return all tensors by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]

    def to(self, device: torch.device | str) -> Self:
        """Copy to a device."""
        return self.map(lambda tensor: tensor.to(device))

    def map(self, change: Callable[[Tensor], Tensor]) -> Self:
        """Change every tensor."""
        return type(self)(**{name: change(tensor) for name, tensor in self.tensors().items()})

    def sizes(self) -> list[int]:
        """Return the sizes of all axes but the rows, tensor after tensor."""
        return [size for tensor in self.tensors().values() for size in tensor.shape[1:]]

    def padded(self, sizes: Sequence[int]) -> Self:
        """Pad to sizes, in the order of :meth:`sizes`, none of which is below its own."""
        remaining = iter(sizes)
        return self.map(lambda tensor: _padded(tensor, [next(remaining) for _ in tensor.shape[1:]]))

    @classmethod
    def join(cls, parts: Sequence[Self]) -> Self:
        """Concatenate the rows of several parts."""
        sizes = [max(column) for column in zip(*(part.sizes() for part in parts), strict=True)]
        tensors = [part.padded(sizes).tensors() for part in parts]
        return cls(**{name: torch.cat([part[name] for part in tensors]) for name in tensors[0]})


class ComparedImages(Rows, ABC):
    """Images whose similarity to a caption is more than the inner product of two embeddings."""

    __slots__ = ()

    @abstractmethod
    def similarities(self, texts: Any) -> Tensor:
        """Return the similarities (B, C) of every image with every caption, the same model's output, in float32."""

    @abstractmethod
    def numbers_per_pair(self, texts: Any) -> int:
        """Return the numbers that :meth:`similarities` holds at once for one image and one caption."""


Images = Tensor | ComparedImages
"""A model's output for images or videos: embeddings (B, K, D), or what compares itself with captions."""
Texts = Tensor | Rows
"""A model's output for captions: embeddings (C, D), or what images are compared with."""


def join_outputs(parts: Sequence[Any]) -> Any:
    """Concatenate outputs for several parts of a batch: tensors, tuples of outputs, or of classes that `join`."""
    first = parts[0]
    if isinstance(first, Tensor):
        return torch.cat(list(parts))
    if isinstance(first, tuple):
        return tuple(join_outputs(side) for side in zip(*parts, strict=True))
    return type(first).join(parts)


def _padded(tensor: Tensor, sizes: Sequence[int]) -> Tensor:
    more = [wanted - size for size, wanted in zip(tensor.shape[1:], sizes, strict=True)]
    return nn.functional.pad(tensor, [side for extra in reversed(more) for side in (0, extra)]) if any(more) else tensor


@torch.inference_mode()
def embed(model: nn.Module, encode: Callable[..., Any], batches: Iterable[tuple[Any, ...]]) -> Any:
    """Encode batches of the inputs of a model's method, which must be evaluating; the outputs are joined on the CPU."""
    device = next(model.parameters()).device
    return join_outputs([_on_cpu(encode(*(part.to(device) for part in batch))) for batch in batches])


def _on_cpu(output: Any) -> Any:
    return tuple(map(_on_cpu, output)) if isinstance(output, tuple) else output.to("cpu")
