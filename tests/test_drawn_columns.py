"""What figures draw is what the columns of their tables have: read back off the axes, from tables that are made up."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from scipy.special import ndtri

from grpo_theory.page.style import ESTIMATORS, points
from paper_figures import efficiency, gap_bounds, gap_quantiles, group_size_schedule, three_questions
from paper_figures.content.phase_windows import shade, tell


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def test_quantiles_have_the_prediction_across_and_the_estimate_upwards():
    levels = np.geomspace(0.1, 2.0, 7)  # as many as are drawn
    at = {"quantity": "quantile", "batch_size": 1, "group_size": 4, "factor": gap_quantiles.FACTOR, "problem": "kl-tabular"}
    table = pd.DataFrame({"prediction": levels, "estimate": levels**2, "estimator": "rloo"}).assign(**at)
    figure = gap_quantiles.draw({"limit_law": table})
    drawn = [line for axes in figure.axes for line in axes.get_lines() if line.get_marker() == ESTIMATORS["rloo"].marker]
    (line,) = (line for line in drawn if len(line.get_xdata()) == len(levels))
    np.testing.assert_allclose(line.get_xdata(), levels)
    np.testing.assert_allclose(line.get_ydata(), levels**2)


def test_intervals_of_the_gap_are_as_wide_as_all_intervals_of_a_panel_together_want():
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
        (bars,) = axes.collections
        ends = np.array([segment[:, 1] for segment in bars.get_segments()])
        np.testing.assert_allclose(ends.max(axis=1), (1.0 + wide * error) / steps, rtol=1e-9)
        np.testing.assert_allclose(ends.min(axis=1), (1.0 - wide * error) / steps, rtol=1e-9)


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


def test_losses_of_plans_are_over_the_measured_loss_of_the_best_fixed_size():
    """They were over its prediction once, so that it lay beside itself."""
    losses = {"start": (8.0, 6.0), "fixed": (4.0, 5.0), "current": (2.0, 5.5), "ahead": (3.0, 4.0)}
    rows = [
        {"problem": problem, "plan": plan, "step": step, "group_size": 4, "estimate": estimate, "prediction": prediction}
        for problem in group_size_schedule.TITLES
        for plan, (estimate, prediction) in losses.items()
        for step in (1, 2)
    ]
    table = pd.DataFrame(rows).assign(standard_error=0.1)
    right = group_size_schedule.draw({"group_size_schedule": table}).axes[1]
    marks = {look.marker: plan for plan, look in group_size_schedule.LOOKS.items()}
    drawn = {marks[line.get_marker()]: line.get_xdata()[0] for line in right.lines if line.get_marker() in marks}
    assert drawn == pytest.approx({plan: estimate / 4.0 for plan, (estimate, _) in losses.items()})
    strokes = [line.get_xdata()[0] for line in right.lines if line.get_marker() == "|" and line.get_markersize() > 20.0]
    assert strokes == pytest.approx([prediction / 5.0 for _, prediction in losses.values()])
    halves = [np.ptp(bar.get_segments()[0][:, 0]) / 2.0 for bar in right.collections]
    start = 2.0 * 1.959964 * np.hypot(0.1 / 8.0, 0.1 / 4.0)
    assert halves[:2] == pytest.approx([start, 0.0], rel=1e-6)


def test_a_phase_is_named_in_the_middle_of_each_stretch_of_it():
    _, axes = plt.subplots()
    axes.set_xscale("log")
    windows = pd.DataFrame({"update": [0, 10, 40, 90, 160], "until": [10, 40, 90, 160, 640], "phase": ["", "I", "I", "III", "I"]})
    shade(axes, windows, first=5.0)
    tell(axes, windows, first=5.0)
    spans = [tuple(patch.get_extents().transformed(axes.transData.inverted()).intervalx) for patch in axes.patches]
    np.testing.assert_allclose(spans, [(10.0, 90.0), (90.0, 160.0), (160.0, 640.0)], rtol=1e-9)
    assert [text.get_text() for text in axes.texts] == ["I", "III", "I"]
    np.testing.assert_allclose([text.get_position()[0] for text in axes.texts], [30.0, 120.0, 320.0], rtol=1e-9)
