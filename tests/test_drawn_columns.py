"""What figures draw is what the columns of their tables have: read back off the axes, from tables that are made up."""

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from scipy.special import ndtri

from grpo_theory.page.style import ESTIMATORS
from grpo_theory.theory import GroupSizeLaw
from paper_figures import decomposition, efficiency, gap_bounds, gap_quantiles, three_questions
from paper_figures.content import summaries
from paper_figures.content.panels import coverage_axis, heat_map, lengths, points
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
    common = {"problem": "kl-tabular", "estimator": "rloo", "n": steps, "bound": 2.0 / steps, "iterated": 1.5 / steps}
    table = pd.DataFrame(common | {"estimate": 1.0 / steps, "standard_error": error / steps})
    parts = [table.assign(quantity=quantity, schedule=one) for quantity in ("gap", "law") for one in gap_bounds.ROWS]
    figure = gap_bounds.draw({"training_gap": pd.concat(parts, ignore_index=True)})
    wide = -float(ndtri(0.0005 / len(steps)))
    assert len(figure.axes) == 2
    for axes in figure.axes:
        (bars,) = axes.collections
        ends = np.array([segment[:, 1] for segment in bars.get_segments()])
        np.testing.assert_allclose(ends.max(axis=1), (1.0 + wide * error) / steps, rtol=1e-9)
        np.testing.assert_allclose(ends.min(axis=1), (1.0 - wide * error) / steps, rtol=1e-9)


def efficiencies():
    """Return a table in which each estimator is best at another size, and the second is twice as efficient as the first."""
    heights = {("rloo", 4): 0.2, ("grpo", 8): 0.4, ("reinforce", 2): 0.1, ("max_rl", 16): 0.3}
    rows = [(name, size, h if size == at else h / 2.0) for (name, at), h in heights.items() for size in (2, 4, 8, 16)]
    found = pd.DataFrame(rows, columns=["estimator", "group_size", "estimate"])
    return found.assign(problem="lm-few-shot", quantity="efficiency")


def large_marks(axes):
    """Return the places of the lines of one point, in order."""
    return sorted(line.get_xydata()[0].tolist() for line in axes.get_lines() if len(line.get_xdata()) == 1)


def test_the_large_marks_of_efficiency_are_at_the_best_size_and_relative_to_the_leave_one_out_mean_at_the_front():
    (axes, *_) = efficiency.draw({"efficiency": efficiencies()}).axes
    np.testing.assert_allclose(large_marks(axes), [(2.0, 0.1), (4.0, 0.2), (8.0, 0.4), (16.0, 0.3)])
    _, axes = plt.subplots()
    three_questions.group_sizes(axes, efficiencies())
    np.testing.assert_allclose(large_marks(axes), [(4.0, 1.0), (8.0, 2.0)])


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


def luminance(colour):
    """Of the web's guidelines (WCAG 2), from 0 to 1."""
    parts = np.array(mpl.colors.to_rgb(colour))
    return float(np.where(parts <= 0.03928, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4) @ [0.2126, 0.7152, 0.0722])


@pytest.mark.parametrize("colours", ["Greys", "cividis_r", "#F4F7FA,#D55E00"])
def test_numbers_in_cells_have_the_contrast_that_guidelines_ask(colours):
    """Four and a half to one: of black and white, one always has it, and seaborn's choice did not."""
    values = pd.DataFrame(np.linspace(0.0, 1.0, 21)[None, :])
    _, axes = plt.subplots()
    heat_map(axes, values, values.map("{:.1f}".format), colours, (0.0, 1.0))
    for text, cell in zip(axes.texts, axes.collections[0].get_facecolors(), strict=True):
        dark, light = sorted((luminance(text.get_color()), luminance(cell)))
        assert (light + 0.05) / (dark + 0.05) >= 4.5


def test_quantiles_that_are_drawn_are_spread_out_and_differ_between_estimators():
    levels = np.geomspace(1e-3, 10.0, 400)
    first, second, third = (gap_quantiles._spread(levels, shift) for shift in range(3))
    assert (len(first), first[0], first[-1]) == (gap_quantiles.COUNT, 0, 399)
    np.testing.assert_allclose(np.diff(np.log(levels[first])), np.log(1e4) / (gap_quantiles.COUNT - 1), rtol=0.06)
    drawn = np.sort(np.concatenate([first[1:], second[1:], third[1:]]))
    assert np.diff(drawn).min() > 10, "marks of different estimators do not meet"


def test_bars_reach_from_the_estimate_to_either_limit_and_those_of_points_are_of_95_percent():
    _, axes = plt.subplots()
    points(axes, [1.0, 2.0], [5.0, 6.0], [0.5, 0.25], ESTIMATORS["rloo"])
    halves = [np.ptp(segment[:, 1]) / 2.0 for segment in axes.collections[0].get_segments()]
    np.testing.assert_allclose(halves, [0.5 * 1.959964, 0.25 * 1.959964], rtol=1e-6)
    rows = pd.DataFrame({"estimate": [1.0, 2.0], "low": [0.5, 1.9], "high": [3.0, 2.3]})
    np.testing.assert_allclose(lengths(rows), [[0.5, 0.1], [2.0, 0.3]])


def test_an_axis_of_coverage_is_cut_and_spaced_by_the_logit():
    _, axes = plt.subplots()
    coverage_axis(axes.yaxis)
    places = axes.transData.transform([(0.0, share) for share in (0.0, 0.02, 0.5, 0.98, 0.999, 1.0)])[:, 1]
    assert (places[0], places[4]) == (places[1], places[5])
    assert places[2] - places[1] == pytest.approx(places[3] - places[2])


def test_the_terms_of_the_error_law_add_up_and_points_are_of_its_budget():
    heads = pd.DataFrame({"problem": decomposition.LANGUAGE_MODEL, "c1": 2.0, "c2": 3.0, "c3": 5.0})
    law = GroupSizeLaw(2.0, 3.0, 5.0)
    runs = heads.assign(quantity="mse", estimator="rloo", batch_size=4, group_size=8, estimate=law.mse(4, 8), standard_error=0.1)
    axes = decomposition.draw({"error_law": heads, "gradient_error": runs}).axes[0]
    total, terms = axes.lines[0], [line for line in axes.lines if line.get_label() in decomposition.TERMS]
    np.testing.assert_allclose(sum(line.get_ydata() for line in terms), total.get_ydata(), rtol=1e-12)
    (mark,) = axes.containers[0].lines[0].get_ydata()
    assert mark == pytest.approx(np.interp(8.0, total.get_xdata(), total.get_ydata()), rel=1e-4)


def test_errors_are_relative_to_the_oracles_and_coverages_are_one_less_what_misses(monkeypatch):
    table = pd.DataFrame({"problem": "p", "group_size": 8, "estimator": ["oracle", "rloo"], "estimate": [2.0, 3.0]})
    facts = {"value": 0.5, "correlation_mean": 0.1, "vanilla_wins": 0.0, "break_even": 4.0}
    monkeypatch.setattr(summaries, "read_table", lambda results, name: (table.assign(**facts), {}))
    assert summaries.who_wins(None)[["oracle", "rloo", "lowest"]].to_numpy().tolist() == [[1.0, 1.5, "oracle"]]
    claim = {"id": "a", "statement": "", "problem": "", "control": "", "verdict": "", "estimate": 0.1, "low": 0.05, "high": 0.2}
    claims = pd.DataFrame([claim | {"kind": kind} for kind in ("equality", "upper bound")])
    shown = summaries.coverage_at_points(claims)[["covers", "low", "high"]].to_numpy()
    np.testing.assert_allclose(shown, [[0.1, 0.05, 0.2], [0.9, 0.8, 0.95]])
