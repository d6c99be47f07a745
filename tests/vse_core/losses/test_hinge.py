"""The triplet loss against published numbers and a loop over all triplets."""

import pytest
import torch

from tests.vse_core.losses.batches import S, embeddings_with
from vse_core.losses import build_loss
from vse_core.losses.global_pairs import GlobalPairs, pair_similarities


def hinge_oracle(sims: torch.Tensor, ids: list[int], margin: float, negatives: str, mask: bool) -> float:
    total = 0.0
    count = len(ids)
    for anchor in range(count):
        others = [j for j in range(count) if j != anchor and not (mask and ids[j] == ids[anchor])]
        captions = [max(0.0, margin + float(sims[anchor, j] - sims[anchor, anchor])) for j in others]
        images = [max(0.0, margin + float(sims[j, anchor] - sims[anchor, anchor])) for j in others]
        for terms in (captions, images):
            total += max(terms, default=0.0) if negatives == "hardest" else sum(terms)
    return total


@pytest.mark.parametrize(("negatives", "expected"), [("all", 2.15), ("hardest", 1.40)])
def test_recorded_values(negatives: str, expected: float):
    loss = build_loss("triplet", margin=0.2, negatives=negatives)
    assert loss(*embeddings_with(S), torch.arange(3)).total.item() == pytest.approx(expected, abs=1e-6)


def test_collapse_plateau():
    vectors = torch.nn.functional.normalize(torch.ones(128, 8), dim=-1)
    loss = build_loss("triplet", margin=0.2)
    assert loss(vectors.unsqueeze(1), vectors, torch.arange(128)).total.item() == pytest.approx(51.2, abs=1e-3)


@pytest.mark.parametrize("views", [1, 3])
@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("negatives", ["all", "hardest"])
def test_against_a_loop_over_triplets(negatives: str, mask: bool, views: int):
    generator = torch.Generator().manual_seed(5)
    images = torch.nn.functional.normalize(torch.randn(7, views, 4, generator=generator), dim=-1)
    texts = torch.nn.functional.normalize(torch.randn(7, 4, generator=generator), dim=-1)
    ids = [0, 1, 1, 2, 3, 3, 3]
    sims = torch.tensor([[max(float(view @ text) for view in image) for text in texts] for image in images])
    loss = build_loss("triplet", margin=0.3, negatives=negatives, mask_same_image=mask)
    result = loss(images, texts, torch.tensor(ids))
    assert result.total.item() == pytest.approx(hinge_oracle(sims, ids, 0.3, negatives, mask), abs=1e-5)
    assert result.total.item() == pytest.approx(float(result.parts["image_to_text"] + result.parts["text_to_image"]))
    mean = build_loss("triplet", margin=0.3, negatives=negatives, mask_same_image=mask, reduction="mean")
    assert mean(images, texts, torch.tensor(ids)).total.item() == pytest.approx(result.total.item() / 7, abs=1e-6)


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
    assert found([0, 0, 0])["hardest_negative_similarity"].isnan()
