"""Tensors that processes share, in safetensors files: each process writes its shares, any number of them read.

The files are those of PyTorch's distributed checkpoint for Hugging Face, whose headers say which part of a tensor they
hold: no pickle is written or read. A file of complete tensors, as `safetensors` itself writes it, is read as well.
"""

import contextlib
import itertools
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch import Tensor
from torch.distributed.checkpoint import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.tensor import DeviceMesh, DTensor

from vse_core.distributed import host_group, rank, world_size

# Bytes of a process in a file, about; it has them in memory twice more while it is written.
_FILE_BYTES = 2**27
# Bytes, of which a tensor in a mapped file begins at a multiple.
_ALIGNMENT = 64


def save_shares(copies: Mapping[str, Tensor], like: Mapping[str, Tensor], directory: Path) -> list[str]:
    """Write this process's shares into a directory, in the host's memory, of tensors that are shared like others.

    All processes call this, from one thread each; what they do not share one of them writes. Returns the names of the
    files of this process. All raise what one of them met.
    """
    group: Any = host_group("files")
    mesh = DeviceMesh.from_group(group, "cpu")
    shared = {name: _shared(copy, like[name], mesh) for name, copy in copies.items()}
    ends = itertools.accumulate(tensor.numel() * tensor.itemsize for tensor in like.values())
    files = {name: 1 + end // (world_size() * _FILE_BYTES) for name, end in zip(like, ends, strict=True)}
    with _first_failure():
        writer = HuggingFaceStorageWriter(str(directory), files, save_distributed=True)
        writer.per_thread_copy_ahead = 0  # the copies are on the host: this thread starts nothing on a GPU
        dcp.save(shared, storage_writer=writer, process_group=group)
    return sorted(file.name for file in directory.glob(f"shard-{rank() + 1:05d}-*"))


def saved_tensors(directory: Path) -> Mapping[str, Any]:
    """Return what a directory's files have of each complete tensor, by name: its `size` and its `properties.dtype`."""
    return HuggingFaceStorageReader(str(directory)).read_metadata().state_dict_metadata


def read_shares(tensors: Mapping[str, Tensor], directory: Path) -> None:
    """Fill tensors, or this process's shares of them, from a directory's files, of which only these parts are read.

    Raises ValueError if one is missing or has another shape.
    """
    with _first_failure(), warnings.catch_warnings():
        # That processes do not agree on what they read is what we want.
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        dcp.load(dict(tensors), storage_reader=HuggingFaceStorageReader(str(directory)), no_dist=True)


def mapped(directory: Path, names: Iterable[str], file: Path) -> dict[str, Tensor]:
    """Return complete tensors of a directory's files, in a new file in place of memory; OSError if the disk is full."""
    saved, starts, end = saved_tensors(directory), {}, 0
    for name in names:
        starts[name] = end
        end += -(-saved[name].size.numel() * saved[name].properties.dtype.itemsize // _ALIGNMENT) * _ALIGNMENT
    with file.open("wb") as made:
        os.posix_fallocate(made.fileno(), 0, max(end, 1))  # a full disk is an error now, and a signal later
    content = torch.from_file(str(file), shared=True, size=end, dtype=torch.uint8)
    tensors = {}
    for name, start in starts.items():
        size, dtype = saved[name].size, saved[name].properties.dtype
        tensors[name] = content[start : start + size.numel() * dtype.itemsize].view(dtype).view(size)
    read_shares(tensors, directory)
    return tensors


def _shared(copy: Tensor, like: Tensor, mesh: DeviceMesh) -> Tensor:
    if not isinstance(like, DTensor):
        return copy
    return DTensor.from_local(copy, mesh, like.placements, run_check=False, shape=like.shape, stride=like.stride())


@contextlib.contextmanager
def _first_failure() -> Iterator[None]:
    """Raise what the first process that failed has met, in place of PyTorch's list of failures."""
    try:
        yield
    except CheckpointException as error:
        failure, _ = next(iter(error.failures.values()))
        raise failure from None
