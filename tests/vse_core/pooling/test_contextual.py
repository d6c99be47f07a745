"""GRU, self-attention and graph aggregators against loops over single elements, and their published sizes."""

import pytest
import torch

from tests.vse_core.pooling.gradients import assert_same
from vse_core.pooling import build_pooling
from vse_core.pooling.contextual import GraphPooling, SelfAttentionPooling, Seq2SeqPooling

DIM = 4
SETS = torch.randn(4, 6, DIM, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
LENGTHS = torch.tensor([6, 1, 4, 2])


def last_state(gru: torch.nn.GRU, rows: torch.Tensor) -> torch.Tensor:
    """The recurrence written out; PyTorch orders the gates as reset, update, new."""
    state = torch.zeros(DIM, dtype=rows.dtype)
    for row in rows:
        from_row = (gru.weight_ih_l0 @ row + gru.bias_ih_l0).chunk(3)
        from_state = (gru.weight_hh_l0 @ state + gru.bias_hh_l0).chunk(3)
        reset, update = (torch.sigmoid(a + b) for a, b in zip(from_row[:2], from_state[:2], strict=True))
        new = torch.tanh(from_row[2] + reset * from_state[2])
        state = (1 - update) * new + update * state
    return state


def oracle(module: torch.nn.Module, rows: torch.Tensor) -> torch.Tensor:
    if isinstance(module, Seq2SeqPooling):
        return last_state(module.gru, rows)
    results = []
    for row in rows:
        scores = torch.stack([module.query(row) @ module.key(other) for other in rows])
        if isinstance(module, SelfAttentionPooling):
            weights = torch.softmax(scores / DIM**0.5, dim=0)
            results.append(sum(weight * module.value(other) for weight, other in zip(weights, rows, strict=True)))
        else:
            message = sum(score * module.value(other) for score, other in zip(scores, rows, strict=True)) / len(rows)
            results.append(row + module.out(message))
    if isinstance(getattr(module, "readout", None), Seq2SeqPooling):
        return last_state(module.readout.gru, torch.stack(results))
    return torch.stack(results).mean(dim=0)


@pytest.mark.parametrize(
    ("name", "options"),
    [("seq2seq", {}), ("selfattn", {}), ("gcn", {"readout": "mean"}), ("gcn", {"readout": "seq2seq"})],
)
def test_output_and_every_gradient(name: str, options: dict[str, str]):
    torch.manual_seed(1)
    module, features = build_pooling(name, DIM, **options).double(), SETS.clone().requires_grad_()
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    expected = torch.stack([oracle(module, rows[:n]) for rows, n in zip(features, LENGTHS.tolist(), strict=True)])
    assert_same(module(features, LENGTHS), expected, [features, *module.parameters()])
    # What stands in the padding, even if it is not a number, is never looked at.
    padded = torch.cat([SETS, torch.full((4, 2, DIM), float("nan"), dtype=torch.float64)], dim=1)
    torch.testing.assert_close(module(padded, LENGTHS), expected)


@pytest.mark.parametrize(("name", "millions"), [("seq2seq", 6.3), ("selfattn", 3.15), ("gcn", 4.2)])
def test_published_numbers_of_parameters(name: str, millions: float):
    with torch.device("meta"):
        count = sum(p.numel() for p in build_pooling(name, 1024).parameters())
    assert count == pytest.approx(millions * 1e6, rel=0.01)


def test_gcn_starts_as_its_readout():
    torch.testing.assert_close(
        GraphPooling(DIM)(SETS.float(), LENGTHS), build_pooling("mean", DIM)(SETS.float(), LENGTHS)
    )


def test_half_precision_does_not_overflow_under_autocast():
    torch.manual_seed(0)
    features, lengths = torch.full((1, 8, DIM), 1e3, dtype=torch.float16), torch.tensor([8])
    for name in ("selfattn", "gcn"):
        module = build_pooling(name, DIM)
        with torch.autocast("cpu", torch.float16):
            pooled = module(features, lengths)
        assert pooled.dtype == torch.float16
        torch.testing.assert_close(pooled, module(features, lengths), rtol=2e-2, atol=0)
