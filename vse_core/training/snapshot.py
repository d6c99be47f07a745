"""Copies of tensors in the host's memory, to be written while training changes the tensors."""

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

Groups = dict[str, dict[str, Tensor]]


class HostCopies:
    """One copy of groups of tensors at a time, in memory that the next one uses again.

    Copies from a GPU go to pinned memory and do not wait: the next step begins behind them on the same stream.
    """

    def __init__(self) -> None:
        self._copies: Groups = {}
        self._copied: torch.cuda.Event | None = None

    def take(self, groups: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Copy tensors as they are now, of shared ones this process's shares; nobody may be reading the copy before."""
        self._copies = {
            group: {name: _copied(tensor, self._copies.get(group, {}).get(name)) for name, tensor in tensors.items()}
            for group, tensors in groups.items()
        }
        if torch.cuda.is_initialized():
            self._copied = torch.cuda.Event()
            self._copied.record()

    def wait(self) -> Groups:
        """Return the copies when they are complete; from any thread."""
        if self._copied is not None:
            self._copied.synchronize()
        return self._copies


def _copied(tensor: Tensor, into: Tensor | None) -> Tensor:
    tensor = tensor.to_local() if isinstance(tensor, DTensor) else tensor
    if into is None or into.shape != tensor.shape or into.dtype != tensor.dtype:
        into = torch.empty_like(tensor, device="cpu", requires_grad=False, pin_memory=tensor.is_cuda)
    return into.copy_(tensor.detach(), non_blocking=True)
