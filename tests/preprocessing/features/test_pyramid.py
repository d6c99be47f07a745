"""Regions of a spatial pyramid, against an average taken on a fine raster."""

import numpy as np

from preprocessing.features import TINY_RESNET, build_extractor
from preprocessing.features.grid import pyramid_boxes
from tests.preprocessing.features.arrays import arrays

SCENES = [f"scene://0/{index}" for index in range(3)]


def naive(map_Fhw: np.ndarray, box: tuple[float, float, float, float]) -> np.ndarray:
    """The average over the points of a fine raster that lie in the box."""
    _, height, width = map_Fhw.shape
    points = (np.arange(84 * 12) + 0.5) / (84 * 12)  # 84 divides into 7 cells, 12 into 1, 2, 3 and 4 boxes
    ys, xs = points[(points > box[1]) & (points < box[3])], points[(points > box[0]) & (points < box[2])]
    rows = np.bincount((ys * height).astype(int), minlength=height)
    columns = np.bincount((xs * width).astype(int), minlength=width)
    return (map_Fhw * np.outer(rows, columns)).sum((1, 2)) / (len(ys) * len(xs))


def test_thirty_boxes_cover_the_image_four_times() -> None:
    boxes = pyramid_boxes()
    assert boxes.shape == (30, 4)
    assert boxes[:5].tolist() == [
        [0, 0, 1, 1],
        [0, 0, 0.5, 0.5],
        [0.5, 0, 1, 0.5],
        [0, 0.5, 0.5, 1],
        [0.5, 0.5, 1, 1],
    ]
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    np.testing.assert_allclose([areas[:1].sum(), areas[1:5].sum(), areas[5:14].sum(), areas[14:].sum()], 1)


def test_each_vector_is_the_average_over_its_box() -> None:
    grid = build_extractor("grid", weights=TINY_RESNET, seed=0, image_size=112)
    pyramid = build_extractor("pyramid", weights=TINY_RESNET, seed=0, image_size=112)
    items = [pyramid.load(uri) for uri in SCENES]
    cells = [found.astype(np.float64) for found in arrays(grid, items)]
    assert cells[0].shape == (7 * 7, 192)
    for found, cells_NF in zip(arrays(pyramid, items), cells, strict=True):
        assert found.shape == (30, 192)
        assert found.dtype == np.float16
        map_Fhw = cells_NF.T.reshape(192, 7, 7)
        expected = [naive(map_Fhw, tuple(box)) for box in pyramid_boxes()]
        np.testing.assert_allclose(found, expected, rtol=4e-3, atol=2e-3)
    assert pyramid.name == "pyramid"
    assert pyramid.identity() == {**grid.identity(), "extractor": "pyramid"}
