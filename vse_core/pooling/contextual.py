"""Aggregators that relate the elements to each other before they pool: GRU, self-attention, graph convolution.

B sets, N padded set elements, M the same elements as seen from another one, D dimensions.
"""

from typing import Literal

from torch import Tensor, nn

from vse_core.pooling.base import Pooling
from vse_core.pooling.simple import MeanPooling
from vse_core.precision import at_least_float32, full_precision
from vse_core.recurrent import last_state


class Seq2SeqPooling(Pooling):
    """The last state of a GRU that reads the elements in their order.

    The "Seq2Seq" aggregator of VSE-infinity's table 1 (after Hu, Misra and van der Maaten, "Evaluating text-to-image
    matching using binary image selection (BISON)", 2019), with its 6.3 million parameters at D = 1024.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.gru = nn.GRU(dim, dim, batch_first=True)

    def _pool(self, features_BND: Tensor, lengths_B: Tensor, valid_BN1: Tensor) -> Tensor:
        return last_state(self.gru, at_least_float32(features_BND), lengths_B)


class SelfAttentionPooling(Pooling):
    """One head of scaled dot-product self-attention (Vaswani et al., 2017, equation (1)), then the mean.

    The "SelfAttn" aggregator of VSE-infinity's table 1 (after Wang et al., "Consensus-aware visual-semantic
    embedding", ECCV 2020), with its 3.2 million parameters at D = 1024.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(dim, dim) for _ in range(3))

    def _pool(self, features_BND: Tensor, lengths_B: Tensor, valid_BN1: Tensor) -> Tensor:
        elements_BND = at_least_float32(features_BND).masked_fill(~valid_BN1, 0.0)
        scores_BNM = _products(self.query(elements_BND), self.key(elements_BND)) * elements_BND.shape[2] ** -0.5
        attention_BNM = scores_BNM.masked_fill(~valid_BN1.mT, -float("inf")).softmax(dim=-1)
        # Attention weights of an element sum to 1 and the value layer is linear: the mean over the elements may be
        # taken first, and the layer needs to see one vector a set instead of N.
        mean_BM = attention_BNM.masked_fill(~valid_BN1, 0.0).sum(dim=1) / lengths_B.unsqueeze(-1)
        with full_precision(elements_BND):
            attended_BD = (mean_BM.unsqueeze(1) @ elements_BND).squeeze(1)
        pooled_BD: Tensor = self.value(attended_BD)
        return pooled_BD


class GraphPooling(Pooling):
    """One layer of graph convolution over all pairs of elements with a residual, then a readout.

    Li et al., "Visual semantic reasoning for image-text matching" (VSRN), ICCV 2019, equations (2) to (4):
    ``V + W_r (R V W_g)`` with the affinities ``R = (V W_q)(V W_k)^T``, divided by the size of the set. The "GCN"
    aggregators of VSE-infinity's table 1, with 4.2 million parameters at D = 1024 and the readout ``mean``. As in
    VSRN's code, the last layer starts at zero, so that training starts from the readout alone.

    Differs from VSRN: one layer instead of four, as table 1 has it, without batch norm. With ``seq2seq`` the readout is
    VSRN's, a GRU of width D; table 1 reports 23.1 million parameters.
    """

    def __init__(self, dim: int, readout: Literal["mean", "seq2seq"] = "mean") -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(dim, dim) for _ in range(4))
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)
        self.readout = Seq2SeqPooling(dim) if readout == "seq2seq" else MeanPooling()

    def _pool(self, features_BND: Tensor, lengths_B: Tensor, valid_BN1: Tensor) -> Tensor:
        nodes_BND = at_least_float32(features_BND).masked_fill(~valid_BN1, 0.0)
        affinity_BNM = _products(self.query(nodes_BND), self.key(nodes_BND)) / lengths_B[:, None, None]
        affinity_BNM = affinity_BNM.masked_fill(~valid_BN1.mT, 0.0)
        values_BND = at_least_float32(self.value(nodes_BND))
        # A message has the size of an element to the third power, too large for half precision.
        with full_precision(nodes_BND):
            nodes_BND = nodes_BND + self.out(affinity_BNM @ values_BND)
        pooled_BD: Tensor = self.readout(nodes_BND, lengths_B)
        return pooled_BD


def _products(rows_BND: Tensor, columns_BMD: Tensor) -> Tensor:
    """Inner products of all pairs, (B, N, M), in at least float32: half precision would overflow."""
    with full_precision(rows_BND):
        return at_least_float32(rows_BND) @ at_least_float32(columns_BMD).transpose(1, 2)
