"""What figures draw is what the columns of their tables have: read back off the axes, from tables that are made up."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from scipy.special import ndtri

from grpo_theory.page.style import ESTIMATORS, points
from paper_figures import efficiency, gap_bounds, gap_quantiles, three_questions


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def test_quantiles_have_the_prediction_across_and_the_estimate_upwards():
    levels = np.linspace(0.1, 2.0, 7)
    at = {"quantity": "quantile", "batch_size": 1, "group_size": 4, "factor": gap_quantiles.FACTOR, "problem": "kl-tabular"}
    table = pd.DataFrame({"prediction": levels, "estimate": levels**2, "estimator": "rloo"}).assign(**at)
    figure = gap_quantiles.draw({"limit_law": table})
    drawn = [line for axes in figure.axes for line in axes.get_lines() if line.get_marker() == ESTIMATORS["rloo"].marker]
    (line,) = (line for line in drawn if len(line.get_xdata()) == len(levels))
    np.testing.assert_allclose(line.get_xdata(), levels)
    np.testing.assert_allclose(line.get_ydata(), levels**2)


def test_bands_of_the_gap_are_as_wide_as_all_intervals_of_a_panel_together_want():
    steps, error = np.array([1.0, 4.0, 16.0, 64.0]), 0.01
    common = {"problem": "kl-tabular", "estimator": "rloo"}
    table = pd.DataFrame({"n": steps, "estimate": 1.0 / steps, "standard_error": error / steps})
    parts = [
        table.assign(quantity=quantity, schedule=schedule, bound=2.0 / steps, iterated=1.5 / steps, **common)
        for quantity in ("gap", "law")
        for schedule in gap_bounds.ROWS
    ]
    figure = gap_bounds.draw({"training_gap": pd.concat(parts, ignore_index=True)})
    wide = -float(ndtri(0.0005 / len(steps)))
    assert len(figure.axes) == 2
    for axes in figure.axes:
        (band,) = axes.collections
        corners = band.get_paths()[0].vertices
        for n in steps:
            ends = corners[np.isclose(corners[:, 0], n), 1]
            assert ends.max() == pytest.approx((1.0 + wide * error) / n, rel=1e-9)
            assert ends.min() == pytest.approx((1.0 - wide * error) / n, rel=1e-9)


def test_points_have_95_percent_intervals():
    _, axes = plt.subplots()
    points(axes, [1.0, 2.0], [5.0, 6.0], [0.5, 0.25], ESTIMATORS["rloo"])
    (bars,) = (found for found in axes.collections if len(found.get_segments()) == 2)
    halves = [np.ptp(segment[:, 1]) / 2.0 for segment in bars.get_segments()]
    np.testing.assert_allclose(halves, [0.5 * 1.959964, 0.25 * 1.959964], rtol=1e-6)


def efficiencies():
    """Return a table in which each estimator is best at another size, and the second is twice as efficient as the first."""
    rows = [
        ("lm-few-shot", name, size, "efficiency", height * value)
        for name, best, height in (("rloo", 4, 0.2), ("grpo", 8, 0.4), ("reinforce", 2, 0.1), ("max_rl", 16, 0.3))
        for size in (2, 4, 8, 16)
        for value in (1.0 if size == best else 0.5,)
    ]
    return pd.DataFrame(rows, columns=["problem", "estimator", "group_size", "quantity", "estimate"])


def test_the_large_marks_of_efficiency_are_at_the_best_size():
    (axes, *_) = efficiency.draw({"efficiency": efficiencies()}).axes
    marks = [tuple(float(number) for number in line.get_xydata()[0]) for line in axes.get_lines() if len(line.get_xdata()) == 1]
    np.testing.assert_allclose(sorted(marks), [(2.0, 0.1), (4.0, 0.2), (8.0, 0.4), (16.0, 0.3)])


def test_efficiencies_of_the_first_question_are_relative_to_the_best_of_the_leave_one_out_mean():
    _, axes = plt.subplots()
    three_questions.group_sizes(axes, efficiencies())
    marks = [tuple(float(number) for number in line.get_xydata()[0]) for line in axes.get_lines() if len(line.get_xdata()) == 1]
    np.testing.assert_allclose(sorted(marks), [(4.0, 1.0), (8.0, 2.0)])
