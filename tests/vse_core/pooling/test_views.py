"""K views of a set are the K aggregators one by one, and cost one sort where they can."""

import pytest
import torch

from vse_core.pooling import base, build_pooling, build_views
from vse_core.pooling.base import MultiViewPooling

FEATURES, LENGTHS = torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(0)), torch.tensor([5, 1, 3])


@pytest.mark.parametrize("names", [["gpo", "gpo", "gpo"], ["gpo", "kmax"], ["mean", "gpo", "max"], ["mean"]])
def test_views_are_the_aggregators_one_by_one(names: list[str]):
    torch.manual_seed(0)
    parts = [build_pooling(name, 4) for name in names]
    pooled = MultiViewPooling(parts)(FEATURES, LENGTHS)
    assert pooled.shape == (3, len(names), 4)
    for k, part in enumerate(parts):
        torch.testing.assert_close(pooled[:, k], part(FEATURES, LENGTHS))


def test_views_by_rank_share_one_sort(monkeypatch: pytest.MonkeyPatch):
    sizes = []

    def counted(features: torch.Tensor, lengths: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        sizes.append(weights.shape)
        return features.new_zeros(3, 3, 4)

    monkeypatch.setattr(base, "rank_weighted_sum", counted)
    build_views(3, "gpo", 4)(FEATURES, LENGTHS)
    assert sizes == [(3, 3, 5)]


def test_one_view_is_the_aggregator_itself():
    assert build_views(1, "gpo", 4).state_dict().keys() == build_pooling("gpo", 4).state_dict().keys()
    with pytest.raises(ValueError, match="sample 1 of the batch has length 0"):
        build_views(2, "gpo", 4)(FEATURES, torch.tensor([5, 0, 3]))
