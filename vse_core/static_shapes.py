"""Whether a computation may have shapes that depend on values: how many elements are real, which words are distinct.

On a CPU it may, and padding is left out. A GPU would make the host wait for every such shape, and neither a CUDA graph
nor an exported one can have any: there all rows are computed with, and padding is masked. Results are the same.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

_everywhere: ContextVar[bool] = ContextVar("static shapes everywhere", default=False)


def has_static_shapes(values: Tensor) -> bool:
    """Return whether what is computed of values may not have shapes that depend on them."""
    return values.device.type != "cpu" or _everywhere.get() or torch.onnx.is_in_onnx_export()


@contextmanager
def static_shapes() -> Iterator[None]:
    """Compute with static shapes on a CPU too, within a context: as a GPU does, for tests and counts of operators."""
    token = _everywhere.set(True)
    try:
        yield
    finally:
        _everywhere.reset(token)
