"""Weights of networks: read as tensors alone, compared with what a network needs, and their digest."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from preprocessing.features.extractor import ExtractorError
from preprocessing.features.plain_pickle import read_arrays
from preprocessing.reading import damage_as

_LISTED = 4


def mismatch(state: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> str:
    """Return which of a network's tensors a file lacks, which it has besides or in another shape; "" if it fits.

    Counters of batches are not needed: old files lack them.
    """
    needed = {name: tensor for name, tensor in expected.items() if not name.endswith("num_batches_tracked")}
    kinds = {
        "missing": sorted(needed.keys() - state.keys()),
        "unknown": sorted(state.keys() - expected.keys()),
        "of another shape": [
            f"{name} {tuple(state[name].shape)} for {tuple(needed[name].shape)}"
            for name in sorted(state.keys() & needed.keys())
            if state[name].shape != needed[name].shape
        ],
    }
    return "; ".join(f"{len(names)} {kind}: {_some(names)}" for kind, names in kinds.items() if names)


def read_weights(path: Path) -> Any:
    """Read the contents of a safetensors file, a pickle of arrays (.pkl) or a PyTorch file; nothing in it is run."""
    remedy = "nothing in the file was executed: download it again, or convert it to safetensors where you trust it"
    with damage_as(ExtractorError, f"weights {path} cannot be read as tensors alone", remedy):
        if path.suffix == ".safetensors":
            return load_file(path)
        return read_arrays(path) if path.suffix == ".pkl" else torch.load(path, "cpu", weights_only=True)


def is_state(content: Any) -> bool:
    """Return whether the contents of a file are tensors by name."""
    return isinstance(content, dict) and all(isinstance(tensor, Tensor) for tensor in content.values())


def checked_device(name: str) -> torch.device:
    """Return the device of a name; ExtractorError where there is no such device here."""
    with damage_as(ExtractorError, f"device {name!r} cannot be used", "use 'cpu'"):
        return torch.empty(0, device=name).device


def weights_digest(state: Mapping[str, Tensor]) -> str:
    """Return the sha256 over names, types, shapes and values of tensors."""
    digest = hashlib.sha256()
    for name in sorted(state):
        tensor = state[name].contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]) + more
