"""The features of an image in the joint space, one by one."""

from __future__ import annotations

import pytest
import torch

from vse_core.encoders.image import FeatureEncoder
from vse_core.pooling import build_pooling


@pytest.mark.parametrize(("projections", "mlp"), [(1, True), (1, False), (3, False)])
def test_a_region_by_itself_is_the_image_of_that_region_alone(projections: int, mlp: bool) -> None:
    torch.manual_seed(0)
    encoder = FeatureEncoder(6, 4, build_pooling("mean", dim=4), mlp=mlp, projections=projections).eval()
    features, lengths = torch.randn(2, 5, 6), torch.tensor([5, 3])
    regions, mask = encoder.regions(features, lengths)
    assert regions.shape == (2, projections, 5, 4)
    assert mask.tolist() == [[True] * 5, [True] * 3 + [False] * 2]
    for image, length in enumerate(lengths.tolist()):
        for place in range(length):
            alone = encoder(features[image, place].reshape(1, 1, 6), torch.tensor([1]))[0]
            torch.testing.assert_close(regions[image, :, place], alone, atol=1e-6, rtol=0)
