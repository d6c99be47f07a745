"""The hub correction against loops in float64."""

import math

import pytest
import torch
from torch import Tensor, nn

from vse_core.evaluation import hubs
from vse_core.evaluation.hubs import corrected, hub_bias, with_bias, with_one
from vse_core.evaluation.recall import rank_retrieval


def unit(*shape: int, seed: int) -> Tensor:
    return nn.functional.normalize(torch.randn(*shape, generator=torch.Generator().manual_seed(seed)), dim=-1)


def similarity(query_VD: Tensor, item_KD: Tensor) -> float:
    return max(float(q.double() @ g.double()) for q in query_VD for g in item_KD)


def bias(item_KD: Tensor, bank_MVD: Tensor, temperature: float) -> float:
    return temperature * math.log(sum(math.exp(similarity(query, item_KD) / temperature) for query in bank_MVD))


@pytest.mark.parametrize("elements", [1, 50, 2**24])
@pytest.mark.parametrize(("views", "bank_views"), [(1, 1), (3, 1), (1, 2)])
def test_the_bias_is_that_of_a_loop(
    views: int, bank_views: int, elements: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hubs, "_BLOCK_ELEMENTS", elements)
    items_BKD, bank_MVD = unit(7, views, 8, seed=0), unit(11, bank_views, 8, seed=1)
    expected = [bias(item, bank_MVD, 0.05) for item in items_BKD]
    torch.testing.assert_close(hub_bias(items_BKD, bank_MVD, 0.05), torch.tensor(expected), atol=2e-6, rtol=0)


def test_one_more_dimension_subtracts_the_bias() -> None:
    items_BKD, queries_QVD, bias_B = unit(5, 2, 8, seed=0), unit(3, 1, 8, seed=1), torch.arange(5) / 7
    products = torch.einsum("qvd,bkd->qbvk", with_one(queries_QVD), with_bias(items_BKD, bias_B)).amax(dim=(2, 3))
    expected = [
        [similarity(query, item) - float(b) for item, b in zip(items_BKD, bias_B, strict=True)] for query in queries_QVD
    ]
    torch.testing.assert_close(products, torch.tensor(expected), atol=1e-6, rtol=0)


def test_one_pass_ranks_both_directions_with_their_corrections() -> None:
    images_BKD, texts_CD = unit(6, 2, 8, seed=0), unit(12, 8, seed=1)
    of_images_B, of_texts_C = torch.rand(6) / 2, torch.rand(12) / 2
    ranks = rank_retrieval([corrected(images_BKD, texts_CD, of_images_B, of_texts_C)], 2)[1]
    sims = torch.tensor([[similarity(text.unsqueeze(0), image) for text in texts_CD] for image in images_BKD])
    for image in range(6):
        scores = sims[image] - of_texts_C
        best = max(scores[2 * image], scores[2 * image + 1])
        assert int(ranks.image_to_text.ranks_Q[image]) == int((scores > best).sum())
    for caption in range(12):
        scores = sims[:, caption] - of_images_B
        assert int(ranks.text_to_image.ranks_Q[caption]) == int((scores > scores[caption // 2]).sum())
