"""Pickles of plain values and numpy arrays, read without running anything in them.

A pickle is a program that may call whatever it names. Here it may name a few constructors, each of which is replaced
by one of this file that keeps its arguments; arrays are then copied out of the bytes. All else is an UnpicklingError,
damaged bytes are whatever they make of the reader's stack.
"""

import io
import math
import pickle
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

Constructors = Mapping[tuple[str, str], Any]


class _Reader(pickle.Unpickler):
    """Know the given constructors and nothing else: a pickle can build no other object and run nothing."""

    def __init__(self, data: bytes, constructors: Constructors) -> None:
        super().__init__(io.BytesIO(data), encoding="latin1")
        self._constructors = constructors

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self._constructors:
            raise UnpicklingError(f"it asks for {module}.{name}, which no plain values need; nothing was executed")
        return self._constructors[module, name]

    def persistent_load(self, pid: Any) -> NoReturn:
        raise UnpicklingError(f"it refers to {pid!r:.60} elsewhere; only plain values are read")


def _latin1(text: str, encoding: str) -> bytes:
    """Make bytes as Python 3 writes them in pickles of protocol 2, which has none: text and an encoding's name."""
    if encoding not in ("latin1", "latin-1"):
        raise UnpicklingError(f"it holds bytes in the encoding {encoding!r:.40}; latin1 is needed")
    return text.encode("latin-1")


_PLAIN: Constructors = {("_codecs", "encode"): _latin1}


def read_plain(data: bytes, constructors: Constructors = _PLAIN) -> Any:
    """Read a pickle of numbers, text, bytes, and lists and dictionaries of them.

    `constructors` are stand-ins for what it may name besides, by module and name.
    """
    return _Reader(data, constructors).load()


class _DType:
    """Stand-in of `numpy.dtype(name, ...)`; the byte order is set afterwards."""

    def __init__(self, name: str, *_: Any) -> None:
        self.name = name
        self._order = "="

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self._order = state[1]

    def __call__(self) -> np.dtype[Any]:
        dtype = np.dtype(str(self.name))
        if dtype.kind not in "fiu":
            raise UnpicklingError(f"it holds an array of {self.name!r}, not of numbers")
        return dtype.newbyteorder("<" if self._order == "<" else ">" if self._order == ">" else "=")


class _Array:
    """Stand-in of `numpy.ndarray`: made empty; shape, type and bytes are set afterwards."""

    def __init__(self, *_: Any) -> None:
        self._state: tuple[Any, ...] | None = None

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self._state = state

    def array(self) -> npt.NDArray[Any]:
        if self._state is None or len(self._state) != 5:
            raise UnpicklingError("it holds an array without contents")
        _, shape, dtype, is_fortran, data = self._state
        if not isinstance(dtype, _DType) or not isinstance(data, bytes):
            raise UnpicklingError("it holds an array that is not plain bytes")
        values = np.frombuffer(data, dtype())
        if len(values) != math.prod(shape):
            raise UnpicklingError(f"it holds an array of shape {shape} with {len(values)} numbers")
        return values.reshape(shape, order="F" if is_fortran else "C").astype(dtype().newbyteorder("="), order="C")


def _from_buffer(data: Any, dtype: Any, shape: Any, order: str) -> _Array:
    """Stand-in of numpy's constructor in pickles of protocol 5."""
    array = _Array()
    array.__setstate__((1, shape, dtype, order == "F", bytes(data)))
    return array


_ARRAYS: Constructors = {
    **_PLAIN,
    ("numpy", "dtype"): _DType,
    ("numpy", "ndarray"): _Array,
    ("collections", "OrderedDict"): OrderedDict,
    **{(f"numpy.{core}.multiarray", "_reconstruct"): _Array for core in ("core", "_core")},
    **{(f"numpy.{core}.numeric", "_frombuffer"): _from_buffer for core in ("core", "_core")},
}


def read_arrays(path: Path) -> dict[str, Any]:
    """Read a pickled dictionary of arrays and plain values as tensors, the form of detectron2's converted weights."""
    content = read_plain(path.read_bytes(), _ARRAYS)
    if not isinstance(content, dict):
        raise UnpicklingError(f"it holds {type(content).__name__}, not tensors by name")
    tensors: dict[str, Any] = _with_tensors(content)
    return tensors


def _with_tensors(value: Any) -> Any:
    import torch  # takes seconds, and plain values do without

    if isinstance(value, _Array):
        return torch.from_numpy(value.array())
    if isinstance(value, dict):
        return {str(name): _with_tensors(entry) for name, entry in value.items()}
    return value
