"""The orthogonality of views by loops, next to every loss that takes views."""

import pytest
import torch
from hypothesis import given, settings

from tests.vse_core.losses import oracles
from tests.vse_core.losses.batches import pair_counts, random_batch, seeds
from vse_core.losses import OrthogonalViewsLoss, build_loss

LOSSES = ("triplet", "multi_view", "adopt", "infonce", "sigmoid")


@pytest.mark.parametrize("name", LOSSES)
@settings(max_examples=20)
@given(seed=seeds, pairs=pair_counts)
def test_the_mean_squared_cosine_by_loops(name, seed, pairs):
    images, texts, ids = random_batch(seed, pairs + 1, 3)
    alone = build_loss(name)(images, texts, ids)
    found = OrthogonalViewsLoss(build_loss(name), 0.3)(images, texts, ids)
    mean = oracles.mean(float(i[a] @ i[b]) ** 2 for i in images for a in range(3) for b in range(3) if a != b)
    assert found.parts["view_orthogonality"].item() == pytest.approx(mean)
    assert found.parts["pair_loss"].item() == alone.total.item()
    assert found.total.item() == pytest.approx(alone.total.item() + 0.3 * mean)
    assert found.parts.keys() == alone.parts.keys() | {"pair_loss", "view_orthogonality"}


def test_steps_along_the_gradient_make_views_orthogonal():
    images, texts, ids = random_batch(0, 4, 3)
    images.requires_grad_()
    loss = OrthogonalViewsLoss(build_loss("triplet"), 1000.0)
    for _ in range(200):
        result = loss(torch.nn.functional.normalize(images, dim=-1), texts, ids)
        (gradient,) = torch.autograd.grad(result.total, images)
        images = (images - 0.002 * gradient).detach().requires_grad_()
    assert result.parts["view_orthogonality"] < 1e-3


def test_the_term_is_computed_in_float32_under_autocast():
    images, texts, ids = random_batch(4, 16, 3, dim=64)
    images, texts, loss = images.float(), texts.float(), OrthogonalViewsLoss(build_loss("infonce"), 1.0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = loss(images, texts, ids)
    torch.testing.assert_close(found.parts, loss(images, texts, ids).parts)


def test_one_view_and_no_weight_are_refused():
    images, texts, ids = random_batch(0, 4, 1)
    with pytest.raises(ValueError, match="one view of an image is orthogonal to no other"):
        OrthogonalViewsLoss(build_loss("triplet"), 0.1)(images, texts, ids)
    with pytest.raises(ValueError, match=r"must be positive, got 0\.0"):
        OrthogonalViewsLoss(build_loss("triplet"), 0.0)
