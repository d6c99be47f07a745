"""The figures of robustness show the numbers they were given, with labels."""

import io

from matplotlib.axes import Axes
from PIL import Image

from vse_core.evaluation.attack_plots import plot_alpha_sweep, plot_attacks
from vse_core.evaluation.recall import DirectionMetrics

ALPHAS = [0.0, 0.5, 0.75, 1.0]


def metrics(r01: float, r05: float = 50.0, r10: float = 60.0) -> DirectionMetrics:
    return DirectionMetrics(r01, r05, r10, median_rank=1.0, mean_rank=1.0, ties=0)


def labels(axes: Axes) -> list[str]:
    legend = axes.get_legend()
    return [] if legend is None else [text.get_text() for text in legend.get_texts()]


def test_sweep_stars_the_maximum_of_every_curve() -> None:
    panels = {
        "Without attack": {"image to text": [50.0, 60.0, 62.0, 61.0]},
        "Under attack": {"object": [40.0, 45.0, 44.0, 30.0], "relation": [20.0, 21.0, 22.0, 23.5]},
    }
    left, right = plot_alpha_sweep(ALPHAS, panels, chosen=0.75).axes
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


def test_sweep_names_its_quantity_and_leaves_the_line_out() -> None:
    (axes,) = plot_alpha_sweep([0.0, 1.0], {"Dev": {"RSUM": [300.0, 310.0]}}, quantity="RSUM").axes
    assert axes.get_ylabel() == "RSUM"
    assert labels(axes) == ["RSUM: best 310.0 at α = 1"]


def test_every_attack_has_a_bar_in_each_panel() -> None:
    figure = plot_attacks({"object": metrics(32.3), "attribute": metrics(19.8, 59.4, 76.0)})
    assert [axes.get_ylabel() for axes in figure.axes] == ["R@1 (%)", "R@5 (%)", "R@10 (%)"]
    heights = [[bar.get_height() for bar in axes.containers[0].patches] for axes in figure.axes]
    assert heights == [[32.3, 19.8], [50.0, 59.4], [60.0, 76.0]]
    assert [text.get_text() for text in figure.axes[2].get_xticklabels()] == ["object", "attribute"]
    assert {"32.3", "19.8"} <= {text.get_text() for text in figure.axes[0].texts}


def test_figures_can_be_saved_without_a_display() -> None:
    file = io.BytesIO()
    plot_attacks({"object": metrics(0.0, 0.0, 0.0)}).savefig(file, format="png")
    assert Image.open(file).width > 300
