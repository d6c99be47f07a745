"""The figures of trainings show what they were given."""

from __future__ import annotations

from typing import Any

import pytest

from vse_core.evaluation.plots import plot_convergence, plot_negatives


def test_convergence_has_a_line_and_a_star_for_each_run() -> None:
    (axes,) = plot_convergence({"adopt": [100.0, 240.0, 230.0], "triplet": [50.0, 150.0]}, "dev").axes
    lines = [line for line in axes.get_lines() if not line.get_label().startswith("_")]
    assert [(list(line.get_xdata()), list(line.get_ydata())) for line in lines] == [
        ([1, 2, 3], [100.0, 240.0, 230.0]),
        ([1, 2], [50.0, 150.0]),
    ]
    assert lines[0].get_label() == "adopt: best 240.0 after epoch 2"
    assert len({line.get_linestyle() for line in lines}) == len({line.get_marker() for line in lines}) == 2
    stars = [line for line in axes.get_lines() if line.get_marker() == "*"]
    assert [(line.get_xdata()[0], line.get_ydata()[0]) for line in stars] == [(2, 240.0), (2, 150.0)]
    assert axes.get_ylabel() == "RSUM on dev (%, of 600)"


@pytest.mark.parametrize("rsums", [{}, {"a": []}, {str(number): [1.0] for number in range(6)}])
def test_convergence_needs_runs_that_can_be_told_apart(rsums: Any) -> None:
    with pytest.raises(ValueError, match="1 to 5 runs of one epoch"):
        plot_convergence(rsums, "dev")


def test_negatives_are_drawn_as_they_are() -> None:
    (axes,) = plot_negatives({"a": ([10, 20, 30], [100.0, 8.0, 4.0])}).axes
    (line,) = axes.get_lines()
    assert (list(line.get_xdata()), list(line.get_ydata())) == ([10, 20, 30], [100.0, 8.0, 4.0])
    assert line.get_label() == "a: 100 at first, 4 at last"
    assert axes.get_ylim()[0] == 0
    with pytest.raises(ValueError, match="1 to 5 runs of one step"):
        plot_negatives({"a": ([], [])})
