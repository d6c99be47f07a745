"""The figures show the numbers they were given, with labels."""

import io

from matplotlib.axes import Axes
from PIL import Image

from vse_core.evaluation.plots import plot_gpo_coefficients, plot_loss_curve, plot_recall_curves


def losses(*values: float) -> list[dict[str, float]]:
    return [{"step": 10 * place, "loss": value} for place, value in enumerate(values, start=1)]


def result(**changes: float) -> dict[str, float]:
    recalls = {"i2t_r01": 20.0, "i2t_r05": 45.0, "i2t_r10": 60.0, "t2i_r01": 15.0, "t2i_r05": 40.0, "t2i_r10": 55.0}
    recalls |= changes
    return {**recalls, "rsum": sum(recalls.values()), "i2t_median_rank": 7.0}


def line(axes: Axes, label: str) -> tuple[list[float], list[float]]:
    (found,) = [line for line in axes.get_lines() if line.get_label() == label]
    return list(found.get_xdata()), list(found.get_ydata())


def labels(axes: Axes) -> list[str]:
    legend = axes.get_legend()
    return [] if legend is None else [text.get_text() for text in legend.get_texts()]


def test_loss_curve_is_linear_from_zero_for_a_narrow_range() -> None:
    (axes,) = plot_loss_curve(losses(9.0, 7.0, 6.0)).axes
    assert line(axes, "loss") == ([10, 20, 30], [9.0, 7.0, 6.0])
    assert axes.get_yscale() == "linear"
    assert axes.get_ylim()[0] == 0
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("optimiser step", "loss")


def test_loss_curve_is_logarithmic_for_a_wide_range_and_marks_the_change_of_negatives() -> None:
    (axes,) = plot_loss_curve(losses(3000.0, 900.0, 45.0), all_negatives_steps=20, plateau=51.2).axes
    assert axes.get_yscale() == "log"
    assert "log" in axes.get_ylabel()
    assert line(axes, "hardest negatives after step 20")[0] == [20, 20]
    assert line(axes, "level of a collapsed model: 51.2")[1] == [51.2, 51.2]


def test_loss_curve_with_a_zero_stays_linear() -> None:
    (axes,) = plot_loss_curve(losses(100.0, 0.0)).axes
    assert axes.get_yscale() == "linear"


def test_long_loss_curve_adds_a_running_median() -> None:
    values = [10.0] * 99 + [1000.0]
    (axes,) = plot_loss_curve(losses(*values)).axes
    assert line(axes, "loss of a step")[1] == values
    assert max(line(axes, "median of 5 points")[1]) <= 1000.0
    assert line(axes, "median of 5 points")[1][50] == 10.0


def test_recall_curves_show_both_directions_and_the_best_epoch() -> None:
    history = [result(), result(i2t_r01=40.0), result(i2t_r01=30.0)]
    left, middle, right = plot_recall_curves(history, chance=3.2).axes
    assert line(left, "R@1") == ([1, 2, 3], [20.0, 40.0, 30.0])
    assert line(middle, "R@10")[1] == [55.0, 55.0, 55.0]
    assert line(right, "RSUM")[1] == [one["rsum"] for one in history]
    assert line(right, "best: 255.0 in epoch 2") == ([2], [255.0])
    assert "chance: 3.2" in labels(right)
    assert left.get_ylim() == middle.get_ylim()
    assert all(axes.get_xlabel() == "epoch" for axes in (left, middle, right))
    assert left.get_ylabel() == "recall (%)"
    assert max(left.get_yticks()) <= 100


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


def test_figures_can_be_saved_without_a_display() -> None:
    file = io.BytesIO()
    plot_recall_curves([result()]).savefig(file, format="png")
    assert Image.open(file).width > 800
