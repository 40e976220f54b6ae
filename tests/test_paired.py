"""Paired differences: by hand, against the defining martingale, and watched over time."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import minimize_scalar
from scipy.stats import binom, nct, t, ttest_rel
from statsmodels.stats.power import TTestPower

from grpo_theory.intervals import paired_difference, paired_sequence, seeds_needed
from grpo_theory.intervals.comparisons import _prior_variance

RNG = np.random.default_rng(5)
A, B = RNG.normal(size=(3, 12)) + 1.0, RNG.normal(size=(3, 12))


def test_the_fixed_sample_is_the_paired_t_interval():
    found = paired_difference(A[0], B[0], 0.9)
    expected = ttest_rel(A[0], B[0]).confidence_interval(0.9)
    assert (float(found.low), float(found.high)) == pytest.approx((expected.low, expected.high), rel=1e-12)


@pytest.mark.parametrize("function", [paired_difference, paired_sequence])
def test_scale_shift_order_of_the_pair_and_datasets(function):
    one = function(A, B)
    moved = function(-2.0 * A + 5.0, -2.0 * B + 2.0)
    finite = np.isfinite(one.high)
    np.testing.assert_allclose(moved.low[finite], (3.0 - 2.0 * one.high)[finite], atol=1e-12)
    np.testing.assert_allclose(moved.high[finite], (3.0 - 2.0 * one.low)[finite], atol=1e-12)
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

    def prior(delta):
        return np.exp(-0.5 * delta**2 / g) / np.sqrt(2.0 * np.pi * g)

    reach = 12.0 * np.sqrt(g)
    return quad(lambda d: prior(d) * likelihood(d), -reach, reach, epsrel=1e-9)[0] / likelihood(0.0)


@pytest.mark.parametrize("n", [8, 12])
def test_limits_are_where_the_ratio_of_likelihoods_reaches_one_over_alpha(n):
    found = paired_sequence(A[1], B[1], 0.9, horizon=20)
    g = _prior_variance(0.9, 20)
    for limit in (found.low[n - 1], found.high[n - 1]):
        assert martingale((A[1] - B[1])[:n], limit, g) == pytest.approx(10.0, rel=1e-6)
    inside = (3.0 * found.low[n - 1] + found.high[n - 1]) / 4.0
    assert martingale((A[1] - B[1])[:n], inside, g) < 9.0


@pytest.mark.parametrize(("level", "horizon"), [(0.95, 30), (0.9, 7)])
def test_the_prior_variance_is_that_of_its_source(level, horizon):
    """Waudby-Smith et al. (2024), in units of the variance: (-2 log alpha + log(-2 log alpha + 1))/n is nearly the best."""
    alpha = 1.0 - level
    found = _prior_variance(level, horizon)
    assert found == pytest.approx((-2.0 * np.log(alpha) + np.log(-2.0 * np.log(alpha) + 1.0)) / horizon, rel=1e-12)

    def width(g):
        return np.sqrt((1.0 + 1.0 / (horizon * g)) * np.log((1.0 + horizon * g) / alpha**2))

    best = minimize_scalar(width, bounds=(0.1 * found, 10.0 * found), method="bounded").fun
    assert width(found) < 1.0005 * best < width(2.0 * found)


@pytest.mark.parametrize("n", [2, 5, 40])
def test_the_ratio_has_mean_one(n):
    def mean(exponent, g=0.3):
        def ratio(x):
            y = x**2 / (n - 1)
            return ((1.0 + y) / (1.0 + y / (1.0 + n * g))) ** exponent / np.sqrt(1.0 + n * g)

        return 2.0 * quad(lambda x: ratio(x) * t.pdf(x, n - 1), 0.0, np.inf, epsrel=1e-10)[0]

    assert mean(n / 2.0) == pytest.approx(1.0, rel=1e-7)
    assert abs(mean((n - 1.0) / 2.0) - 1.0) > 1e-3


def test_the_sequence_holds_at_all_times_and_the_watched_t_interval_does_not(seed):
    runs, last, level = 2000, 1000, 0.95
    differences = np.random.default_rng(seed(1)).normal(0.3, 2.0, size=(runs, last))
    held = paired_sequence(differences, np.zeros_like(differences), level).covers(0.3)[:, 9:].all(axis=1).sum()
    assert binom.cdf(held, runs, level) > 1e-5
    n = np.arange(1, last + 1)
    mean = np.cumsum(differences, axis=1) / n
    variance = (np.cumsum(differences**2, axis=1) - n * mean**2)[:, 9:] / (n[9:] - 1)
    half = t.ppf(0.975, n[9:] - 1) * np.sqrt(variance / n[9:])
    watched = (np.abs(mean[:, 9:] - 0.3) <= half).all(axis=1).sum()
    assert binom.cdf(watched, runs, level) < 1e-100


def test_the_sequence_costs_less_than_twice_the_width_at_its_horizon():
    differences = np.random.default_rng(3).normal(size=100)
    for horizon in (30, 100):
        watched = paired_sequence(differences, np.zeros(100), horizon=horizon).width[horizon - 1]
        fixed = paired_difference(differences[:horizon], np.zeros(horizon)).width
        assert 1.3 < watched / fixed < 1.8
    assert np.isinf(paired_sequence(differences, np.zeros(100)).width[:2]).all()


@pytest.mark.parametrize("difference", [0.1, -0.3, 5.0])
def test_seeds_are_the_least_with_the_power(difference):
    spread = (A[2] - B[2]).std(ddof=1)
    seeds = seeds_needed(A[2], B[2], difference, power=0.9, level=0.95)

    def power(n):
        critical, shift = t.ppf(0.975, n - 1), np.sqrt(n) * abs(difference) / spread
        return nct.sf(critical, n - 1, shift)

    assert power(seeds) >= 0.9
    assert seeds == 2 or power(seeds - 1) < 0.9
    if seeds > 3:
        assert seeds == np.ceil(TTestPower().solve_power(abs(difference) / spread, power=0.9, alpha=0.05))


def test_the_seeds_have_the_power_they_promise(seed):
    pilot = np.random.default_rng(seed(7)).normal(size=20)
    pilot *= 1.0 / pilot.std(ddof=1)
    seeds = seeds_needed(pilot, np.zeros(20), 0.6)
    samples = np.random.default_rng(seed(8)).normal(0.6, 1.0, size=(20_000, seeds))
    found = paired_difference(samples, np.zeros_like(samples))
    share = (found.low > 0.0).mean() + (found.high < 0.0).mean()
    assert abs(share - 0.8) < 0.03
    fewer = paired_difference(samples[:, : int(0.8 * seeds)], np.zeros((20_000, int(0.8 * seeds))))
    assert (fewer.low > 0.0).mean() < 0.75


def test_differences_that_are_equal_but_for_rounding():
    a, b = 10 * [0.9, 0.8, 0.7], 10 * [0.8, 0.7, 0.6]
    assert np.ptp(np.subtract(a, b)) > 0.0
    with pytest.raises(ValueError, match=r"a - b must vary over the runs, got 0\.1 in all 30"):
        paired_difference(a, b)
    assert np.isinf(paired_sequence(a, b).width).all()
    with pytest.raises(ValueError, match="standard deviation of a - b must be finite and above 0, got 0"):
        seeds_needed(a, b, 0.1)
    late = paired_sequence([*a, 1.0], [*b, 0.0])
    assert np.isfinite(late.width).tolist() == 30 * [False] + [True]


def test_equal_differences():
    with pytest.raises(ValueError, match="a - b must vary over the runs, got 1 in all 3"):
        paired_difference([2.0, 3.0, 4.0], [1.0, 2.0, 3.0])
    both = paired_difference([[2.0, 3.0, 4.0], [2.0, 3.0, 5.0]], np.tile([1.0, 2.0, 3.0], (2, 1)))
    np.testing.assert_array_equal(np.isnan(both.low), [True, False])
    assert np.isinf(paired_sequence(np.ones(50), np.zeros(50)).width).all()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: paired_difference([1.0], [2.0]), "a and b must have at least 2 runs, got 1"),
        (lambda: paired_difference([1.0, 2.0], [2.0]), r"a and b must have one shape \(..., R\), got \(2,\) and \(1,\)"),
        (lambda: paired_difference([1.0, np.nan], [2.0, 1.0]), r"a must be finite, got nan at run \(1,\)"),
        (lambda: paired_sequence([1.0, 2.0], [2.0, 1.0], 1.0), "level must lie strictly between 0 and 1, got 1.0"),
        (lambda: paired_sequence([1.0, 2.0], [2.0, 1.0], horizon=0), "horizon must be at least 1, got 0"),
        (lambda: seeds_needed([1.0, 2.0], [2.0, 1.0], 0.0), "difference must be finite and not 0, got 0"),
        (lambda: seeds_needed([1.0, 2.0], [2.0, 1.0], 1e-9), "difference must be larger: 1e-09 needs over 10000000 seeds"),
        (lambda: seeds_needed([1.0, 2.0], [2.0, 1.0], 1.0, power=1.0), "power must lie strictly between 0 and 1"),
        (lambda: seeds_needed([1.0, 2.0], [0.0, 1.0], 1.0), "standard deviation of a - b must be finite and above 0"),
        (lambda: seeds_needed(A, B, 1.0), r"a and b must have shape \(R,\), one pilot, got \(3, 12\)"),
    ],
)
def test_bad_input(make, message):
    with pytest.raises(ValueError, match=message):
        make()
