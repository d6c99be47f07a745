"""The GRU over packed rows against PyTorch's, against a loop over the equations, and its gradients."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from vse_core import static_shapes
from vse_core.packed_gru import packed_gru_states
from vse_core.recurrent import gru_states, last_state, word_states

LENGTHS = torch.tensor([3, 1, 9, 9, 4, 1])
TOKENS = torch.randint(0, 12, (6, 9), generator=torch.Generator().manual_seed(0))


def make(bidirectional: bool, dtype: torch.dtype = torch.float64) -> tuple[nn.GRU, nn.Embedding]:
    torch.manual_seed(1)
    gru = nn.GRU(7, 5, batch_first=True, bidirectional=bidirectional)
    return gru.to(dtype), nn.Embedding(12, 7).to(dtype)


def gradients(states: Tensor, gru: nn.GRU, embedding: nn.Embedding) -> list[Tensor]:
    parameters = [*gru.parameters(), *embedding.parameters()]
    weights = torch.linspace(-1, 1, states.numel(), dtype=states.dtype).view_as(states)
    return list(torch.autograd.grad((states * weights).sum(), parameters))


def pytorchs(gru: nn.GRU, inputs: Tensor, lengths: Tensor) -> Tensor:
    packed = pack_padded_sequence(inputs, lengths, batch_first=True, enforce_sorted=False)
    states = pad_packed_sequence(gru(packed)[0], batch_first=True)[0]
    return states.unflatten(2, (-1, gru.hidden_size)).mean(dim=2)


@pytest.mark.parametrize("reads_words", [False, True])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_states_and_gradients_are_those_of_pytorch(bidirectional: bool, reads_words: bool) -> None:
    gru, embedding = make(bidirectional)
    if reads_words:
        ours = word_states(gru, embedding, TOKENS, LENGTHS)
    else:
        ours = gru_states(gru, embedding(TOKENS), LENGTHS)
    theirs = pytorchs(gru, embedding(TOKENS), LENGTHS)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-14)
    for one, other in zip(gradients(ours, gru, embedding), gradients(theirs, gru, embedding), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("bidirectional", [False, True])
def test_unpacked_states_are_those_of_packed_ones_whatever_the_padding_holds(
    bidirectional: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(static_shapes, "EVERYWHERE", True)
    gru, embedding = make(bidirectional)
    is_padding = (torch.arange(10) >= LENGTHS.unsqueeze(1)).unsqueeze(-1)
    inputs = nn.functional.pad(embedding(TOKENS), (0, 0, 0, 1))
    ours = gru_states(gru, inputs.masked_fill(is_padding, float("nan")), LENGTHS).masked_fill(is_padding, 0.0)[:, :9]
    theirs = pytorchs(gru, embedding(TOKENS), LENGTHS)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-14)
    found = gradients(ours, gru, embedding)
    for one, other in zip(found, gradients(theirs, gru, embedding), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-13)


def test_states_are_those_of_the_equations() -> None:
    gru, embedding = make(bidirectional=False)
    states = word_states(gru, embedding, TOKENS, LENGTHS)
    for caption, length in enumerate(LENGTHS.tolist()):
        state = torch.zeros(5, dtype=torch.float64)
        for place in range(length):
            inputs = gru.weight_ih_l0 @ embedding.weight[TOKENS[caption, place]] + gru.bias_ih_l0
            recurrent = gru.weight_hh_l0 @ state + gru.bias_hh_l0
            reset, update = torch.sigmoid(inputs[:10] + recurrent[:10]).chunk(2)
            new = torch.tanh(inputs[10:] + reset * recurrent[10:])
            state = (1 - update) * new + update * state
            torch.testing.assert_close(states[caption, place], state)
        assert not states[caption, length:].any()


def test_gradients_are_those_of_differences() -> None:
    gru, _ = make(bidirectional=True)
    packed = pack_padded_sequence(TOKENS[:3, :4], torch.tensor([4, 1, 2]), batch_first=True, enforce_sorted=False)
    elements = torch.randn(12, 7, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda rows: packed_gru_states(gru, rows, packed), (elements,))


def test_bfloat16_is_near_and_its_gradients_are_float32() -> None:
    gru, embedding = make(bidirectional=True, dtype=torch.float32)
    exact = word_states(gru, embedding, TOKENS, LENGTHS)
    with torch.autocast("cpu", torch.bfloat16):
        near = word_states(gru, embedding, TOKENS, LENGTHS)
    assert near.dtype == torch.float32
    assert 1e-5 < (near - exact).abs().max() < 0.02
    for one, other in zip(gradients(near, gru, embedding), gradients(exact, gru, embedding), strict=True):
        assert one.dtype == torch.float32
        assert (one - other).norm() < 0.02 * other.norm()


def test_a_batch_of_one_word_captions_and_without_gradients() -> None:
    gru, embedding = make(bidirectional=True)
    with torch.no_grad():
        states = word_states(gru, embedding, TOKENS[:, :1], torch.ones(6, dtype=torch.long))
    torch.testing.assert_close(states, pytorchs(gru, embedding(TOKENS[:, :1]), torch.ones(6, dtype=torch.long)))


def test_last_states_are_those_of_pytorch() -> None:
    gru, embedding = make(bidirectional=False)
    packed = pack_padded_sequence(embedding(TOKENS), LENGTHS, batch_first=True, enforce_sorted=False)
    torch.testing.assert_close(last_state(gru, embedding(TOKENS), LENGTHS), gru(packed)[1][0])
