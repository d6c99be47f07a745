"""ADOPT against golden numbers and loops over its definitions."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.vse_core.losses import oracles
from tests.vse_core.losses.batches import S, embeddings_with, nested, pair_counts, random_batch, seeds, view_counts
from vse_core.losses import build_loss

VARIANTS = ("corrected", "release", "paper")


def test_recorded_values_of_the_release():
    result = build_loss("adopt", variant="release")(*embeddings_with(S), torch.arange(3))
    assert result.parts["alignment"].item() == pytest.approx(0.45)
    assert result.parts["uniformity"].item() == pytest.approx(0.776301, abs=1e-6)
    assert result.parts["negatives"].item() == 1
    assert result.total.item() == pytest.approx(4.729682, abs=1e-6)


def test_recorded_values_of_the_paper():
    result = build_loss("adopt", variant="paper")(*embeddings_with(S), torch.arange(3))
    assert result.parts["uniformity"].item() == pytest.approx(0.434900, abs=1e-6)
    assert result.parts["negatives"].item() == 2
    assert result.total.item() == pytest.approx(1.608969, abs=1e-6)
    one = build_loss("adopt", variant="paper", count="constant", constant=1)(*embeddings_with(S), torch.arange(3))
    assert one.total.item() == pytest.approx(1.333333, abs=1e-6)


@pytest.mark.parametrize(
    ("variant", "others", "expected"),
    [
        ("release", 0.0, [70, 56, 40, 24, 7, 1, 1, 1]),
        ("corrected", 0.1, [82, 69, 55, 39, 23, 14, 1, 1]),
        ("paper", 0.0, [127, 127, 126, 124, 121, 119, 113, 102]),
        ("paper", 0.1, [127, 126, 124, 121, 118, 116, 108, 96]),
    ],
)
def test_number_of_negatives_at_a_batch_of_128(variant: str, others: float, expected: list[int]):
    found = []
    for pairs in (0, 0.1, 0.2, 0.3, 0.4, 0.45, 0.6, 0.8):
        sims = torch.full((128, 128), others, dtype=torch.float64).fill_diagonal_(pairs)
        found.append(build_loss("adopt", variant=variant)(*embeddings_with(sims), torch.arange(128)).parts["negatives"])
    assert [int(number) for number in found] == expected


@settings(max_examples=100)
@given(seed=seeds, pairs=pair_counts, views=view_counts, variant=st.sampled_from(VARIANTS), mask=st.booleans())
def test_against_loops_over_the_definitions(seed, pairs, views, variant, mask):
    images, texts, ids = random_batch(seed, pairs, views)
    s = nested(images, texts)
    result = build_loss("adopt", variant=variant, temperature=0.1, margin=0.15, mask_same_image=mask)(
        images, texts, ids
    )
    number = oracles.number_of_negatives(s, variant)
    align, uniform = oracles.maturity(s, variant)
    assert result.parts["negatives"].item() == number
    assert result.parts["alignment"].item() == pytest.approx(align)
    assert result.parts["uniformity"].item() == pytest.approx(uniform)
    expected = oracles.adopt(s, ids.tolist(), variant, 0.1, 0.15, mask, number)
    assert result.total.item() == pytest.approx(expected, abs=1e-9)


def test_release_takes_the_pair_for_its_own_negative_where_the_others_are_negative():
    """The mining of the released code, and its correction."""
    sims = torch.tensor([[0.1, -0.3], [-0.4, 0.2]], dtype=torch.float64)
    totals = {
        variant: build_loss("adopt", variant=variant, temperature=1.0)(*embeddings_with(sims), torch.arange(2)).total
        for variant in ("release", "corrected")
    }
    own = torch.tensor([0.1, 0.2], dtype=torch.float64)
    torch.testing.assert_close(totals["release"], torch.log1p(torch.exp(own + 0.2 - own)).mean())
    assert totals["corrected"] < totals["release"]


def test_with_all_negatives_and_no_margin_it_is_infonce():
    batch = random_batch(2, 6, 3)
    adopt = build_loss("adopt", margin=0.0, count="constant", constant=100, temperature=0.07, mask_same_image=True)
    infonce = build_loss("infonce", temperature=0.07, mask_same_image=True)
    torch.testing.assert_close(adopt(*batch).total, infonce(*batch).total)


def test_random_numbers_depend_on_the_batch_alone_and_cover_the_range():
    images, texts, _ = random_batch(2, 5, 1)
    loss = build_loss("adopt", count="random")
    batches = [torch.randint(0, 1000, (5,), generator=torch.Generator().manual_seed(seed)) for seed in range(60)]
    numbers = [int(loss(images, texts, ids).parts["negatives"]) for ids in batches]
    assert set(numbers) == {1, 2, 3, 4}
    torch.manual_seed(99)
    assert [int(loss(images, texts, ids).parts["negatives"]) for ids in batches[:9]] == numbers[:9]


@pytest.mark.parametrize("variant", VARIANTS)
def test_without_any_negative_gradients_are_finite(variant: str):
    images, texts, _ = random_batch(8, 4, 2)
    images.requires_grad_()
    loss = build_loss("adopt", variant=variant, mask_same_image=True)
    loss(images, texts, torch.zeros(4, dtype=torch.long)).total.backward()
    assert images.grad.isfinite().all()
