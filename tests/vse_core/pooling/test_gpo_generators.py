"""GPO's other generators against a naive reading of each: one set, one rank, one dimension at a time."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from tests.vse_core.pooling.gradients import assert_same
from vse_core.pooling import build_pooling
from vse_core.pooling.gpo import TransformerGenerator, rank_codes

DIM = 6
SETS = torch.randn(4, 7, DIM, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
LENGTHS = torch.tensor([7, 1, 4, 3])


def mean_of_directions(gru: nn.GRU, inputs_NP: Tensor) -> Tensor:
    """A GRU cell, rank after rank, forwards and backwards."""
    states = []
    for suffix, ranks in (("", range(len(inputs_NP))), ("_reverse", range(len(inputs_NP) - 1, -1, -1))):
        weights = [getattr(gru, f"{name}_l0{suffix}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
        state_1H, of_rank = inputs_NP.new_zeros(1, gru.hidden_size), {}
        for rank in ranks:
            state_1H = torch.gru_cell(inputs_NP[rank : rank + 1], state_1H, *weights)
            of_rank[rank] = state_1H[0]
        states.append(torch.stack([of_rank[rank] for rank in sorted(of_rank)]))
    return (states[0] + states[1]) / 2


def transformer(module: nn.Module, codes_NP: Tensor, ranked_ND: Tensor) -> Tensor:
    """An encoder layer written out: attention of four heads, feed-forward, each with a residual and a layer norm."""
    layer, width = module.layer, codes_NP.shape[1] // 4
    attention = layer.self_attn
    query, key, value = (codes_NP @ attention.in_proj_weight.T + attention.in_proj_bias).chunk(3, dim=1)
    heads = []
    for head in range(4):
        part = slice(head * width, (head + 1) * width)
        scores = query[:, part] @ key[:, part].T / width**0.5
        heads.append(scores.softmax(dim=1) @ value[:, part])
    attended = layer.norm1(codes_NP + attention.out_proj(torch.cat(heads, dim=1)))
    states_NP = layer.norm2(attended + layer.linear2(torch.relu(layer.linear1(attended))))
    return module.linear(states_NP).expand_as(ranked_ND)


def dimensions(module: nn.Module, codes_NP: Tensor, ranked_ND: Tensor) -> Tensor:
    return mean_of_directions(module.gru, codes_NP) @ module.linear.weight.T


def features(module: nn.Module, codes_NP: Tensor, ranked_ND: Tensor) -> Tensor:
    states_NH = mean_of_directions(module.gru, torch.cat([codes_NP, ranked_ND], dim=1))
    return module.linear(states_NH).expand_as(ranked_ND)


@pytest.mark.parametrize(
    ("name", "scores"), [("gpo_transformer", transformer), ("gpo_dimensions", dimensions), ("gpo_features", features)]
)
def test_output_and_every_gradient(name: str, scores: Callable[[nn.Module, Tensor, Tensor], Tensor]):
    torch.manual_seed(1)
    module = build_pooling(name, DIM).double()
    sets = SETS.clone().requires_grad_()
    pooled = []
    for sample_ND, length in zip(sets, LENGTHS.tolist(), strict=True):
        ranked_ND = sample_ND[:length].sort(dim=0, descending=True).values
        weights_ND = (scores(module, rank_codes(length, 32).double(), ranked_ND) / 0.1).softmax(dim=0)
        assert weights_ND.shape == (length, DIM)
        pooled.append((weights_ND * ranked_ND).sum(dim=0))
    assert_same(module(sets, LENGTHS), torch.stack(pooled), [sets, *module.parameters()], atol=1e-5, rtol=1e-4)


def test_a_width_that_no_heads_divide_is_refused():
    with pytest.raises(ValueError, match="multiple of 4, the number of heads; got 30"):
        TransformerGenerator(position_dim=30)
