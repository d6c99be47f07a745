"""Whether a computation may have shapes that depend on values: how many elements are real, which words are distinct.

On a CPU it may, and padding is left out. A GPU would make the host wait for every such shape, and neither a CUDA graph
nor an exported one can have any: there all rows are computed with, and padding is masked. Results are the same.
"""

import torch
from torch import Tensor

EVERYWHERE = False
"""Whether shapes are static on a CPU too, as on a GPU: for tests and counts of operators."""


def has_static_shapes(values: Tensor) -> bool:
    """Return whether what is computed of values may not have shapes that depend on them."""
    return EVERYWHERE or values.device.type != "cpu" or torch.onnx.is_in_onnx_export()
