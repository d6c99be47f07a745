"""Regions and images of UniVSE: the projection, its aggregate, and that padding and order do not matter."""

from typing import Any

import pytest
import torch

from vse_core.encoders.image import RegionEncoder
from vse_core.pooling import build_pooling


def make_encoder(**pooling: object) -> RegionEncoder:
    torch.manual_seed(0)
    return RegionEncoder(5, 8, build_pooling(dim=8, **({"name": "kmax", "k": 3} | pooling)))


FEATURES, LENGTHS = torch.randn(3, 6, 5, generator=torch.Generator().manual_seed(1)), torch.tensor([6, 2, 4])


def test_image_by_image() -> None:
    encoder = make_encoder()
    images, regions, mask = encoder.images_and_regions(FEATURES, LENGTHS)
    assert images.shape == (3, 1, 8)
    for b, length in enumerate(LENGTHS.tolist()):
        rows = FEATURES[b, :length] @ encoder.projection.weight.T
        top = rows.sort(dim=0, descending=True).values[:3].mean(dim=0)
        torch.testing.assert_close(images[b, 0], top / top.norm())
        torch.testing.assert_close(regions[b, :length], rows / rows.norm(dim=1, keepdim=True))
        assert mask[b].tolist() == [True] * length + [False] * (6 - length)
    torch.testing.assert_close(encoder(FEATURES, LENGTHS), images)
    torch.testing.assert_close(encoder.images_and_regions(FEATURES, LENGTHS)[1:], (regions, mask))
    assert [name for name, _ in encoder.named_parameters()] == ["projection.weight"]


@pytest.mark.parametrize("center", [False, True, "regions"])
@pytest.mark.parametrize("name", ["kmax", "mean", "gpo"])
def test_padding_never_changes_an_image_or_a_region_or_a_gradient(name: str, center: Any) -> None:
    pooling = build_pooling(name, dim=8, **({"k": 3} if name == "kmax" else {}))
    encoder = RegionEncoder(5, 8, pooling, center)
    if center:
        encoder.center.mean_F = torch.randn(5)
    padded = torch.cat([FEATURES, torch.zeros(3, 4, 5)], dim=1)
    for b, length in enumerate(LENGTHS.tolist()):
        padded[b, length:] = float("nan")
    found = []
    for features in (FEATURES, padded):
        images, regions, _ = encoder.images_and_regions(features, LENGTHS)
        (images.square().sum() + (regions[:, :6] * regions[:, :6].detach().roll(1, -1)).sum()).backward()
        found.append((images, regions[:, :6], encoder.projection.weight.grad.clone()))
        encoder.zero_grad()
    torch.testing.assert_close(found[0], found[1])


def test_the_order_of_regions_does_not_matter_to_the_image() -> None:
    encoder, order = make_encoder(), torch.tensor([4, 2, 0, 5, 1, 3])
    full = torch.full((3,), 6)
    images, regions, _ = encoder.images_and_regions(FEATURES, full)
    shuffled_images, shuffled_regions, _ = encoder.images_and_regions(FEATURES[:, order], full)
    torch.testing.assert_close(shuffled_images, images)
    torch.testing.assert_close(shuffled_regions, regions[:, order])


def test_empty_sets_are_refused() -> None:
    with pytest.raises(ValueError, match="sample 1 of the batch has length 0"):
        make_encoder().images_and_regions(FEATURES, torch.tensor([6, 0, 4]))


def test_cells_that_a_backbone_left_at_zero() -> None:
    encoder, features = make_encoder(), FEATURES[:1].clone()
    features[0, 2] = 0
    found = []
    for cells in (features, features[:, [0, 1, 3, 4, 5]]):
        _, regions, mask = encoder.images_and_regions(cells, torch.tensor([cells.shape[1]]))
        assert mask.all()
        regions.sum().backward()
        found.append(encoder.projection.weight.grad.clone())
        encoder.zero_grad()
        if cells is features:
            assert regions[0, 2].eq(0).all()
    torch.testing.assert_close(found[0], found[1])
