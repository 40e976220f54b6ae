"""Intervals of the optimal group size: test inversion, the delta method, resamples built one by one, coverage."""

from functools import partial

import numpy as np
import pytest
from enumeration import case
from pilots import (
    REPLICATIONS,
    assert_same,
    components,
    covariance_by_deletion,
    deviation,
    draw,
    gentle_case,
    informative,
    noise,
    statistics_of_resamples,
    transformed,
)
from scipy.stats import t as student

import grpo_theory as gt
from grpo_theory import Rollouts
from grpo_theory.intervals import (
    estimate_group_size_law,
    group_size_bootstrap,
    group_size_fieller,
    group_size_jackknife,
)
from grpo_theory.intervals.rollout_intervals import ratio_limits
from grpo_theory.theory import GroupSizeLaw

bootstrap = partial(group_size_bootstrap, resamples=199, rng=5)
GROUP_SIZES = (group_size_jackknife, group_size_fieller, bootstrap)


@pytest.mark.parametrize("seed", range(6))
def test_fieller_against_tests_one_by_one(seed):
    """From bounded sets to unbounded ones, none of which falls apart: a ratio is inside just when its t test accepts it."""
    r = informative(seed, prompts=14) if seed % 2 else noise(seed, prompts=14)
    c1, _, c3 = components(r)
    covariance = covariance_by_deletion(r)
    found = group_size_fieller(r, 0.9)
    ratios = np.concatenate([np.geomspace(1e-3, 1e6, 400), (np.array([found.low, min(found.high, 1e6)]) - 1.0) ** 2])
    contrasts = np.array([[-ratio, 0.0, 1.0] for ratio in ratios])
    errors = np.sqrt(np.einsum("ni,ij,nj->n", contrasts, covariance, contrasts))
    accepted = np.abs(max(c3, 0.0) - ratios * max(c1, 0.0)) <= student.ppf(0.95, 13) * errors * (1.0 + 1e-7)
    inside = (1.0 + np.sqrt(ratios) >= found.low * (1 - 1e-9)) & (1.0 + np.sqrt(ratios) <= found.high * (1 + 1e-9))
    np.testing.assert_array_equal(inside, accepted)
    assert inside.any()
    assert np.isinf(found.high) == (c1 <= student.ppf(0.95, 13) * np.sqrt(covariance[0, 0]))


def t_statistic(law, covariance, ratio):
    """(c3 - r c1)/se(r)."""
    v11, v13, v33 = covariance[0, 0], covariance[0, 2], covariance[2, 2]
    return (law.c3 - ratio * law.c1) / np.sqrt(v33 - 2.0 * ratio * v13 + ratio**2 * v11)


def covariance_of(v11, v13, v33):
    return np.array([[v11, 0.0, v13], [0.0, 1.0, 0.0], [v13, 0.0, v33]])


def test_the_accepted_ratios_can_fall_apart_and_the_limits_are_those_of_their_hull():
    law, covariance = GroupSizeLaw(0.2, 1.0, 1.0), covariance_of(1.0, 0.99, 1.0)
    np.testing.assert_allclose(t_statistic(law, covariance, np.array([0.0, 1.0, 2.0])), [1.0, 5.66, 0.59], atol=0.005)
    ratios = np.linspace(0.0, 50.0, 50_001)
    accepted = np.abs(t_statistic(law, covariance, ratios)) <= 2.0
    edges = ratios[1:][np.diff(accepted.astype(int)) != 0]
    np.testing.assert_allclose(edges, [0.570, 1.329], atol=0.0015)
    assert accepted[0]
    assert accepted[-1]
    low, high = ratio_limits(law, covariance, -2.0, 2.0)
    assert (low, high) == (0.0, np.inf)
    # With the estimates uncorrelated nothing in between is rejected.
    assert (np.abs(t_statistic(law, covariance_of(1.0, 0.0, 1.0), ratios)) <= 2.0).all()


def test_the_limits_are_the_least_and_the_greatest_accepted_ratio():
    """On random estimates and quantiles, skewed ones too: the limits are accepted, and no accepted ratio lies outside them."""
    rng = np.random.default_rng(11)
    ratios = np.concatenate([[0.0], np.geomspace(1e-3, 1e3, 3000)])
    apart = 0
    for _ in range(400):
        c1, c3, v11, v33, below, above = rng.exponential(size=6)
        law = GroupSizeLaw(c1, 1.0, c3)
        covariance = covariance_of(v11, np.tanh(2.0 * rng.normal()) * np.sqrt(v11 * v33), v33)
        low, high = ratio_limits(law, covariance, -2.0 * below, 2.0 * above)

        def accepts(ratio, law=law, covariance=covariance, least=-2.0 * below, most=2.0 * above):
            statistic = t_statistic(law, covariance, ratio)
            return (statistic >= least - 1e-7) & (statistic <= most + 1e-7)

        assert accepts(low)
        assert accepts(high) if np.isfinite(high) else -c1 / np.sqrt(v11) >= -2.0 * below
        kept = accepts(ratios)
        outside = (ratios < low * (1 - 1e-6)) | (ratios > high * (1 + 1e-6))
        assert not (kept & outside).any()
        apart += not kept[~outside].all()
    assert 5 < apart < 100


def test_fieller_is_bounded_or_not():
    assert np.isfinite(group_size_fieller(informative(3, prompts=40, responses=12)).high)
    assert np.isinf(group_size_fieller(noise(2, prompts=8)).high)


def test_delta_method_of_the_logarithm():
    r = informative(3, prompts=40)
    c1, _, c3 = components(r)
    slopes = np.array([-1.0 / c1, 0.0, 1.0 / c3])
    half = student.ppf(0.95, 39) * np.sqrt(slopes @ covariance_by_deletion(r) @ slopes)
    found = group_size_jackknife(r, 0.9)
    limits = [1.0 + np.sqrt(c3 / c1 * np.exp(side * half)) for side in (-1, 0, 1)]
    np.testing.assert_allclose([found.low, found.estimate, found.high], limits, rtol=1e-10)


def test_no_positive_estimate_no_limit():
    many = noise(7, 60, prompts=4)
    found = group_size_jackknife(many)
    negative = estimate_group_size_law(many).c1 <= 0.0
    assert 0 < negative.sum() < 60
    np.testing.assert_array_equal(np.isinf(found.estimate), negative)
    np.testing.assert_array_equal(found.low[negative], 1.0)
    assert np.isinf(found.high[negative]).all()
    assert np.isinf(group_size_fieller(many).high[negative]).all()


def test_bootstrap_of_the_group_size_against_resampled_rollouts():
    r = informative(4, prompts=9, responses=12)
    found = group_size_bootstrap(r, 0.9, resamples=39, rng=8)
    c, covariance = components(r), covariance_by_deletion(r)
    statistics = statistics_of_resamples(r, np.array([-c[2] / c[0], 0.0, 1.0]), 8, 39)

    def statistic(optimum):
        at = np.array([-((optimum - 1.0) ** 2), 0.0, 1.0])
        return at @ c / np.sqrt(at @ covariance @ at)

    # Two of 39 in each tail.
    assert statistic(found.low) == pytest.approx(statistics[-2], rel=1e-8)
    assert np.isinf(found.high) == (-c[0] / np.sqrt(covariance[0, 0]) >= statistics[1])
    assert np.isinf(found.high) or statistic(found.high) == pytest.approx(statistics[1], rel=1e-8)


@pytest.mark.parametrize("interval", GROUP_SIZES)
def test_group_size_is_invariant(interval):
    r = informative(6, prompts=20)
    base = interval(r)
    assert_same(interval(transformed(r, -3.0, 11.0)), base, rtol=1e-8)
    assert_same(interval(Rollouts(r.rewards, 5.0 * r.scores)), base, rtol=1e-8)
    rotation = np.linalg.qr(np.random.default_rng(1).normal(size=(3, 3)))[0]
    assert_same(interval(r.along(rotation)), base, rtol=1e-8)


def narrowed_below(interval, factor=0.9):
    """Move the limits of G* towards the estimate on the scale where they are symmetric, log(c3/c1)."""
    centre = np.log(interval.estimate - 1.0)
    return [1.0 + np.exp(centre + factor * (np.log(limit - 1.0) - centre)) for limit in (interval.low, interval.high)]


def test_coverage_of_the_group_size(seed):
    """Large groups, so that c1 is known to a few standard errors in every dataset and the logarithm is near normal."""
    c = gentle_case()
    law = gt.group_size_law(c.problem, c.theta)
    r, _ = draw(c, REPLICATIONS, 100, 16, np.random.default_rng(seed(33)))
    for interval in (group_size_jackknife, group_size_fieller):
        found = interval(r)
        assert abs(deviation(found.covers(law.optimum))) < 4.0
        low, high = narrowed_below(found)
        assert deviation((low <= law.optimum) & (law.optimum <= high)) < -4.0


def test_coverage_where_no_group_size_is_best(seed):
    """One prompt: c1 = 0 and G* is infinite. Test inversion keeps it; the logarithm of a ratio of estimates does not."""
    c = case("tabular", "binary")
    c = c.replace(bandit=gt.Bandit(c.bandit.probabilities[..., 1], [1.0, 0.0]))
    r, _ = draw(c, 500, 64, 6, np.random.default_rng(seed(32)))
    assert group_size_fieller(r).covers(np.inf).mean() > 0.95
    assert group_size_jackknife(r).covers(np.inf).mean() < 0.8


def test_coverage_of_the_bootstrap(seed):
    c = gentle_case()
    law = gt.group_size_law(c.problem, c.theta)
    r, _ = draw(c, REPLICATIONS, 40, 16, np.random.default_rng(seed(34)))
    found = group_size_bootstrap(r, resamples=199, rng=seed(35))
    assert abs(deviation(found.covers(law.optimum))) < 4.0
    low, high = narrowed_below(found)
    assert deviation((low <= law.optimum) & (law.optimum <= high)) < -4.0


def test_prompts_of_one_gradient_have_no_spread_of_rounding():
    """One prompt varies, with two kinds of responses: c1 is 0, and a sign that is rounding would choose an optimum."""
    rng = np.random.default_rng(5)
    for scale in 10.0 ** rng.uniform(-3.0, 3.0, 200):
        rewards, scores = np.zeros((32, 16)), scale * rng.normal(size=(32, 16, 5))
        rewards[0, 0], scores[0, 1:] = 1.0, scores[0, 1]
        law = estimate_group_size_law(Rollouts(rewards, scores))
        assert law.c1 == 0.0
        assert law.optimum == np.inf
        rewards[1, 3] = 1.0
        assert abs(estimate_group_size_law(Rollouts(rewards, scores)).c1) > 1e-6 * abs(law.c3)
