"""Reads pickles of named numpy arrays, the form of detectron2's converted weights, without running anything in them.

A pickle is a program that may call whatever it names. Here it may name four constructors, each of which is replaced by
one of this file that keeps its arguments; the numbers are then copied out of the bytes.
"""

import math
import pickle
from collections import OrderedDict
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor


class TensorPickleError(Exception):
    """A pickle holds something other than arrays of numbers by name."""


class _DType:
    """numpy.dtype(name, ...), and the byte order that it is told afterwards."""

    def __init__(self, name: str, *_: Any) -> None:
        self.name = name
        self._order = "="

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self._order = state[1]

    def __call__(self) -> np.dtype[Any]:
        dtype = np.dtype(str(self.name))
        if dtype.kind not in "fiu":
            raise TensorPickleError(f"it holds an array of {self.name!r}, not of numbers")
        return dtype.newbyteorder("<" if self._order == "<" else ">" if self._order == ">" else "=")


class _Array:
    """numpy.ndarray as pickled: made empty, then told its shape, type and bytes."""

    def __init__(self, *_: Any) -> None:
        self._state: tuple[Any, ...] | None = None

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self._state = state

    def tensor(self) -> Tensor:
        if self._state is None or len(self._state) != 5:
            raise TensorPickleError("it holds an array without contents")
        _, shape, dtype, is_fortran, data = self._state
        if not isinstance(dtype, _DType) or not isinstance(data, bytes):
            raise TensorPickleError("it holds an array that is not plain bytes")
        values = np.frombuffer(data, dtype())
        if len(values) != math.prod(shape):
            raise TensorPickleError(f"it holds an array of shape {shape} with {len(values)} numbers")
        native = values.reshape(shape, order="F" if is_fortran else "C").astype(dtype().newbyteorder("="), order="C")
        return torch.from_numpy(native)


def _from_buffer(data: Any, dtype: Any, shape: Any, order: str) -> _Array:
    """What numpy constructs arrays with in pickles of protocol 5."""
    array = _Array()
    array.__setstate__((1, shape, dtype, order == "F", bytes(data)))
    return array


def _latin1(text: str, encoding: str) -> bytes:
    """Bytes as pickles of protocol 2 hold them."""
    if encoding not in ("latin1", "latin-1"):
        raise TensorPickleError(f"it holds bytes in the encoding {encoding!r}")
    return text.encode("latin-1")


_CONSTRUCTORS: dict[tuple[str, str], Any] = {
    ("numpy", "dtype"): _DType,
    ("numpy", "ndarray"): _Array,
    ("_codecs", "encode"): _latin1,
    ("collections", "OrderedDict"): OrderedDict,
}
for _package in ("numpy.core", "numpy._core"):
    _CONSTRUCTORS[f"{_package}.multiarray", "_reconstruct"] = _Array
    _CONSTRUCTORS[f"{_package}.numeric", "_frombuffer"] = _from_buffer


class _Reader(pickle.Unpickler):
    """Knows the constructors above and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        try:
            return _CONSTRUCTORS[module, name]
        except KeyError:
            raise TensorPickleError(f"it asks for {module}.{name}, which no weights need") from None


def read_tensor_pickle(path: Path) -> dict[str, Any]:
    """The contents of the pickle: dictionaries and plain values as they are, arrays as tensors.

    Raises:
        TensorPickleError: the file is no pickle, names anything but arrays, or holds arrays of other than numbers.
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        content = _read(file)
    if not isinstance(content, dict):
        raise TensorPickleError(f"it holds {type(content).__name__}, not tensors by name")
    return {str(name): _with_tensors(value) for name, value in content.items()}


def _read(file: BinaryIO) -> Any:
    try:
        return _Reader(file, encoding="latin1").load()
    except TensorPickleError:
        raise
    # Whatever a damaged pickle makes of the reader's stack; none of it has called anything but the constructors above.
    except (pickle.UnpicklingError, EOFError, ValueError, TypeError, LookupError, AttributeError) as error:
        raise TensorPickleError(f"it is no pickle of arrays ({error or type(error).__name__})") from error


def _with_tensors(value: Any) -> Any:
    if isinstance(value, _Array):
        return value.tensor()
    if isinstance(value, dict):
        return {str(name): _with_tensors(entry) for name, entry in value.items()}
    return value
