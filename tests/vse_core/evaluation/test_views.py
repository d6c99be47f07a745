"""Statistics of views against plain loops, and the panels against their inputs."""

from __future__ import annotations

import pytest
import torch
from matplotlib.axes import Axes

from vse_core.evaluation.views import ViewSummary, chosen_views, plot_view_diversity, view_similarity


def unit(*shape: int) -> torch.Tensor:
    vectors = torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))
    return vectors / vectors.norm(dim=-1, keepdim=True)


def dot(one: list[float], other: list[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


def test_chosen_views_are_the_nearest_of_the_captions_own_image() -> None:
    images, texts, image_of = unit(5, 3, 8), unit(12, 8), torch.tensor([0, 0, 0, 1, 1, 2, 2, 2, 3, 4, 4, 4])
    naive = []
    for caption, image in zip(texts.tolist(), image_of.tolist(), strict=True):
        scores = [dot(view, caption) for view in images[image].tolist()]
        naive.append(scores.index(max(scores)))
    assert chosen_views(images, texts, image_of).tolist() == naive
    assert len(set(naive)) > 1


def test_view_similarity_is_the_mean_over_pairs_of_views() -> None:
    images = unit(4, 3, 8)
    pairs = [
        dot(views[one], views[other])
        for views in images.tolist()
        for one in range(3)
        for other in range(3)
        if one != other
    ]
    assert view_similarity(images) == pytest.approx(sum(pairs) / len(pairs), abs=1e-6)
    with pytest.raises(ValueError, match="two views at least"):
        view_similarity(images[:, :1])


def heights(axes: Axes) -> list[float]:
    return [bar.get_height() for container in axes.containers for bar in container]


def test_the_choice_of_a_single_model_is_bars_that_differ_in_more_than_colour() -> None:
    models = [ViewSummary("mv/1", 0.7, [0.5, 0.3, 0.2], 0.81, 240.0)]
    figure = plot_view_diversity(models, models)
    (axes,) = figure.axes
    assert heights(axes) == pytest.approx([50.0, 30.0, 20.0])
    assert len({bar.get_hatch() for container in axes.containers for bar in container}) == 3
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("view", "captions nearest to it (%)")
    assert axes.get_title() == "mv/1, λ = 0.7\nmean cosine of two views 0.810"


def test_of_two_sweeps_each_has_its_curve_and_the_choice_is_drawn_of_those_that_are_asked_for() -> None:
    views = [ViewSummary(f"K {k}", 0.7, [1 / k] * k, 0.5 if k > 1 else None, 240.0 + k) for k in (1, 2, 3)]
    lambdas = [ViewSummary(f"λ {lam}", lam, [1 / 3] * 3, lam, 200.0 + lam) for lam in (0.0, 0.3, 1.0)]
    over_views, over_lambda, similarity, *bars = plot_view_diversity([*views, *lambdas], lambdas[2:]).axes
    (line,) = over_views.get_lines()
    assert (list(line.get_xdata()), list(line.get_ydata())) == ([1.0, 2.0, 3.0], [241.0, 242.0, 243.0])
    (line,) = over_lambda.get_lines()
    assert (list(line.get_xdata()), list(line.get_ydata())) == ([0.0, 0.3, 0.7, 1.0], [200.0, 200.3, 243.0, 201.0])
    (line,) = similarity.get_lines()
    assert list(line.get_ydata()) == [0.0, 0.3, 0.5, 1.0]
    assert [axes.get_title().partition(",")[0] for axes in bars] == ["λ 1.0"]


def test_models_that_differ_in_more_than_one_thing_have_no_curve() -> None:
    models = [ViewSummary("one", None, [1.0], None, 250.0), ViewSummary("two", 0.7, [0.5, 0.5], 0.6, 240.0)]
    assert len(plot_view_diversity(models, models).axes) == 2
