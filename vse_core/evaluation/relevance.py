"""Relevance: how well the regions of an image match a word or phrase (UniVSE, section 4.3)."""

from torch import Tensor

from vse_core.similarity import similarity_matrix

# Q queries, N regions of one image, D embedding.


def relevance(queries_QD: Tensor, regions_ND: Tensor, temperature: float = 0.1) -> Tensor:
    """Spread queries (Q, D) over the regions (N, D) of one image: ``softmax_n(s(query, region_n) / temperature)``.

    This is UniVSE's equation (2), (Q, N) in float32; the loss has it at temperature 1, the paper's figure 6 at 0.1. The
    smaller the temperature, which must be positive, the more of the map lies on the best region.
    """
    if not temperature > 0:
        raise ValueError(f"the temperature of a softmax is above 0; got {temperature}")
    # Every region is one "image" with a single view.
    return (similarity_matrix(regions_ND.unsqueeze(1), queries_QD).T / temperature).softmax(dim=1)
