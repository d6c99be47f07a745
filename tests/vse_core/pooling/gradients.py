"""Gradients of an aggregator, and of the naive form of it."""

from collections.abc import Sequence

import torch
from torch import Tensor


def assert_same(ours: Tensor, expected: Tensor, inputs: Sequence[Tensor], **tolerance: float) -> None:
    """Compare two outputs, and the gradients of a random sum of either for all inputs."""
    torch.testing.assert_close(ours, expected, **tolerance)
    probe = torch.randn(ours.shape, generator=torch.Generator().manual_seed(0), dtype=ours.dtype)
    found, wanted = (torch.autograd.grad((output * probe).sum(), inputs) for output in (ours, expected))
    for mine, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(mine, theirs, **tolerance)
