"""The triplet loss against published numbers and a loop over all triplets."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.vse_core.losses import oracles
from tests.vse_core.losses.batches import S, embeddings_with, nested, pair_counts, random_batch, seeds, view_counts
from vse_core.losses import build_loss
from vse_core.losses.global_pairs import GlobalPairs, pair_similarities


@pytest.mark.parametrize(("negatives", "expected"), [("all", 2.15), ("hardest", 1.40)])
def test_recorded_values(negatives: str, expected: float):
    loss = build_loss("triplet", margin=0.2, negatives=negatives)
    assert loss(*embeddings_with(S), torch.arange(3)).total.item() == pytest.approx(expected, abs=1e-6)


def test_collapse_plateau():
    vectors = torch.nn.functional.normalize(torch.ones(128, 8), dim=-1)
    loss = build_loss("triplet", margin=0.2)
    assert loss(vectors.unsqueeze(1), vectors, torch.arange(128)).total.item() == pytest.approx(51.2, abs=1e-3)


@settings(max_examples=60)
@given(
    seed=seeds,
    pairs=pair_counts,
    views=view_counts,
    negatives=st.sampled_from(["hardest", "all"]),
    mask=st.booleans(),
)
def test_against_a_loop_over_triplets(seed, pairs, views, negatives, mask):
    images, texts, ids = random_batch(seed, pairs, views)
    options = {"margin": 0.3, "negatives": negatives, "mask_same_image": mask}
    result, mean = (build_loss("triplet", **options, reduction=each)(images, texts, ids) for each in ("sum", "mean"))
    expected = oracles.multi_view(nested(images, texts), ids.tolist(), "max", 0.3, negatives, mask, lam=0.0)
    assert result.total.item() == pytest.approx(expected, abs=1e-9)
    assert result.total.item() == pytest.approx(float(result.parts["image_to_text"] + result.parts["text_to_image"]))
    assert mean.total.item() == pytest.approx(expected / pairs, abs=1e-9)


@pytest.mark.parametrize("negatives", ["hardest", "all"])
def test_the_share_of_active_hinges(negatives: str):
    sims = torch.tensor([[0.5, 0.4, 0.1], [0.3, 0.4, 0.3], [0.0, 0.0, 0.9]])
    captions = [[0.2 + sims[i, j] - sims[i, i] for j in range(3) if j != i] for i in range(3)]
    images = [[0.2 + sims[i, j] - sims[j, j] for i in range(3) if j != i] for j in range(3)]
    if negatives == "all":
        naive = [term > 0 for row in captions + images for term in row]
    else:
        naive = [max(row) > 0 for row in captions + images]
    loss = build_loss("triplet", margin=0.2, negatives=negatives)
    found = loss(*embeddings_with(sims), torch.arange(3)).parts["active_hinges"]
    assert found.item() == pytest.approx(sum(naive) / len(naive))
    assert 0 < found < 1


def test_the_hardest_negatives_are_averaged_over_the_images_that_have_one():
    sims = torch.tensor([[0.5, 0.4, 0.1], [0.3, 0.4, 0.3], [0.0, 0.7, 0.9]])

    def found(ids: list[int]) -> dict[str, torch.Tensor]:
        return pair_similarities(GlobalPairs(*embeddings_with(sims), torch.tensor(ids), [3], mask_same_image=True))

    assert found([0, 1, 2])["positive_similarity"].item() == pytest.approx((0.5 + 0.4 + 0.9) / 3)
    assert found([0, 1, 2])["hardest_negative_similarity"].item() == pytest.approx((0.4 + 0.3 + 0.7) / 3)
    assert found([0, 1, 1])["hardest_negative_similarity"].item() == pytest.approx((0.4 + 0.3 + 0.0) / 3)
    assert found([0, 0, 0])["hardest_negative_similarity"] == 0, "there is none"
