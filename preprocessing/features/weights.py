"""Weights of networks: read as tensors alone, compared with what a network needs, and their digest."""

import hashlib
import mmap
import pickletools
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from preprocessing.features.extractor import ExtractorError
from preprocessing.reading import damage_as

# All that tensors by name, and a record of their training, name. Torch's own list has constructors that take a size:
# 60 bytes could ask for any amount of memory. vse_core.tensor_files does the same for checkpoints.
_NAMES = re.compile(
    r"collections (OrderedDict|Counter)|torch (\w+Storage|Size|device)|torch\._utils _rebuild_(tensor(_v2)?|parameter)"
)
# The magic number, the protocol, the machine, the contents and the storages' keys of a file older than torch 1.6.
_OLD_PICKLES = 5
_LONGEST_MESSAGE = 500


def fill(network: nn.Module, state: dict[str, Tensor], weights: str, remedy: str) -> None:
    """Copy tensors into a network, all of it and nothing else; ExtractorError if they do not fit.

    Counters of batches, which old files lack, are not needed: without a version of its own, torch adds them to a state.
    """
    try:
        network.load_state_dict(state)
    except RuntimeError as error:
        told = " ".join(str(error).split())[:_LONGEST_MESSAGE]
        raise ExtractorError(f"weights {weights} do not fit the network ({told}); {remedy}") from error


def read_weights(path: Path) -> Any:
    """Read the contents of a safetensors or a PyTorch file; nothing in it is run, memory is bounded by its size."""
    remedy = "nothing in the file was executed: download it again, or convert it to safetensors if you trust it"
    with damage_as(ExtractorError, f"weights {path} cannot be read as tensors alone", remedy):
        if path.suffix == ".safetensors":
            return load_file(path)
        _check_names(path)
        return torch.load(path, "cpu", weights_only=True)


def _check_names(path: Path) -> None:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        if data[:4] != b"PK\x03\x04":
            for _ in range(_OLD_PICKLES):
                _check_pickle(data)
            return
        with zipfile.ZipFile(file) as archive:
            for member in archive.infolist():
                if member.compress_type != zipfile.ZIP_STORED:
                    raise ValueError(f"{member.filename} is compressed, which torch.save never does")
                if member.filename.endswith("data.pkl"):
                    with archive.open(member) as packed:
                        _check_pickle(packed)


def _check_pickle(data: Any) -> None:
    for opcode, argument, _ in pickletools.genops(data):
        if opcode.name == "GLOBAL" and not _NAMES.fullmatch(str(argument)):
            raise ValueError(f"it asks for {str(argument).replace(' ', '.')!r}, which no tensors need")


def is_state(content: Any) -> bool:
    """Return whether contents are tensors by name; a tensor that claims more numbers than were stored is not one."""
    return isinstance(content, dict) and all(
        isinstance(tensor, Tensor) and tensor.numel() * tensor.element_size() <= tensor.untyped_storage().nbytes()
        for tensor in content.values()
    )


def checked_device(name: str) -> torch.device:
    """Return the device of a name; ExtractorError if there is no such device here."""
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
