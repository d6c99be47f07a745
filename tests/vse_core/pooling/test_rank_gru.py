"""The GRU of the ranks against PyTorch's own, values and gradients."""

import copy

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vse_core.pooling.rank_gru import bidirectional_states
from vse_core.recurrent import gru_states


@settings(max_examples=30)
@given(sizes=st.sets(st.integers(1, 40), min_size=1, max_size=4), width=st.integers(1, 5), seed=st.integers(0, 99))
def test_states_and_gradients_are_those_of_pytorch_in_float64(sizes: set[int], width: int, seed: int) -> None:
    torch.manual_seed(seed)
    gru = torch.nn.GRU(3, width, batch_first=True, bidirectional=True)
    exact = copy.deepcopy(gru).double()
    codes, sizes_U = torch.randn(max(sizes), 3, requires_grad=True), torch.tensor(sorted(sizes))
    codes_64 = codes.detach().double().requires_grad_()
    real_UN1 = (torch.arange(max(sizes)) < sizes_U.unsqueeze(-1)).unsqueeze(-1)
    ours = bidirectional_states(gru, codes, sizes_U) * real_UN1
    theirs = gru_states(exact, codes_64.expand(len(sizes_U), -1, -1), sizes_U) * real_UN1
    torch.testing.assert_close(ours, theirs, atol=1e-12, rtol=1e-12)
    probe = torch.randn_like(ours)
    found = torch.autograd.grad((ours * probe).sum(), [codes, *gru.parameters()])
    expected = torch.autograd.grad((theirs * probe).sum(), [codes_64, *exact.parameters()])
    for mine, other in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, other.float(), atol=1e-6, rtol=1e-6)


def test_large_weights_saturate_without_overflow():
    torch.manual_seed(0)  # of 1,000 seeds 2 bring a gate to its threshold, where rounding decides
    gru = torch.nn.GRU(2, 3, batch_first=True, bidirectional=True)
    for parameter in gru.parameters():
        torch.nn.init.uniform_(parameter, -1e4, 1e4)
    codes, sizes = torch.ones(5, 2), torch.tensor([5])
    states = bidirectional_states(gru, codes, sizes)
    torch.testing.assert_close(states.float(), gru_states(gru, codes.unsqueeze(0), sizes))
