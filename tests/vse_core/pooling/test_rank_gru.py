"""The GRU of the ranks against PyTorch's own, values and gradients."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vse_core.pooling.gpo import _packed_states
from vse_core.pooling.rank_gru import bidirectional_states


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 2e-5), (torch.float64, 1e-10)])
@settings(deadline=None, max_examples=15)
@given(sizes=st.sets(st.integers(1, 40), min_size=1, max_size=4), width=st.integers(1, 5), seed=st.integers(0, 99))
def test_states_and_gradients_are_those_of_pytorch(
    dtype: torch.dtype, tolerance: float, sizes: set[int], width: int, seed: int
) -> None:
    torch.manual_seed(seed)
    gru = torch.nn.GRU(3, width, batch_first=True, bidirectional=True).to(dtype)
    codes, sizes_U = torch.randn(max(sizes), 3, dtype=dtype, requires_grad=True), torch.tensor(sorted(sizes))
    real_UN1 = (torch.arange(max(sizes)) < sizes_U.unsqueeze(-1)).unsqueeze(-1)
    ours, theirs = (states(gru, codes, sizes_U) * real_UN1 for states in (bidirectional_states, _packed_states))
    torch.testing.assert_close(ours, theirs, atol=tolerance, rtol=tolerance)
    probe, inputs = torch.randn_like(ours), [codes, *gru.parameters()]
    found, expected = (torch.autograd.grad((states * probe).sum(), inputs) for states in (ours, theirs))
    for mine, other in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, other, atol=tolerance, rtol=tolerance)


def test_large_weights_saturate_without_overflow():
    gru = torch.nn.GRU(2, 3, batch_first=True, bidirectional=True)
    for parameter in gru.parameters():
        torch.nn.init.uniform_(parameter, -1e4, 1e4)
    codes, sizes = torch.ones(5, 2), torch.tensor([5])
    torch.testing.assert_close(bidirectional_states(gru, codes, sizes), _packed_states(gru, codes, sizes))
