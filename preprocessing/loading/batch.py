"""A training batch, and the padding of samples of different lengths.

Shapes: B batch, N set elements of the largest set, F feature width, S side of pixels, L tokens of the longest caption.
"""

import math
import weakref
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch

Integers = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True, slots=True)
class Batch:
    """Tensors of one batch (or of one rank's part of it).

    Attributes:
        images: features, float16 (B, N, F), zero beyond each row's length; or pixels, uint8 (B, 3, S, S).
        lengths_or_mask: lengths of features, int64 (B,), at least 1; or the mask of grid cells, bool (B, N).
        tokens_BL: int64, padding beyond each row's length.
        image_indices_B, caption_indices_B: int64, numbers in the reader.
        extra: further tensors that the kind of model takes, by name.
    """

    images: torch.Tensor
    lengths_or_mask: torch.Tensor
    tokens_BL: torch.Tensor
    token_lengths_B: torch.Tensor
    image_indices_B: torch.Tensor
    caption_indices_B: torch.Tensor
    extra: Mapping[str, torch.Tensor] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.caption_indices_B)

    def to(self, device: torch.device | str) -> Self:
        """Copy to a device; from pinned memory the copy overlaps with the computation."""
        return self._map(lambda tensor: tensor.to(device, non_blocking=True))

    def pin(self) -> Self:
        """Copy to page-locked memory, from which :meth:`to` copies to a GPU without waiting."""
        return self._map(torch.Tensor.pin_memory)

    def record_stream(self, stream: torch.cuda.Stream) -> None:
        """Keep the tensors' memory until another stream than their own has done the work queued on it so far."""

        def record(tensor: torch.Tensor) -> torch.Tensor:
            tensor.record_stream(stream)
            return tensor

        self._map(record)

    def _map(self, change: Callable[[torch.Tensor], torch.Tensor]) -> Self:
        tensors = {field.name: change(getattr(self, field.name)) for field in fields(self) if field.name != "extra"}
        return type(self)(**tensors, extra={name: change(tensor) for name, tensor in self.extra.items()})


class FeatureBuffers:
    """Memory for up to `keep` batches, reused once nothing refers to them: fresh memory is slower than copying."""

    def __init__(self, keep: int, dtype: npt.DTypeLike = np.float16) -> None:
        self._keep = keep
        self._dtype = np.dtype(dtype)
        self._free: list[npt.NDArray[Any]] = []

    def take(self, shape: tuple[int, ...]) -> npt.NDArray[Any]:
        """Return an uninitialised array; its memory is reused when the array and all tensors on it are gone."""
        size = math.prod(shape)
        try:
            buffer = self._free.pop()
        except IndexError:
            buffer = np.empty(size, dtype=self._dtype)
        if buffer.size < size:
            buffer = np.empty(size, dtype=self._dtype)
        array = buffer[:size].reshape(shape)
        # A tensor from torch.from_numpy holds this very array for as long as its storage lives.
        weakref.finalize(array, self._give_back, buffer).atexit = False
        return array

    def _give_back(self, buffer: npt.NDArray[Any]) -> None:
        if len(self._free) < self._keep:
            self._free.append(buffer)


def pad_features(
    features: Sequence[npt.NDArray[np.float16]],
    kept: Sequence[Integers] | None,
    buffers: FeatureBuffers,
    size: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Copy B arrays (N_b, F), or their `kept` rows, into one zero-padded float16 (B, size, F); return lengths too.

    The size is that of the largest set by default.
    """
    lengths = [len(rows) for rows in (features if kept is None else kept)]
    out_BNF = buffers.take((len(features), size or max(lengths), features[0].shape[1]))
    for row, (array_NF, length) in enumerate(zip(features, lengths, strict=True)):
        target = out_BNF[row, :length]
        if kept is None:
            target[:] = array_NF
        else:
            # mode="clip" writes straight into the target; the default goes through a buffer.
            np.take(array_NF, kept[row], axis=0, out=target, mode="clip")
        out_BNF[row, length:] = 0
    return torch.from_numpy(out_BNF), torch.tensor(lengths)


def pad_tokens(
    tokens: Sequence[Integers | Sequence[int]], pad_id: int, multiple: int = 1
) -> tuple[torch.Tensor, torch.Tensor]:
    """Copy B >= 0 sequences of token ids into one padded tensor, int64 (B, max L); return their lengths too.

    L is rounded up to a multiple.
    """
    lengths = [len(ids) for ids in tokens]
    out_BL = np.full((len(tokens), rounded_up(max(lengths, default=0), multiple)), pad_id, dtype=np.int64)
    for row, ids in enumerate(tokens):
        out_BL[row, : lengths[row]] = ids
    return torch.from_numpy(out_BL), torch.tensor(lengths)


def rounded_up(size: int, multiple: int) -> int:
    """Return the next multiple."""
    return -(-size // multiple) * multiple


def component_tensors(arrays: Mapping[str, Integers]) -> dict[str, torch.Tensor]:
    """Return the arrays of components as int64 tensors under their names."""
    return {name: torch.from_numpy(array.astype(np.int64)) for name, array in arrays.items()}


def prefetch_to_device(batches: Iterator[Batch], device: torch.device) -> Generator[Batch, None, None]:
    """Yield batches on a device; a GPU copies the next one while it computes with the one that was yielded.

    The copies have a stream of their own. The stream of the computation waits only for the copy of its own batch, and
    the host for none; that takes batches in page-locked memory.
    """
    if device.type != "cuda":
        yield from (batch.to(device) for batch in batches)
        return
    copies = torch.cuda.Stream(device)
    waiting: tuple[Batch, torch.cuda.Event] | None = None
    for batch in batches:
        with torch.cuda.stream(copies):
            copied = batch.to(device), copies.record_event()
        if waiting is not None:
            yield _handed_over(*waiting)
        waiting = copied
    if waiting is not None:
        yield _handed_over(*waiting)


def _handed_over(batch: Batch, copied: torch.cuda.Event) -> Batch:
    """Let the current stream wait for a batch's copy; return the batch."""
    stream = torch.cuda.current_stream(batch.images.device)
    stream.wait_event(copied)
    # The memory came from the other stream, which must not reuse it before this one is done with it.
    batch.record_stream(stream)
    return batch
