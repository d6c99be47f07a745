"""The Generalized Pooling Operator against a naive reading of the paper, and its published numbers."""

import math

import pytest
import torch

from tests.vse_core.pooling.gradients import assert_same
from vse_core.pooling.gpo import GeneralizedPooling, rank_codes

DIM = 6


@pytest.fixture
def module() -> GeneralizedPooling:
    torch.manual_seed(1)
    return GeneralizedPooling()


def make_sets(lengths: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(len(lengths), max(lengths), DIM, generator=generator), torch.tensor(lengths)


def oracle(module: GeneralizedPooling, features: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """One sample at a time, one dimension at a time, without packing or padding."""
    pooled = []
    for sample, length in zip(features, lengths.tolist(), strict=True):
        codes = torch.tensor(
            [
                [(math.sin if i % 2 == 0 else math.cos)(k * 10000 ** (-2 * (i // 2) / 32)) for i in range(32)]
                for k in range(length)
            ]
        )
        hidden = module.gru(codes.unsqueeze(0))[0][0]
        scores = module.linear((hidden[:, :32] + hidden[:, 32:]) / 2)[:, 0]
        weights = torch.softmax(scores / 0.1, dim=0)
        columns = [sample[:length, d].sort(descending=True).values for d in range(sample.shape[1])]
        pooled.append(torch.stack([(column * weights).sum() for column in columns]))
    return torch.stack(pooled)


def test_rank_codes_match_the_recorded_numbers():
    codes = rank_codes(3, 32)
    assert codes[0, :4].tolist() == [0.0, 1.0, 0.0, 1.0]
    assert codes[1, :4].tolist() == pytest.approx([0.841471, 0.540302, 0.533168, 0.846009], abs=1e-6)
    assert codes[1, 30].item() == pytest.approx(math.sin(1.7783e-4), rel=1e-4)


def test_output_and_every_gradient_match_the_naive_reading_of_the_paper(module: GeneralizedPooling):
    features, lengths = make_sets([7, 1, 4, 7, 3])
    inputs = [features.requires_grad_(), *module.parameters()]
    assert_same(module(features, lengths), oracle(module, features, lengths), inputs, atol=1e-6, rtol=1e-4)


def test_published_number_of_parameters_and_names_of_released_checkpoints(module: GeneralizedPooling):
    assert sum(p.numel() for p in module.parameters()) == 12_704
    assert {name.split(".")[0] for name in module.state_dict()} == {"gru", "linear"}


def test_coefficients_sum_to_one_and_vanish_beyond_the_length(module: GeneralizedPooling):
    weights = module.coefficients(torch.tensor([4, 1, 9]), 12)
    assert weights.shape == (3, 12)
    torch.testing.assert_close(weights.sum(dim=1), torch.ones(3))
    assert weights[0, 4:].eq(0).all()
    assert weights[1, 1:].eq(0).all()


def test_autocast_does_not_touch_the_coefficients(module: GeneralizedPooling):
    lengths = torch.tensor([36, 20])
    expected = module.coefficients(lengths)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(module.coefficients(lengths), expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_parameters_still_give_weights_that_sum_to_one(module: GeneralizedPooling, dtype: torch.dtype):
    expected = module.coefficients(torch.tensor([9, 4]))
    weights = module.to(dtype).coefficients(torch.tensor([9, 4]))
    torch.testing.assert_close(weights.sum(dim=1), torch.ones(2))
    torch.testing.assert_close(weights, expected, atol=0.02, rtol=0)


def test_an_odd_code_width_is_refused() -> None:
    with pytest.raises(ValueError, match="position_dim must be even"):
        GeneralizedPooling(position_dim=31)
