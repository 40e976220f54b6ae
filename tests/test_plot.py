"""Pictures of results: what is drawn is what was computed, on the axes that were given."""

import re

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest

mpl.use("Agg")

import matplotlib.pyplot as plt

import grpo_theory as gt
from grpo_theory.page import style
from grpo_theory.plot.coverages import draw_intervals

PROBLEM = gt.gallery.problem("two-arms")
PILOT = gt.Pilot(batch_size=16, group_size=4)
SIZES = {"batch_size": 4, "group_size": 4, "steps": 8, "replications": 20}


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def record():
    truth = gt.objective(PROBLEM, PROBLEM.theta)
    return gt.coverage(gt.intervals.value_clustered, PROBLEM, truth, experiment=PILOT, replications=100, rng=0)


@pytest.fixture(scope="module")
def runs():
    step = gt.Constant(0.5)
    return gt.simulate_training(PROBLEM, PROBLEM.theta, "rloo", step, **SIZES, checkpoints=[1, 4, 8], rng=0)


def test_a_curve_has_the_exact_efficiencies():
    axes = gt.plot.efficiency(PROBLEM, PROBLEM.theta, ["rloo", "reinforce"], budget=16, group_sizes=[1, 2, 8])
    rloo, reinforce = axes.lines
    assert rloo.get_xdata().tolist() == [2, 8], "leave-one-out is not defined for groups of one"
    assert reinforce.get_xdata().tolist() == [1, 2, 8]
    expected = [gt.efficiency(PROBLEM, PROBLEM.theta, "rloo", batch_size=16 // size, group_size=size) for size in (2, 8)]
    np.testing.assert_allclose(rloo.get_ydata(), expected, rtol=1e-14)


def test_new_axes_have_the_report_s_colours_and_given_ones_their_own(runs):
    before = mpl.rcParams["axes.prop_cycle"]  # other tests of the session may have set a style
    assert gt.plot.training(runs).lines[0].get_color() == style.BLUE.lower() != before.by_key()["color"][0]
    axes = plt.figure().add_subplot()
    axes.set_prop_cycle(color=["#123456", "#654321"])
    lines = gt.plot.training({"one": runs, "another": runs}, axes=axes).lines
    assert [line.get_color() for line in lines if len(line.get_xdata())] == ["#123456", "#654321"]
    assert mpl.rcParams["axes.prop_cycle"] == before, "the session's style is as it was"


def test_a_plan_marks_the_sizes_that_may_be_best_and_the_user_s():
    """On the axis of no loss, so that neither the curve nor its limits are hidden."""
    pilot = gt.Pilot(batch_size=64, group_size=8)
    advice = gt.plan.advise(pilot.take(pilot.sample(gt.gallery.problem("linear"), 0, 1), 0), 1024, group_size=8)
    choice = advice.scores.choice
    curve, may, best, yours = gt.plot.plan(advice).lines
    drawn = curve.get_xdata().size
    np.testing.assert_array_equal(curve.get_ydata(), choice.loss.estimate[:drawn])
    assert may.get_xdata().tolist() == choice.group_sizes[:drawn][choice.candidates[:drawn]].tolist()
    assert {*may.get_ydata(), *best.get_ydata()} == {0.0}
    assert best.get_xdata().tolist() == [choice.group_size]
    assert (yours.get_xdata().tolist(), yours.get_ydata().tolist()) == ([8], [choice.loss.estimate[choice.at(8)]])


def test_a_zip_plot_colours_what_covers(record):
    axes = gt.plot.zip_plot(record)
    colours = [mpl.colors.to_hex(colour) for colour in axes.collections[0].get_colors()]
    assert colours.count("#56b4e9") == record.covered.sum()
    assert colours.count("#d55e00") == 100 - record.covered.sum() > 0
    segments = np.array(axes.collections[0].get_segments())
    inside = (segments[:, 0, 0] <= 0.0) & (segments[:, 1, 0] >= 0.0)
    assert inside.sum() == record.covered.sum(), "limits are less the truth"


def test_an_arrowhead_marks_each_interval_that_is_cut_and_no_other():
    low, high = np.array([-1.0, -3.0, -0.5, -np.inf]), np.array([1.0, 1.0, 9.0, np.inf])
    rows = pd.DataFrame({"low": low, "high": high, "covered": [True, True, False, True], "percentile": [25.0, 50.0, 75.0, 100.0]})
    axes = plt.figure().add_subplot()
    draw_intervals(axes, rows, (-2.0, 2.0))
    assert (axes.get_xlim(), axes.get_ylim()) == ((-2.0, 2.0), (0.0, 100.0))
    lines, left, right = axes.collections
    assert np.abs(np.array(lines.get_segments())[:, :, 0]).max() == 2.0
    assert left.get_offsets().tolist() == [[-2.0, 50.0], [-2.0, 100.0]]
    assert right.get_offsets().tolist() == [[2.0, 75.0], [2.0, 100.0]]
    assert [mpl.colors.to_hex(colour) for colour in right.get_facecolors()] == ["#d55e00", "#56b4e9"]


def test_width_stands_against_coverage(record):
    axes = gt.plot.width_by_coverage({"clustered": record})
    mark = axes.containers[0].lines[0]
    assert mark.get_xdata().tolist() == [record.coverage]
    assert mark.get_ydata().tolist() == [np.median(record.width)]


def test_what_cannot_be_drawn_is_said(record, runs):
    counts = gt.RewardCounts.from_rewards(np.repeat(np.arange(8), 8), np.arange(64) % 3 % 2)
    last = gt.simulate_training(PROBLEM, PROBLEM.theta, "rloo", gt.Constant(0.5), **SIZES, rng=0)
    plot, at = gt.plot, (PROBLEM, PROBLEM.theta)
    for call, arguments, options, words in (
        (plot.efficiency, (*at, ["rloo"]), {"budget": 10, "group_sizes": [4]}, "divide the budget of 10, got 4"),
        (plot.efficiency, (*at, ["rloo"]), {"budget": 10, "group_sizes": [1]}, "is defined, got [1]"),
        (plot.training, ([runs],), {}, "runs must be TrainingRuns or a mapping"),
        (plot.training, (last,), {}, "'rloo' has one: simulate them with checkpoints="),
        (plot.zip_plot, (record,), {"component": "9"}, "component must be one of '', got '9'"),
        (plot.zip_plot, (record,), {"axes": plt.figure()}, "axes must be matplotlib Axes or None, got Figure"),
        (plot.plan, (gt.plan.advise(counts, 64, group_size=8),), {}, "of rewards alone there are none"),
    ):
        with pytest.raises((TypeError, ValueError), match=re.escape(words)):
            call(*arguments, **options)
