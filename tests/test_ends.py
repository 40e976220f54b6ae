"""The ends of the range: the largest rewards and sizes, levels next to 1, points far out."""

import inspect
import warnings

import numpy as np
import pytest
from scipy.stats import chi2

import grpo_theory as gt
from grpo_theory import intervals
from grpo_theory.intervals.interval import around, student_quantile
from grpo_theory.simulate.draws import MOST_RESPONSES
from grpo_theory.theory import WeightedChiSquare
from grpo_theory.theory.leave_one_out import divisors

NEXT_TO_ONE = 1.0 - 2.0**-53
PROBLEM = gt.gallery.problem("tabular")


@pytest.mark.parametrize("weights", [[1.0, 0.5], [1.0] * 40 + [1e-9] * 400, [1e-200, 3e-201], [1e140, 1e139]])
def test_a_weighted_chi_square_far_out_is_no_nan(weights):
    law = WeightedChiSquare(weights)
    for q in (3e3, 1e10, 1e15, 1e16, 1e17, 1e100, 1e300):
        at = q * max(weights)
        assert (law.cdf(at), law.sf(at), law.pdf(at)) == (1.0, 0.0, 0.0)
        assert WeightedChiSquare([weights, weights]).sf([at, law.mean()])[0] == 0.0


def rollouts(rewards=1.0, scores=1.0, above=0.0):
    """Return rollouts whose prompts differ, so that all limits are numbers."""
    rng = np.random.default_rng(1)
    drawn = rng.integers(0, 3, size=(48, 8)) / 4.0
    directions = rng.normal(size=(48, 8, 2)) + 3.0 * rng.normal(size=(48, 1, 2))
    return gt.Rollouts(above + rewards * drawn, scores * directions)


def limits(interval, data):
    """Return the limits of a call that is not random."""
    more = {"rng": 0} if "rng" in inspect.signature(interval).parameters else {}
    sizes = {"batch_size": 8, "group_size": 4} if "batch_size" in inspect.signature(interval).parameters else {}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = interval(data, **sizes, **more)
    return [np.asarray(getattr(found, name)) for name in ("estimate", "low", "high")]


OF_SCORES = {
    "components_bootstrap": 2,
    "components_jackknife": 2,
    "gradient_between": 1,
    "gradient_jackknife": 1,
    "group_size_bootstrap": 0,
    "group_size_fieller": 0,
    "group_size_jackknife": 0,
    "mse_bootstrap": 2,
    "mse_jackknife": 2,
}
"""Intervals of rollouts, and the power of the rewards' and the scores' unit that they are in."""
OF_REWARDS = {"value_clustered": 1, "value_naive": 1}


@pytest.mark.parametrize("name", [*OF_SCORES, *OF_REWARDS])
@pytest.mark.parametrize("exponents", [(199, 0), (0, 36), (199, 36), (-199, -36)])
def test_intervals_are_in_the_data_s_unit_up_to_the_largest(name, exponents):
    interval, power = getattr(intervals, name), (OF_SCORES | OF_REWARDS)[name]
    units = 2.0 ** exponents[0], 2.0 ** exponents[1] if name in OF_SCORES else 1.0
    expected = limits(interval, rollouts())
    assert all(np.isfinite(part).all() for part in expected) or name.startswith("group_size")
    for found, part in zip(limits(interval, rollouts(*units)), expected, strict=True):
        np.testing.assert_allclose(found, part * (units[0] * units[1]) ** power, rtol=1e-9)


@pytest.mark.parametrize("name", [*OF_SCORES, *OF_REWARDS])
def test_a_large_constant_in_all_rewards_costs_no_digits(name):
    """Rewards 1e15 and 1e15 + 1: an average lies between numbers that are an eighth apart, all else is as with 0 and 1."""
    interval = getattr(intervals, name)
    above = 1e15 if name in OF_REWARDS else 0.0
    for found, expected in zip(limits(interval, rollouts(above=1e15)), limits(interval, rollouts()), strict=True):
        np.testing.assert_allclose(found - above, expected, rtol=1e-9, atol=0.07 if name in OF_REWARDS else 0.0)


STEPS = {"steps": 20, "replications": 4, "rng": 0}
DRAWN = {
    "gradients": lambda sizes: gt.simulate_gradients(PROBLEM, PROBLEM.theta, "rloo", replications=4, rng=0, **sizes),
    "training": lambda sizes: gt.simulate_training(PROBLEM, PROBLEM.theta, "rloo", gt.Constant(0.1), **STEPS, **sizes),
    "records": lambda sizes: list(gt.simulate_records(PROBLEM, PROBLEM.theta, "rloo", gt.Constant(0.1), **STEPS, **sizes)),
    "pilot": lambda sizes: gt.Pilot(**sizes).sample(PROBLEM, 0, 1),
}


@pytest.mark.parametrize("name", DRAWN)
def test_batches_that_no_memory_holds_are_refused_by_name(name):
    for batch_size, group_size in ((2**53, 2), (2, 2**53), (MOST_RESPONSES, 2), (2, 2**30)):
        with pytest.raises(ValueError, match=r"batch_size times group_size must be at most 1,048,576 to be drawn, got \d+ times"):
            DRAWN[name]({"batch_size": batch_size, "group_size": group_size})


def test_divisors():
    for number in (*range(2, 400), 2**20 - 1, 2**21, (2**20 + 7) ** 2, 10**12, 2**53 - 111):
        found = divisors(number)
        assert (number % found == 0).all()
        assert (np.diff(found) > 0).all()
        assert found[[0, -1]].tolist() == [1, number]
        if number < 400:
            assert found.tolist() == [g for g in range(1, number + 1) if number % g == 0]
    assert divisors(10**12).size == 13**2  # 2^12 5^12


def test_tails_are_left_out_only_where_they_are_no_numbers():
    """Two weights that are all but one: scipy's chi-square, down to the smallest numbers there are."""
    law, points = WeightedChiSquare([1.0, 1.0 - 1e-15]), np.array([100.0, 700.0, 1400.0])
    np.testing.assert_allclose(law.sf(points), chi2.sf(points, 2), rtol=1e-10)
    many, points = WeightedChiSquare(np.r_[np.ones(999), 1.0 - 1e-15]), np.array([900.0, 2000.0, 4000.0])
    np.testing.assert_allclose(many.sf(points), chi2.sf(points, 1000), rtol=1e-8)


def test_levels_next_to_one_have_limits():
    samples = np.random.default_rng(0).normal(size=(20, 3))
    assert intervals.best_set(samples, NEXT_TO_ONE).all()
    assert not intervals.best_set(samples + np.array([0.0, 0.0, 100.0]), NEXT_TO_ONE)[:2].any()
    assert 8.0 < around(0.0, 1.0, NEXT_TO_ONE).high < 9.0
    assert 8.0 < student_quantile(1e6, NEXT_TO_ONE) < 9.0
    assert np.isfinite(intervals.paired_difference(*samples.T[:2], NEXT_TO_ONE).high)
