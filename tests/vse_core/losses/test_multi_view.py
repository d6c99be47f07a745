"""The multi-view losses against golden numbers and loops over the equations of MV-VSE."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.vse_core.losses import oracles
from tests.vse_core.losses.batches import (
    S2,
    S,
    embeddings_with,
    nested,
    pair_counts,
    random_batch,
    seeds,
    view_counts,
)
from tests.vse_core.losses.test_every_loss import BOUNDS
from vse_core.losses import build_loss


@pytest.mark.parametrize(
    ("bound", "expected"), [("max", 1.25), ("avg", 1.35), ("up", 1.575), ("up_rough", 1.60), ("joint", 1.3475)]
)
def test_recorded_values(bound: str, expected: float):
    result = build_loss("multi_view", bound=bound)(*embeddings_with(S, S2), torch.arange(3))
    assert result.total.item() == pytest.approx(expected, abs=1e-6)


@settings(max_examples=100)
@given(
    seed=seeds,
    pairs=pair_counts,
    views=view_counts,
    bound=st.sampled_from(BOUNDS),
    negatives=st.sampled_from(["hardest", "all"]),
    mask=st.booleans(),
    reduction=st.sampled_from(["sum", "mean"]),
)
def test_against_loops_over_the_equations(seed, pairs, views, bound, negatives, mask, reduction):
    images, texts, ids = random_batch(seed, pairs, views)
    options = {"bound": bound, "negatives": negatives, "mask_same_image": mask, "margin": 0.3, "lam": 0.6}
    result = build_loss("multi_view", **options, reduction=reduction)(images, texts, ids)
    expected = oracles.multi_view(nested(images, texts), ids.tolist(), bound, 0.3, negatives, mask, 0.6)
    expected /= pairs if reduction == "mean" else 1
    assert result.total.item() == pytest.approx(expected, abs=1e-9)


@settings(max_examples=60)
@given(seed=seeds, pairs=pair_counts, views=view_counts, negatives=st.sampled_from(["hardest", "all"]))
def test_bounds_are_ordered(seed, pairs, views, negatives):
    """Equation (14), with the lower bound of the journal variant below."""
    batch = random_batch(seed, pairs, views)

    def total(**options: object) -> float:
        return build_loss("multi_view", negatives=negatives, reduction="sum", **options)(*batch).total.item()

    low = 2 * total(bound="journal", lam=0.0)  # without its average over the directions
    ordered = [low, total(bound="max"), total(bound="up"), total(bound="up_rough")]
    assert all(smaller <= larger + 1e-12 for smaller, larger in itertools.pairwise(ordered))


@pytest.mark.parametrize("negatives", ["hardest", "all"])
def test_one_view_is_the_triplet_loss(negatives: str):
    batch = random_batch(3, 6, 1)
    triplet = build_loss("triplet", negatives=negatives)(*batch).total
    for bound in ("max", "avg", "up", "up_rough", "joint"):
        torch.testing.assert_close(build_loss("multi_view", bound=bound, negatives=negatives)(*batch).total, triplet)
    journal = build_loss("multi_view", bound="journal", negatives=negatives)(*batch).total
    torch.testing.assert_close(journal, triplet / 2 / 6)


def test_indicator_carries_no_gradient_and_silences_satisfied_pairs():
    """Caption 2 of the golden example: image negatives are inactive, so view 1 gets no pull although it violates."""
    images, texts = (vectors.requires_grad_() for vectors in embeddings_with(S, S2))
    build_loss("multi_view", bound="up")(images, texts, torch.arange(3)).total.backward()
    # Image 2 is the positive of caption 2 in image retrieval (inactive) and of its own captions (active): each view
    # is pushed away from the hardest caption under the best view, and pulled to its own with the weight 1 / K, once.
    assert images.grad[2, :, 2].tolist() == pytest.approx([-0.5, -0.5])


@pytest.mark.parametrize("bound", BOUNDS)
def test_anchors_without_negatives_have_zero_gradients(bound: str):
    images, texts, _ = random_batch(8, 4, 3)
    images.requires_grad_()
    loss = build_loss("multi_view", bound=bound, mask_same_image=True)
    result = loss(images, texts, torch.zeros(4, dtype=torch.long))
    result.total.backward()
    assert result.total.item() == pytest.approx(0.0, abs=1e-12)
    assert images.grad.abs().max() == 0


def test_parts_are_the_bounds_that_make_up_the_total():
    result = build_loss("multi_view", lam=0.6)(*embeddings_with(S, S2), torch.arange(3))
    assert result.parts["bound_max"].item() == pytest.approx(1.25)
    assert result.parts["bound_up"].item() == pytest.approx(1.575)
    assert result.total.item() == pytest.approx(0.6 * 1.25 + 0.4 * 1.575)
