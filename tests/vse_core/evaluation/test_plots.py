"""The figures show the numbers they were given, with labels."""

from matplotlib.axes import Axes

from vse_core.evaluation.plots import plot_alpha_sweep, plot_gpo_coefficients

ALPHAS = [0.0, 0.5, 0.75, 1.0]


def line(axes: Axes, label: str) -> tuple[list[float], list[float]]:
    (found,) = [line for line in axes.get_lines() if line.get_label() == label]
    return list(found.get_xdata()), list(found.get_ydata())


def labels(axes: Axes) -> list[str]:
    legend = axes.get_legend()
    return [] if legend is None else [text.get_text() for text in legend.get_texts()]


def test_gpo_coefficients_show_weights_by_rank_with_mean_pooling_beside_them() -> None:
    left, right = plot_gpo_coefficients({2: [0.3, 0.2], 4: [0.1, 0.2, 0.3, 0.1]}, {1: [1.0]}).axes
    assert line(left, "N = 2") == ([1, 2], [0.3, 0.2])
    assert line(left, "N = 4")[0] == [1, 2, 3, 4]
    drawn = [list(found.get_ydata()) for found in left.get_lines()]
    assert [0.5, 0.5] in drawn
    assert [0.25, 0.25] in drawn
    assert {"mean pooling: 1/N", "max pooling: 1 at rank 1"} <= set(labels(left))
    assert 1 in left.get_xticks()
    assert line(right, "max pooling: 1 at rank 1") == ([1], [1])
    assert "rank" in left.get_xlabel()
    assert left.get_ylabel() == "weight"


def test_gpo_coefficients_say_which_side_has_none() -> None:
    left, right = plot_gpo_coefficients({2: [0.5, 0.5]}, None).axes
    assert [text.get_text() for text in right.texts] == ["not pooled by GPO"]
    assert line(left, "N = 2")[1] == [0.5, 0.5]


def test_sweep_stars_the_maximum_of_every_curve() -> None:
    panels = {
        "Without attack": {"image to text": [50.0, 60.0, 62.0, 61.0]},
        "Under attack": {"object": [40.0, 45.0, 44.0, 30.0], "relation": [20.0, 21.0, 22.0, 23.5]},
    }
    left, right = plot_alpha_sweep(ALPHAS, panels, "R@1 (%)", chosen=0.75).axes
    assert (left.get_title(), right.get_title()) == ("Without attack", "Under attack")
    assert labels(left) == ["image to text: best 62.0 at α = 0.75", "in use: α = 0.75"]
    assert labels(right)[:2] == ["object: best 45.0 at α = 0.5", "relation: best 23.5 at α = 1"]
    drawn = [(list(line.get_xdata()), list(line.get_ydata())) for line in right.get_lines()]
    assert (ALPHAS, panels["Under attack"]["object"]) in drawn
    assert ([0.5], [45.0]) in drawn
    assert ([1.0], [23.5]) in drawn
    assert [0.75, 0.75] in [x for x, _ in drawn]
    assert right.get_ylabel() == "R@1 (%)"
    assert "components alone" in right.get_xlabel()
    # Room below the lowest curve for the legend.
    assert right.get_ylim()[0] < 20 - 0.1 * (45 - 20)
