"""Relevance maps: the softmax against plain floats, and the panels against what they were given."""

import io
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.axes import Axes
from PIL import Image

from vse_core.evaluation.relevance_plots import plot_relevance, plot_retrieved
from vse_core.evaluation.unified import relevance

PHOTOGRAPH = np.random.default_rng(0).integers(0, 256, (60, 80, 3), dtype=np.uint8)


def maps(*rows: list[float]) -> torch.Tensor:
    values = torch.tensor(rows)
    return values / values.sum(dim=1, keepdim=True)


def heat(axes: Axes) -> np.ndarray:
    """Return the overlay on the photograph in a query's panel."""
    _, overlay = axes.get_images()
    return np.asarray(overlay.get_array())


@settings(max_examples=40)
@given(queries=st.integers(1, 4), regions=st.integers(1, 6), temperature=st.floats(0.02, 5), seed=st.integers(0, 99))
def test_relevance_is_a_softmax_over_regions(queries: int, regions: int, temperature: float, seed: int):
    generator = torch.Generator().manual_seed(seed)
    words, cells = torch.randn(queries, 3, generator=generator), torch.randn(regions, 3, generator=generator)
    found = relevance(words, cells, temperature).tolist()
    for row, word in zip(found, words.tolist(), strict=True):
        scores = [sum(a * b for a, b in zip(word, cell, strict=True)) / temperature for cell in cells.tolist()]
        shares = [math.exp(score - max(scores)) for score in scores]
        assert row == pytest.approx([share / sum(shares) for share in shares], abs=1e-5)


def test_grid_maps_show_the_photograph_first_and_share_a_scale():
    rows = maps([1.0, 2.0, 3.0, 4.0, 5.0, 9.0], [1.0] * 6)
    figure = plot_relevance(PHOTOGRAPH, ["black dog", "grass"], rows, (2, 3), similarities=[0.257, 0.1])
    photograph, first, second, bar = figure.axes
    assert photograph.get_title() == "photograph"
    (shown,) = photograph.get_images()
    assert np.array_equal(np.asarray(shown.get_array()), PHOTOGRAPH)
    assert first.get_title() == "“black dog”\nsimilarity 0.257"
    assert second.get_title() == "“grass”\nsimilarity 0.100"
    assert heat(first).shape == (60, 80)
    # Cells are 30 pixels high: pixel 14 still lies above the first cell's centre, 15 half a pixel below it.
    assert heat(first)[14, 0] == pytest.approx(6 * 1 / 24)
    assert heat(first)[15, 0] == pytest.approx(6 * (1 + (4 - 1) * 0.5 / 30) / 24)
    assert heat(first)[-1, -1] == pytest.approx(6 * 9 / 24)
    assert heat(second) == pytest.approx(np.ones((60, 80)))
    scales = [axes.get_images()[1].norm for axes in (first, second)]
    assert [(scale.vmin, scale.vmax) for scale in scales] == [(0.0, pytest.approx(2.25))] * 2
    assert "1 = evenly spread" in bar.get_ylabel()


def test_box_maps_show_the_most_relevant_box_of_a_pixel_and_outline_the_best():
    boxes = np.array([[0.0, 0.0, 40.0, 30.0], [20.0, 10.0, 60.0, 50.0], [-5.0, 50.0, 10.2, 99.0]])
    figure = plot_relevance(PHOTOGRAPH, ["dog"], maps([1.0, 3.0, 2.0]), boxes)
    axes = figure.axes[1]
    expected = np.zeros((60, 80))
    for y in range(60):
        for x in range(80):
            over = [
                3 * share / 6
                for share, (left, top, right, bottom) in zip((1, 3, 2), boxes, strict=True)
                if left <= x + 0.5 < right and top <= y + 0.5 < bottom
            ]
            expected[y, x] = max(over, default=0.0)
    assert heat(axes) == pytest.approx(expected)
    assert len(np.unique(expected)) == 4
    for outline in axes.patches:
        # imshow puts the centre of the first pixel at 0.
        assert (*outline.get_xy(), outline.get_width(), outline.get_height()) == (19.5, 9.5, 40.0, 40.0)
    assert len(axes.patches) == 1


@pytest.mark.parametrize(("queries", "rows"), [(1, 1), (4, 1), (5, 2), (9, 2), (10, 3)])
def test_many_queries_wrap_into_rows(queries: int, rows: int):
    figure = plot_relevance(PHOTOGRAPH, [f"query {place}" for place in range(queries)], torch.ones(queries, 4), (2, 2))
    assert len(figure.axes) == queries + 2
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=40)
    assert Image.open(file).width > 150
    assert len({round(axes.get_position().y1, 2) for axes in figure.axes[:-1]}) == rows


def test_a_long_query_is_wrapped():
    text = "a dog that chases another dog across a wide green field"
    figure = plot_relevance(PHOTOGRAPH, [text], torch.ones(1, 4), (2, 2))
    lines = figure.axes[1].get_title().split("\n")
    assert " ".join(lines) == f"“{text}”"
    assert max(len(line) for line in lines) <= 36


def test_retrieved_photographs_stand_above_their_maps_on_one_scale():
    other = PHOTOGRAPH[:40, :60]
    boxes = np.array([[0.0, 0.0, 30.0, 40.0], [30.0, 0.0, 60.0, 40.0]])
    rows = [maps([1.0, 1.0, 1.0, 1.0, 1.0, 7.0])[0], maps([1.0, 3.0])[0]]
    figure = plot_retrieved("black dog", [PHOTOGRAPH, other], rows, [(2, 3), boxes], [0.257, 0.1])
    first, second, below_first, below_second, bar = figure.axes
    for axes, photograph, title in ((first, PHOTOGRAPH, "1. similarity 0.257"), (second, other, "2. similarity 0.100")):
        (shown,) = axes.get_images()
        assert np.array_equal(np.asarray(shown.get_array()), photograph)
        assert axes.get_title() == title
    assert heat(below_first)[59, 79] == pytest.approx(6 * 7 / 12)
    assert heat(below_second)[0, 10] == pytest.approx(2 * 1 / 4)
    assert heat(below_second)[0, 50] == pytest.approx(2 * 3 / 4)
    assert len(below_second.patches) == 1  # the best box
    norms = [axes.get_images()[1].norm for axes in (below_first, below_second)]
    assert norms[0] is norms[1]
    assert norms[0].vmax == pytest.approx(3.5)
    assert figure.get_suptitle() == "“black dog”"
    assert bar.get_ylabel() == "relevance (1 = evenly spread)"
