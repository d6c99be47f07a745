"""InfoNCE, the sigmoid and the complementary loss against loops over their definitions."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.vse_core.losses import oracles
from tests.vse_core.losses.batches import nested, pair_counts, random_batch, seeds, view_counts
from vse_core.losses import build_loss
from vse_core.losses.global_pairs import GlobalPairs

OPTIONS: dict[str, dict[str, Any]] = {"infonce": {"temperature": 0.2}, "sigmoid": {"temperature": 0.2, "bias": -3.0}}
COMPLEMENTARY = {
    "complementary": {"temperature": 0.2, "trusting": False},
    "complementary, trusting": {"temperature": 0.2, "trusting": True},
}
ORACLES: dict[str, Callable[..., float]] = {
    "infonce": oracles.infonce,
    "sigmoid": oracles.sigmoid,
    **dict.fromkeys(COMPLEMENTARY, oracles.complementary),
}


@settings(max_examples=160)
@given(name=st.sampled_from([*ORACLES]), seed=seeds, pairs=pair_counts, views=view_counts, mask=st.booleans())
def test_against_loops_over_the_definition(name, seed, pairs, views, mask):
    images, texts, ids = random_batch(seed, pairs, views)
    options = (OPTIONS | COMPLEMENTARY)[name]
    result = build_loss(name.partition(",")[0], **options, mask_same_image=mask)(images, texts, ids)
    expected = ORACLES[name](nested(images, texts), ids.tolist(), *options.values(), mask)
    assert result.total.item() == pytest.approx(expected, abs=1e-9)


def test_equal_similarities_cost_the_logarithm_of_the_batch():
    vectors = torch.ones(8, 4) / 2
    total = build_loss("infonce")(vectors.unsqueeze(1), vectors, torch.arange(8)).total
    torch.testing.assert_close(total, torch.tensor(8.0).log())


def test_without_similarity_and_bias_every_decision_costs_a_bit():
    images, texts = torch.eye(8)[:4].unsqueeze(1), torch.eye(8)[4:]
    total = build_loss("sigmoid", bias=0.0)(images, texts, torch.arange(4)).total
    assert total.item() == pytest.approx(4 * math.log(2))


def test_what_is_learned_is_reported_as_it_was_before_the_step():
    images, texts, ids = random_batch(8, 4, 2, dim=3)
    loss = build_loss("sigmoid", **OPTIONS["sigmoid"], learned=True)
    parts = loss(images, texts, ids).parts
    with torch.no_grad():
        for parameter in loss.parameters():
            parameter.add_(1.0)
    assert {name: parts[name].item() for name in ("temperature", "bias")} == pytest.approx(
        {"temperature": 0.2, "bias": -3}
    )


def test_whole_numbers_may_be_learned_from():
    loss = build_loss("sigmoid", temperature=1, bias=-10, learned=True)
    assert {name: value.item() for name, value in loss.learned_values().items()} == {"temperature": 1, "bias": -10}


@pytest.mark.parametrize("name", OPTIONS)
def test_what_is_learned_begins_as_the_fixed_loss_and_has_its_gradient(name: str):
    images, texts, ids = random_batch(8, 4, 2, dim=3)
    fixed = build_loss(name, **OPTIONS[name])(images, texts, ids)
    loss = build_loss(name, **OPTIONS[name], learned=True).double()
    learned = loss(images, texts, ids)
    torch.testing.assert_close(learned.total, fixed.total, rtol=1e-6, atol=1e-6)
    assert learned.parts["temperature"].item() == pytest.approx(0.2)
    learned.total.backward()
    for parameter in loss.parameters():
        gradient, totals = parameter.grad.item(), []
        for change in (1e-5, -2e-5):
            with torch.no_grad():
                parameter.add_(change)
            totals.append(loss(images, texts, ids).total.item())
        with torch.no_grad():
            parameter.add_(1e-5)
        assert gradient == pytest.approx((totals[0] - totals[1]) / 2e-5, rel=1e-4, abs=1e-7)


@pytest.mark.parametrize("name", OPTIONS)
def test_the_learned_factor_is_at_most_a_hundred(name: str):
    images, texts, ids = random_batch(8, 4, 1, dim=3)
    loss = build_loss(name, temperature=0.02, learned=True)
    with torch.no_grad():
        loss.logit_scale.fill_(9.0)
    assert loss(images, texts, ids).parts["temperature"].item() == pytest.approx(0.01)


def test_trust_in_a_pair_carries_no_gradient():
    """Oracle: finite differences of the loss whose trusts stay those of the unchanged batch."""
    images, texts, ids = random_batch(5, 6, 2)
    loss, given = build_loss("complementary", temperature=0.3), images.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(loss(given, texts, ids).total, given)
    trusts = loss._trusts(GlobalPairs(images, texts, ids, [6], False))
    loss._trusts = lambda pairs: trusts
    step = torch.zeros_like(images)
    step[2, 1, 3] = 1e-6
    totals = [loss(images + sign * step, texts, ids).total.item() for sign in (1, -1)]
    assert gradient[2, 1, 3].item() == pytest.approx((totals[0] - totals[1]) / 2e-6, rel=1e-5)
