"""InfoNCE against a loop over its definition."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.vse_core.losses import oracles
from tests.vse_core.losses.batches import nested, pair_counts, random_batch, seeds, view_counts
from vse_core.losses import build_loss


@settings(max_examples=80, deadline=None)
@given(seed=seeds, pairs=pair_counts, views=view_counts, mask=st.booleans())
def test_against_loops_over_the_definition(seed, pairs, views, mask):
    images, texts, ids = random_batch(seed, pairs, views)
    result = build_loss("infonce", temperature=0.1, mask_same_image=mask)(images, texts, ids)
    assert result.total.item() == pytest.approx(
        oracles.infonce(nested(images, texts), ids.tolist(), 0.1, mask), abs=1e-9
    )


def test_equal_similarities_cost_the_logarithm_of_the_batch():
    vectors = torch.ones(8, 4) / 2
    total = build_loss("infonce")(vectors.unsqueeze(1), vectors, torch.arange(8)).total
    torch.testing.assert_close(total, torch.tensor(8.0).log())


@pytest.mark.parametrize("bound", ["max", "avg", "up", "joint"])
def test_gradients(bound: str):
    images, texts, ids = random_batch(8, 4, 2, dim=3)
    loss = build_loss("infonce", temperature=0.3, mask_same_image=True, bound=bound)
    inputs = images.requires_grad_(), texts.requires_grad_()
    assert torch.autograd.gradcheck(lambda i, t: loss(i, t, ids).total, inputs)


@pytest.mark.parametrize("options", [{"temperature": -1.0}, {"bound": "journal"}, {"lam": -0.1}])
def test_bad_options_are_refused(options: dict[str, object]):
    with pytest.raises(ValueError, match=r"must"):
        build_loss("infonce", **options)
