"""What holds for every loss of embeddings: its gradients, its type under autocast, the refusal of bad options."""

from typing import Any

import pytest
import torch

from tests.vse_core.losses.batches import random_batch
from vse_core.losses import build_loss

BOUNDS = ("max", "avg", "up", "up_rough", "joint", "journal", "journal_soft")
LOSSES: dict[str, dict[str, Any]] = {
    "triplet": {"name": "triplet"},
    **{
        f"{bound} {negatives}": {"name": "multi_view", "bound": bound, "negatives": negatives}
        for bound in BOUNDS
        for negatives in ("hardest", "all")
    },
    **{
        variant: {"name": "adopt", "variant": variant, "temperature": 0.3}
        for variant in ("corrected", "release", "paper")
    },
    "infonce": {"name": "infonce", "temperature": 0.3},
    "sigmoid": {"name": "sigmoid", "temperature": 0.3, "bias": -1.0},
    # Its trust in a pair, if not full, has no gradient: tests/vse_core/losses/test_contrastive.py.
    "complementary": {"name": "complementary", "temperature": 0.3, "trusting": True},
}


@pytest.mark.parametrize("options", LOSSES.values(), ids=LOSSES)
def test_gradients(options: dict[str, Any]):
    images, texts, ids = random_batch(8, 4, 3, dim=3)
    loss = build_loss(**options, mask_same_image=True)
    inputs = images.requires_grad_(), texts.requires_grad_()
    assert torch.autograd.gradcheck(lambda i, t: loss(i, t, ids).total, inputs)


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("options", [*LOSSES.values(), {"name": "triplet", "negatives": "all"}], ids=[*LOSSES, "all"])
def test_a_batch_without_negatives_has_finite_parts(options: dict[str, Any], size: int):
    """All captions are of one image, or there is one alone."""
    images, texts, _ = random_batch(8, size, 3, dim=3)
    result = build_loss(**options, mask_same_image=True)(images, texts, torch.zeros(size, dtype=torch.long))
    assert {name: part.item() for name, part in result.parts.items() if not part.isfinite()} == {}
    assert result.total.isfinite()
    assert result.parts["hardest_negative_similarity"] == 0
    assert result.parts.get("active_hinges", 0) == 0


@pytest.mark.parametrize("name", ["triplet", "multi_view", "adopt", "infonce", "sigmoid", "complementary"])
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
    assert not any(part.requires_grad for part in found.parts.values())
    assert loss(images.bfloat16(), texts.bfloat16(), ids).total.dtype == torch.float32


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("unified", {"negatives": "some"}),
        ("triplet", {"reduction": "max"}),
        ("triplet", {"marginn": 0.1}),
        ("multi_view", {"bound": "upper"}),
        ("adopt", {"variant": "fixed"}),
    ],
)
def test_bad_options_are_refused(name: str, options: dict[str, Any]):
    with pytest.raises(ValueError, match=r"must|has no option"):
        build_loss(name, **options)
