"""Files that `torch.save` wrote, read as tensors and plain values within memory bounded by their size."""

import mmap
import pickletools
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeGuard

import torch
from torch import Tensor

from vse_core.digests import first_line, memory_ran_out

# All that a state dict and the options of a training name. Torch's own list has constructors that take a size, such as
# bytearray: 60 bytes could ask for any amount of memory.
_NAMES = re.compile(
    r"collections (OrderedDict|Counter)|torch (\w+Storage|Size|device)|torch\._utils _rebuild_(tensor(_v2)?|parameter)"
    r"|argparse Namespace"
)
# The magic number, the protocol, the machine, the contents and the storages' keys of a file older than torch 1.6.
_OLD_PICKLES = 5


class TensorFileError(ValueError):
    """A file cannot be read as tensors and plain values; the message names it and says why."""


def read_tensor_file(path: Path) -> Any:
    """Read a file that `torch.save` wrote; an `argparse.Namespace` in it becomes a SimpleNamespace.

    TensorFileError if it cannot be read, or asks for anything else; nothing in it is executed.
    """
    try:
        _check_names(path)
        with torch.serialization.safe_globals([(SimpleNamespace, "argparse.Namespace")]):
            return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch, zipfile and pickletools each have their own
        short = "memory ran out: free some and try again; if it happens again: " if memory_ran_out(error) else ""
        raise TensorFileError(
            f"{short}{path} cannot be read as tensors alone ({first_line(error)}); nothing in it was executed"
        ) from error


def is_state(value: Any) -> TypeGuard[Mapping[str, Tensor]]:
    """Return whether a value is tensors by name; a tensor that claims more numbers than were stored is not one."""
    return isinstance(value, dict) and all(
        isinstance(name, str)
        and isinstance(tensor, Tensor)
        and tensor.numel() * tensor.element_size() <= tensor.untyped_storage().nbytes()
        for name, tensor in value.items()
    )


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
