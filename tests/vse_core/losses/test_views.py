"""Losses over K views: the matrices they are taken over, and the diagnostics that every loss reports."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.vse_core.losses import oracles
from tests.vse_core.losses.batches import nested, random_batch, seeds, view_counts
from vse_core.losses import build_loss
from vse_core.losses.global_pairs import GlobalPairs
from vse_core.losses.views import view_diagnostics

LOSSES = ("triplet", "multi_view", "adopt", "infonce")


@settings(max_examples=60)
@given(seed=seeds, views=view_counts, mask=st.booleans())
def test_bounds_of_infonce_by_loops(seed, views, mask):
    images, texts, ids = random_batch(seed, 5, views)
    s, ids_list = nested(images, texts), ids.tolist()

    def total(bound: str) -> float:
        return build_loss("infonce", temperature=0.1, mask_same_image=mask, bound=bound, lam=0.6)(
            images, texts, ids
        ).total.item()

    def infonce(sims: list[list[list[float]]]) -> float:
        return oracles.infonce(sims, ids_list, 0.1, mask)

    avg, up = [], []
    for k in range(views):
        avg.append(infonce([[image[k]] for image in s]))
        best_but_own = [[[oracles.best(s, i, j) if i != j else s[i][k][i] for j in range(5)]] for i in range(5)]
        up.append(infonce(best_but_own))
    assert total("avg") == pytest.approx(oracles.mean(avg), abs=1e-9)
    assert total("up") == pytest.approx(oracles.mean(up), abs=1e-9)
    assert total("joint") == pytest.approx(0.6 * total("max") + 0.4 * total("up"), abs=1e-9)
    assert total("max") <= total("up") + 1e-12


def test_diagnostics_by_loops():
    images, texts, ids = random_batch(4, 6, 3)
    found = view_diagnostics(GlobalPairs(images, texts, ids, [6], mask_same_image=False))
    chosen = [max(range(3), key=lambda k: image[k][j]) for image in nested(images, texts) for j in range(6)]
    for view in range(3):
        assert found[f"view_{view + 1}_share"].item() == pytest.approx(chosen.count(view) / 36)
    cosines = [float(image[a] @ image[b]) for image in images for a in range(3) for b in range(3) if a != b]
    assert found["view_similarity"].item() == pytest.approx(oracles.mean(cosines))
    assert view_diagnostics(GlobalPairs(images[:, :1], texts, ids, [6], mask_same_image=False)) == {}


@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_reports_the_diagnostics_of_several_views(name: str):
    images, texts, ids = random_batch(4, 6, 3)
    parts = build_loss(name)(images, texts, ids).parts
    shares = [parts[f"view_{view}_share"].item() for view in (1, 2, 3)]
    assert sum(shares) == pytest.approx(1.0)
    assert -1 <= parts["view_similarity"] < 1
    assert not {"view_1_share", "view_similarity"} & set(build_loss(name)(images[:, :1], texts, ids).parts)


@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_is_computed_in_float32_under_autocast(name: str):
    images, texts, ids = random_batch(4, 16, 3, dim=64)
    images, texts = images.float().requires_grad_(), texts.float()
    loss = build_loss(name)
    expected = loss(images, texts, ids)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = loss(images, texts, ids)
    assert found.total.dtype == torch.float32
    torch.testing.assert_close(found.total, expected.total)
    torch.testing.assert_close(found.parts, expected.parts)
    halved = loss(images.bfloat16(), texts.bfloat16(), ids).total
    assert halved.dtype == torch.float32
