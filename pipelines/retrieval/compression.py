"""Small vectors: FAISS's transform to fewer dimensions, and its storage of smaller numbers.

N vectors, D embedding, W dimensions kept.
"""

import faiss
import numpy as np
import numpy.typing as npt

from pipelines.schema.compression import Compression

# The names of FAISS's storages of numbers.
STORAGES = {"float32": "Flat", "float16": "SQfp16", "int8": "SQ8"}
# FAISS compares smaller numbers by vector instructions if they are a multiple of 16: 512 forty times faster than 513.
_ALIGNED = 16


def fit_transform(
    compression: Compression, vectors_ND: npt.NDArray[np.float32], is_corrected: bool
) -> faiss.VectorTransform | None:
    """Fit what turns vectors (N, D), or (N, D + 1) if hubs are corrected, into those that are kept; None: nothing.

    Dimensions are the principal components of a sample of vectors and of their opposites: these are centred at the
    origin, so that inner products stay. The dimension of hub correction passes as it is. Zeros fill up to a multiple of
    16. Raises ValueError if the sample is too small, or its vectors too short.
    """
    dim = vectors_ND.shape[1]
    compression.require(len(vectors_ND), dim)
    if compression.width is None:
        aligned = _aligned(dim + is_corrected)
        if compression.number == "float32" or aligned == dim + is_corrected:
            return None
        return faiss.RemapDimensionsTransform(dim + is_corrected, aligned, False)
    components = compression.width - is_corrected
    pca = faiss.PCAMatrix(dim, components)
    pca.train(np.concatenate([vectors_ND, -vectors_ND]))
    matrix = np.zeros((_aligned(compression.width), dim + is_corrected), np.float32)
    matrix[:components, :dim] = faiss.vector_to_array(pca.A).reshape(components, dim)
    matrix[components, dim:] = 1
    transform = faiss.LinearTransform(dim + is_corrected, len(matrix), False)
    faiss.copy_array_to_vector(matrix.ravel(), transform.A)
    transform.is_trained = True
    return transform


def _aligned(dim: int) -> int:
    return -(-dim // _ALIGNED) * _ALIGNED
