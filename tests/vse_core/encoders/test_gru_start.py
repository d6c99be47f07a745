"""Initial weights of GRUs: how much of a first word is left in the last state, and which weights are set."""

import pytest
import torch
from torch import nn

from vse_core.encoders.components import ComponentEncoder
from vse_core.encoders.text import BiGRUEncoder, start_gru
from vse_core.pooling import build_pooling

WIDTH = 32


def started(start: str, directions: int = 1) -> nn.GRU:
    torch.manual_seed(0)
    gru = nn.GRU(16, WIDTH, batch_first=True, bidirectional=directions == 2)
    start_gru(gru, start)
    return gru


def test_the_published_start_is_pytorchs_to_the_last_bit():
    torch.manual_seed(0)
    expected = nn.GRU(16, WIDTH, batch_first=True).state_dict()
    assert all(torch.equal(values, expected[name]) for name, values in started("published").state_dict().items())


def test_the_bias_is_that_of_the_gate_that_keeps():
    """PyTorch's update gate z multiplies the old state: with z near 1 a state stays as it is."""
    gru = started("orthogonal_bias")
    expected = torch.zeros(3 * WIDTH)
    expected[WIDTH : 2 * WIDTH] = 1
    assert torch.equal(gru.bias_ih_l0, expected)
    assert gru.bias_hh_l0.eq(0).all()
    with torch.no_grad():
        gru.bias_ih_l0[WIDTH : 2 * WIDTH] = 100.0
        kept = torch.randn(1, 1, WIDTH)
        torch.testing.assert_close(gru(torch.randn(1, 5, 16), kept)[1], kept)


@pytest.mark.parametrize("directions", [1, 2])
def test_recurrent_weights_are_orthogonal_and_input_weights_xavier_for_each_gate(directions: int):
    gru = started("orthogonal", directions)
    assert all(values.eq(0).all() for name, values in gru.named_parameters() if name.startswith("bias"))
    for name, values in gru.named_parameters():
        if name.startswith("weight_hh"):
            for gate in values.chunk(3):
                torch.testing.assert_close(gate @ gate.T, torch.eye(WIDTH), atol=1e-5, rtol=0)
        elif name.startswith("weight_ih"):
            bound = (6 / (16 + WIDTH)) ** 0.5
            assert 0.95 * bound < values.abs().max() <= bound


def left_of_the_first_word(start: str) -> float:
    """Length of the difference that another first word makes to the last state, over that after one word."""
    gru = started(start)
    words = torch.randn(200, 12, 16)
    others = words.clone()
    others[:, 0] = torch.randn(200, 16)
    with torch.no_grad():
        difference = (gru(words)[0] - gru(others)[0]).norm(dim=2).mean(dim=0)
    return (difference[-1] / difference[0]).item()


def test_a_last_state_knows_the_first_word():
    assert left_of_the_first_word("published") < 0.01
    assert left_of_the_first_word("orthogonal_bias") > 0.05


def test_encoders_take_a_start():
    torch.manual_seed(0)
    pooling = build_pooling("last", 8)
    assert BiGRUEncoder(9, 8, pooling, 4, directions=1, start="orthogonal").rnn.bias_ih_l0.eq(0).all()
    assert ComponentEncoder(9, 8).combiner.gru.bias_ih_l0.tolist() == [0.0] * 8 + [1.0] * 8 + [0.0] * 8
