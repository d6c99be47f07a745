"""All collectives of training: gathering embeddings with gradients, and sums over all processes."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from vse_core.outputs import Images, Texts


def world_size() -> int:
    """Return the number of processes of the current run; 1 if no process group was started."""
    return dist.get_world_size() if dist.is_initialized() else 1


def rank() -> int:
    """Return this process's number, from 0."""
    return dist.get_rank() if dist.is_initialized() else 0


def first_says(flag: bool) -> bool:
    """Return the first process's flag to all of them, without a wait for the device."""
    told = [flag]
    dist.broadcast_object_list(told, group=host_group("flags"), device=torch.device("cpu"))
    return told[0]


def writers_tell(told: Any) -> list[Any]:
    """Return what the thread of each process that writes files tells, in the order of the processes."""
    found = [None] * world_size()
    dist.all_gather_object(found, told, group=host_group("files"))
    return found


@lru_cache
def host_group(use: str) -> Any:
    """Return the group in the host's memory for a use, which all processes ask for first in their main threads.

    Threads cannot share a group: "flags" is the main thread's, "files" the one's that writes files.
    """
    return dist.new_group(backend="gloo", group_desc=use)


def gather_rows(local: Tensor, counts: list[int]) -> Tensor:
    """Concatenate every process's rows in the order of the processes; gradients flow back to a row's owner.

    The gradient is that of the sum of all processes' losses, so that averaging gradients over processes (as
    DistributedDataParallel does) gives that of one process on the complete batch, if every process has its loss.
    ``counts`` are the rows of each process, which may differ.
    """
    if world_size() == 1 or max(counts) == 0:
        return local
    if local.dtype == torch.bool:  # which not every backend exchanges
        return gather_rows(local.to(torch.uint8), counts).bool()
    gathered: Tensor = _GatherRows.apply(local, counts)
    return gathered


def gather_output(local: Images | Texts | None, counts: list[int]) -> Any:
    """Concatenate every process's rows of a model's output, padded to the largest; None stays None."""
    if local is None:
        return None
    if isinstance(local, Tensor):
        return gather_rows(local, counts)
    sizes = [max(column) for column in zip(*gather_counts(local.sizes(), local.device), strict=True)]
    return local.padded(sizes).map(lambda tensor: gather_rows(tensor, counts))


def gather_counts(counts: list[int], device: torch.device) -> list[list[int]]:
    """Return every process's counts of rows, in the order of the processes; all processes count the same kinds."""
    if world_size() == 1:
        return [counts]
    local = torch.tensor(counts, device=device)
    shares = [torch.empty_like(local) for _ in range(world_size())]
    dist.all_gather(shares, local)
    return torch.stack(shares).tolist()


def all_reduce_sum(values: Tensor) -> Tensor:
    """Sum a tensor over all processes; as with :func:`gather_rows` the gradient is that of all processes' losses."""
    if world_size() == 1:
        return values
    total: Tensor = _AllReduceSum.apply(values)
    return total


def all_reduce_sums(values: Sequence[Tensor]) -> Sequence[Tensor]:
    """Sum numbers over all processes, in one exchange; see :func:`all_reduce_sum`."""
    return values if world_size() == 1 else all_reduce_sum(torch.stack(list(values))).unbind()


def average_gradients(module: nn.Module) -> None:
    """Average the gradients of a module that DistributedDataParallel does not wrap over all processes."""
    if world_size() == 1:
        return
    for parameter in module.parameters():
        if parameter.grad is not None:
            dist.all_reduce(parameter.grad)
            parameter.grad /= world_size()


class _GatherRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, local: Tensor, counts: list[int]) -> Tensor:
        """Return the rows of all processes, of which each has a count of its own."""
        ctx.counts = counts
        # Collectives want equal shapes: rows are padded to the largest share and cut again.
        padded = local.new_zeros((max(counts), *local.shape[1:]))
        padded[: len(local)] = local
        shares = [torch.empty_like(padded) for _ in counts]
        dist.all_gather(shares, padded)
        return torch.cat([share[:count] for share, count in zip(shares, counts, strict=True)])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        """Return the gradient of this process's rows, summed over the losses of all."""
        grad = grads[0].contiguous()
        dist.all_reduce(grad)
        start = sum(ctx.counts[: rank()])
        return grad[start : start + ctx.counts[rank()]], None


class _AllReduceSum(torch.autograd.Function):
    @staticmethod
    def forward(_ctx: Any, values: Tensor) -> Tensor:
        """Return the sum over all processes."""
        total = values.detach().clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(_ctx: Any, *grads: Tensor) -> tuple[Tensor]:
        """Return the sum of the gradients, as every process's loss depends on every process's values."""
        grad = grads[0].clone()
        dist.all_reduce(grad)
        return (grad,)
