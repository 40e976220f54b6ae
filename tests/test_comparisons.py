"""Comparisons by paired runs: by hand, against the defining martingale, watched over time, and the set of the best."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import minimize_scalar
from scipy.stats import binom, t, ttest_rel
from statsmodels.stats.power import TTestPower

from grpo_theory.intervals import best_set, paired_difference, paired_sequence, seeds_needed
from grpo_theory.intervals.comparisons import prior_variance

RNG = np.random.default_rng(5)
A, B = RNG.normal(size=(3, 12)) + 1.0, RNG.normal(size=(3, 12))


@pytest.mark.parametrize("function", [paired_difference, paired_sequence])
def test_the_paired_t_interval_and_scale_shift_order_of_the_pair_and_datasets(function):
    expected = ttest_rel(A[0], B[0]).confidence_interval(0.9)
    found = paired_difference(A[0], B[0], 0.9)
    assert (float(found.low), float(found.high)) == pytest.approx((expected.low, expected.high), rel=1e-12)
    one, moved = function(A, B), function(-2.0 * A + 5.0, -2.0 * B + 2.0)
    finite = np.isfinite(one.high)
    np.testing.assert_allclose(moved.low[finite], (3.0 - 2.0 * one.high)[finite], atol=1e-12)
    for row in range(3):
        np.testing.assert_allclose(function(A[row], B[row]).low, one.low[row], rtol=1e-12)
    assert function.vectorized


def martingale(differences, mean, g):
    """The ratio of marginal likelihoods under the scale-invariant prior, by numerical integration over the standardised mean.

    The likelihood of n normal values up to scale, with standardised mean delta, is int s^-n-1 exp(-sum (x/s - delta)^2 / 2) ds.
    """
    x = (differences - mean) / np.linalg.norm(differences - mean)

    def likelihood(delta):
        def density(s):
            return s ** (-len(x) - 1.0) * np.exp(-0.5 * ((x / s - delta) ** 2).sum())

        return quad(density, 0.0, np.inf, epsabs=0.0, epsrel=1e-10, limit=200)[0]

    reach = 12.0 * np.sqrt(g)
    prior = quad(lambda d: np.exp(-0.5 * d**2 / g) * likelihood(d), -reach, reach, epsrel=1e-9)[0]
    return prior / np.sqrt(2.0 * np.pi * g) / likelihood(0.0)


def test_limits_are_where_the_ratio_of_likelihoods_reaches_one_over_alpha():
    found, g = paired_sequence(A[1], B[1], 0.9, horizon=20), prior_variance(0.9, 20)
    for limit in (found.low[7], found.high[7]):
        assert martingale((A[1] - B[1])[:8], limit, g) == pytest.approx(10.0, rel=1e-6)
    assert martingale((A[1] - B[1])[:8], (3.0 * found.low[7] + found.high[7]) / 4.0, g) < 9.0


@pytest.mark.parametrize(("level", "horizon"), [(0.95, 30), (0.9, 7)])
def test_the_prior_variance_is_that_of_its_source_and_nearly_the_best(level, horizon):
    """Waudby-Smith et al. (2024), in units of the variance: (-2 log alpha + log(-2 log alpha + 1))/n."""
    alpha, found = 1.0 - level, prior_variance(level, horizon)
    assert found == pytest.approx((-2.0 * np.log(alpha) + np.log(-2.0 * np.log(alpha) + 1.0)) / horizon, rel=1e-12)

    def width(g):
        return np.sqrt((1.0 + 1.0 / (horizon * g)) * np.log((1.0 + horizon * g) / alpha**2))

    best = minimize_scalar(width, bounds=(0.1 * found, 10.0 * found), method="bounded").fun
    assert width(found) < 1.0005 * best < width(2.0 * found)


def test_the_sequence_holds_at_all_times_and_the_watched_t_interval_does_not(seed):
    runs, last, level = 2000, 500, 0.95
    differences = np.random.default_rng(seed(1)).normal(0.3, 2.0, size=(runs, last))
    found = paired_sequence(differences, np.zeros_like(differences), level)
    assert binom.cdf(found.covers(0.3)[:, 9:].all(axis=1).sum(), runs, level) > 1e-5
    half = t.ppf(0.975, np.arange(9, last)) * found.standard_error[:, 9:]
    watched = (np.abs(found.estimate[:, 9:] - 0.3) <= half).all(axis=1).sum()
    assert binom.cdf(watched, runs, level) < 1e-60
    fixed = paired_difference(differences[:, :30], np.zeros((runs, 30)))
    np.testing.assert_allclose(found.standard_error[:, 29], fixed.standard_error, rtol=1e-9)
    assert 1.3 < (found.width[:, 29] / fixed.width).mean() < 1.8  # it costs less than twice the width at its horizon
    assert np.isinf(found.width[:, :2]).all()


@pytest.mark.parametrize("difference", [0.3, -0.3, 0.9, 50.0])
def test_seeds_are_the_least_with_the_power_of_an_independent_package(difference):
    spread = (A[2] - B[2]).std(ddof=1)
    seeds, solver = seeds_needed(A[2], B[2], difference, power=0.9), TTestPower()
    enough = [solver.power(abs(difference) / spread, n, 0.05, alternative="two-sided") >= 0.9 for n in (seeds, seeds - 1)]
    assert enough == [True, False] or seeds == 2


def test_differences_that_are_equal_but_for_rounding():
    a, b = 10 * [0.9, 0.8, 0.7], 10 * [0.8, 0.7, 0.6]
    with pytest.raises(ValueError, match="differences a - b do not vary"):
        paired_difference(a, b)
    both = paired_difference([a, A[0].tolist() + 18 * [0.0]], [b, 30 * [0.0]])
    np.testing.assert_array_equal(np.isnan(both.low), [True, False])
    assert np.isfinite(paired_sequence([*a, 1.0], [*b, 0.0]).width).tolist() == 30 * [False] + [True]


@pytest.mark.parametrize("deviations", [np.ones(6), np.array([3.0, 1.0, 0.3, 1.0, 1.0, 5.0])])
def test_a_tied_best_stays_as_often_as_the_level_says_and_what_is_worse_leaves(seed, deviations):
    """Six tied candidates, the least favourable case; a test without Bonferroni's share would lose the first in 13% or more."""
    rng, n, level = np.random.default_rng(seed(1)), 2000, 0.95
    runs = rng.standard_normal((n, 30, 6)) * deviations + 0.7 * rng.standard_normal((n, 30, 1)) * deviations
    error = np.sqrt(level * (1.0 - level) / n)
    assert np.mean([best_set(one, level)[0] for one in runs]) > level - 4.9 * error
    lead = runs[:, :, 1:] - runs[:, :, :1]
    lost = (lead.mean(axis=1) > 1.699 * lead.std(axis=1, ddof=1) / np.sqrt(30)).any(axis=1)
    assert 1.0 - lost.mean() < level - 4.9 * error
    assert best_set(runs[0] / 1e3 + [0.0, 1.0, 1.0, 0.9, 0.5, 1.0]).tolist() == [False, True, True, False, False, True]
    shared = runs[0, :, :1] + 1e-3 * runs[1, :, :2] / deviations[:2] + [0.0, 0.01]
    assert best_set(shared).tolist() == [False, True]  # pairs are compared run by run
    assert best_set(np.ones((5, 3))).all()
    assert best_set(np.arange(3.0)[:, None]).tolist() == [True]


def test_bad_input(check_refused):
    check_refused(
        (lambda: paired_difference([1.0], [2.0]), "a and b must have at least 2 runs"),
        (lambda: paired_difference([1.0, 2.0], [2.0]), "a and b must have one shape"),
        (lambda: paired_difference([1.0, 2.0], [2.0, np.inf]), r"b must be finite, got inf at index \(1,\)"),
        (lambda: seeds_needed([1.0, 2.0], [2.0, 1.0], 0.0), "difference must be finite and not 0"),
        (lambda: best_set([[1.0, 2.0]]), "samples must have at least 2 rows"),
    )
