"""Intervals from rollouts: by definition, by enumeration, by deletion, by resamples built one by one, and their coverage."""

from functools import partial
from itertools import permutations

import numpy as np
import pilots
import pytest
from enumeration import POLICIES, REWARDS, case, groups, prompts
from hypothesis import given, settings
from hypothesis import strategies as st
from pilots import REPLICATIONS, draw, informative, noise, pick
from scipy.stats import beta, ttest_1samp
from scipy.stats import t as student
from statsmodels.stats.multivariate import test_mvmean as mean_test

import grpo_theory as gt
from grpo_theory import Rollouts, intervals
from grpo_theory.intervals.rollout_intervals import prompt_gradients, prompt_jackknife_variances, prompt_powers, prompt_terms

RESAMPLED = {"resamples": 199, "rng": 5}
OF_GRADIENT = (intervals.gradient_jackknife, intervals.gradient_between)
OF_VALUE = (intervals.value_naive, intervals.value_clustered)
SQUARES = (
    intervals.components_jackknife,
    partial(intervals.components_bootstrap, **RESAMPLED),
    partial(intervals.mse_jackknife, batch_size=3, group_size=7),
    partial(intervals.mse_bootstrap, batch_size=3, group_size=7, **RESAMPLED),
)
GROUP_SIZES = (intervals.group_size_jackknife, intervals.group_size_fieller, partial(intervals.group_size_bootstrap, **RESAMPLED))
ALL = (*OF_GRADIENT, *OF_VALUE, *SQUARES, *GROUP_SIZES)
SEEDS = st.integers(0, 10_000)


def close(found, expected, rtol=1e-10, atol=1e-13):
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=atol)


def test_statistics_are_their_definitions_over_distinct_responses():
    r = noise(1, responses=6)
    (gradient, advantage, independent), deleted = prompt_powers(r), prompt_jackknife_variances(r)
    for b, (z, w) in enumerate(zip(r.rewards, r.scores, strict=True)):
        h = {(i, j): (w[i] - w[j]) * (z[i] - z[j]) / 2.0 for i, j in permutations(range(6), 2)}
        four = list(permutations(range(6), 4))
        close(prompt_gradients(r)[b], np.mean(list(h.values()), axis=0))
        close(gradient[b], np.mean([h[i, j] @ h[k, m] for i, j, k, m in four]))
        close(advantage[b], np.mean([w[i] @ w[i] * (z[i] - z[j]) * (z[i] - z[k]) for i, j, k, _ in four]))
        close(independent[b], np.mean([w[k] @ w[k] * (z[i] - z[j]) ** 2 / 2.0 for i, j, k, _ in four]))
        without = [np.mean([one for pair, one in h.items() if i not in pair], axis=0) for i in range(6)]
        close(deleted[b], 5 / 6 * ((np.array(without) - np.mean(without, axis=0)) ** 2).sum(axis=0))


@pytest.mark.parametrize(("policy", "rewards"), [*((one, "graded") for one in POLICIES), *(("linear", one) for one in REWARDS)])
def test_statistics_have_the_stated_means_over_all_groups(policy, rewards):
    for table in prompts(case(policy, rewards, "kl")):
        p, z, w, size = table.probabilities, table.rewards, table.scores, 4
        index, weights = groups(table, size)
        r, norms = Rollouts(z[index][:, None], w[index][:, None]), (w**2).sum(axis=1)
        power = table.gradient @ table.gradient
        truth = (power, p @ (norms * (z - table.value) ** 2), (p @ norms) * table.standard_deviation**2)
        close(prompt_powers(r)[:, :, 0] @ weights, truth)
        close(weights @ prompt_gradients(r)[:, 0], table.gradient)
        oracle = p @ (w * (z - table.value)[:, None]) ** 2 - table.gradient**2
        second = table.standard_deviation**2 * (p @ w**2) + table.gradient**2
        close(weights @ prompt_jackknife_variances(r)[:, 0], oracle / size + 2.0 * second / (size * (size - 2)))


def test_components_are_unbiased_over_all_batches():
    c = pilots.tiny_case()
    law = gt.group_size_law(c.problem, c.theta)
    r, weights = pilots.all_batches(c, 2, 4)
    close(weights @ pilots.components(r), (law.c1, law.c2, law.c3))


def test_what_is_constant_is_exactly_zero_and_signs_are_not_rounding():
    rng = np.random.default_rng(5)
    for scale in 10.0 ** rng.uniform(-3.0, 3.0, 50):  # one prompt varies, with two kinds of responses: c1 is 0
        rewards, scores = np.zeros((32, 16)), scale * rng.normal(size=(32, 16, 5))
        rewards[0, 0], scores[0, 1:] = 1.0, scores[0, 1]
        law = intervals.estimate_group_size_law(Rollouts(rewards, scores))
        assert (law.c1, law.optimum) == (0.0, np.inf)


@settings(max_examples=5)
@given(seed=SEEDS)
def test_rewards_scale_and_shift_and_order_does_not_matter(seed):
    r, rng = informative(seed, prompts=20), np.random.default_rng(seed)
    order, within = rng.permutation(20), rng.permutation(5)
    moved = Rollouts(11.0 - 3.0 * r.rewards, r.scores)
    other = Rollouts(r.rewards[order][:, within], r.scores[order][:, within])
    for interval in ALL:
        base, found = interval(r, level=0.9), interval(moved, level=0.9)
        add, scale = {True: (11.0, -3.0)}.get(interval in OF_VALUE, (0.0, -3.0 if interval in OF_GRADIENT else 9.0))
        if interval in GROUP_SIZES:
            pilots.assert_same(found, base, rtol=1e-8)
            pilots.assert_same(interval(Rollouts(r.rewards, 5.0 * r.scores), level=0.9), base, rtol=1e-8)
        else:
            ends = (base.high, base.low) if scale < 0.0 else (base.low, base.high)
            close([found.low, found.high], add + scale * np.array(ends), rtol=1e-8, atol=1e-10)
        if getattr(interval, "keywords", {}).get("rng") is None:
            pilots.assert_same(interval(other, level=0.9), base, rtol=1e-8)


@pytest.mark.parametrize("interval", [*ALL, intervals.gradient_ellipsoid])
def test_many_datasets_are_each_as_alone_and_one_that_says_nothing_is_told(interval):
    many = informative(8, 3, prompts=12)
    many = Rollouts(np.where(np.arange(3)[:, None, None] == 1, 0.1, many.rewards), many.scores)
    found = interval(many, level=0.9)
    for i in (0, 2):
        alone = interval(pick(many, i), level=0.9)
        close(found.estimate[i], alone.estimate, rtol=1e-12)
        close(found.width[i], alone.width, rtol=1e-11)
        assert not np.isnan(alone.width).any()
    assert np.isnan(found.width[1]).all()
    assert not found.covers(found.estimate)[1].any()
    with pytest.raises(ValueError, match="not vary"):
        interval(pick(many, 1))
    with pytest.raises(ValueError, match="level must lie strictly between 0 and 1"):
        interval(pick(many, 0), level=1.0)


def test_bad_input(check_refused):
    check_refused(
        (lambda: intervals.gradient_jackknife(noise(1, responses=2)), "at least 3 responses per prompt"),
        (lambda: intervals.gradient_ellipsoid(noise(1, prompts=3)), "at least 4 prompts"),
        (lambda: intervals.components_jackknife(noise(1, prompts=2)), "at least 3 prompts"),
        (lambda: intervals.group_size_fieller(noise(1, responses=3)), "at least 4 responses per prompt"),
        (lambda: intervals.group_size_bootstrap(noise(1), resamples=38), "resamples must be at least .* = 39"),
        (lambda: intervals.mse_jackknife(noise(1), 1, 1), "group_size must be finite and at least 2"),
        (lambda: intervals.value_effective(Rollouts([[0.0, 1.5], [1.0, 1.0]])), "within the bounds 0 and 1, got 1.5"),
        (lambda: intervals.gradient_between(Rollouts(noise(1).rewards)), "rollouts must have scores .* rewards alone"),
    )


def test_limits_of_the_gradient_are_students_on_deleted_estimates():
    r = noise(2)
    size, variances = r.batch_size, prompt_jackknife_variances(r) / 36.0
    found, error = intervals.gradient_jackknife(r, 0.9), np.sqrt(variances.sum(axis=0))
    degrees = variances.sum(axis=0) ** 2 / (variances**2 / (r.group_size - 1)).sum(axis=0)
    close(found.high - prompt_gradients(r).mean(axis=0), student.ppf(0.95, degrees) * error)
    gradients = prompt_gradients(r)
    deleted = np.array([np.delete(gradients, b, 0).mean(axis=0) for b in range(size)])
    variance = (size - 1) / size * ((deleted - deleted.mean(axis=0)) ** 2).sum(axis=0)
    close(intervals.gradient_between(r).width, 2.0 * student.ppf(0.975, size - 1) * np.sqrt(variance))


def test_the_ellipsoid_is_that_of_an_independent_package_in_any_coordinates():
    r = noise(3, prompts=9)
    found, estimates = intervals.gradient_ellipsoid(r, 0.9), prompt_gradients(r)
    points = found.estimate + np.random.default_rng(1).normal(size=(50, 3)) * 0.6
    inside = np.array([bool(found.covers(x)) for x in points])
    np.testing.assert_array_equal(inside, [mean_test(estimates, x).pvalue >= 0.1 for x in points])
    assert 5 < inside.sum() < 45
    matrix = np.linalg.qr(np.random.default_rng(1).normal(size=(3, 3)))[0] @ np.diag([1.0, 10.0, 0.1])
    close(intervals.gradient_ellipsoid(r.along(matrix)).squared_distance(points @ matrix.T), found.squared_distance(points), 1e-8)
    moved = Rollouts(1.0 - 3.0 * r.rewards, r.scores)
    close(intervals.gradient_ellipsoid(moved).width, 3.0 * intervals.gradient_ellipsoid(r).width)


def test_components_and_error_are_those_of_deletion_and_of_resampled_rollouts():
    r, combination = informative(5, prompts=9), np.array([1 / 3, 1 / 21, 1 / 126])
    covariance, t = pilots.covariance_by_deletion(r), student.ppf(0.95, 8)
    close(prompt_terms(r, 3).covariance(), covariance)
    found = [interval(r, level=0.9) for interval in (SQUARES[0], SQUARES[2])]
    drawn = [partial(SQUARES[k], resamples=39, rng=8)(r, level=0.9) for k in (1, 3)]
    for k, contrast in enumerate([*np.eye(3), combination]):
        estimate, error = contrast @ pilots.components(r), np.sqrt(contrast @ covariance @ contrast)
        quantiles = pilots.statistics_of_resamples(r, contrast, 8, 39)[[-2, 1]]  # two of 39 in each tail
        for one, limits in ((found, (t, -t)), (drawn, quantiles)):
            low, high = (np.append(one[0].low, one[1].low)[k], np.append(one[0].high, one[1].high)[k])
            close([low, high], np.maximum(estimate - np.array(limits) * error, 0.0), rtol=1e-8)


@settings(max_examples=6)
@given(seed=SEEDS)
def test_fieller_accepts_the_ratios_that_a_t_test_accepts(seed):
    r = informative(seed, prompts=14) if seed % 2 else noise(seed, prompts=14)
    (c1, _, c3), covariance, t = pilots.components(r), pilots.covariance_by_deletion(r), student.ppf(0.95, 13)
    found = intervals.group_size_fieller(r, 0.9)
    ratios = np.geomspace(1e-3, 1e6, 400)
    contrasts = np.stack([-ratios, np.zeros(400), np.ones(400)], axis=1)
    errors = np.sqrt(np.einsum("ni,ij,nj->n", contrasts, covariance, contrasts))
    accepted = np.abs(max(c3, 0.0) - ratios * max(c1, 0.0)) <= t * errors * (1.0 + 1e-7)
    inside = (1.0 + np.sqrt(ratios) >= found.low * (1 - 1e-9)) & (1.0 + np.sqrt(ratios) <= found.high * (1 + 1e-9))
    assert (inside >= accepted).all()
    assert np.isinf(found.high) == (c1 <= t * np.sqrt(covariance[0, 0]))


def test_limits_of_the_group_size_by_the_delta_method_and_by_resamples():
    r = informative(3, prompts=40, responses=12)
    c, covariance = pilots.components(r), pilots.covariance_by_deletion(r)
    slopes = np.array([-1.0 / c[0], 0.0, 1.0 / c[2]])
    error = np.sqrt(slopes @ covariance @ slopes)
    found, half = intervals.group_size_jackknife(r, 0.9), student.ppf(0.95, 39) * error
    limits = [1.0 + np.sqrt(c[2] / c[0] * np.exp(side * half)) for side in (-1, 0, 1)]
    close([found.low, found.estimate, found.high], limits)
    close(found.standard_error, np.sqrt(c[2] / c[0]) / 2.0 * error)
    drawn = intervals.group_size_bootstrap(r, 0.9, resamples=39, rng=8)
    statistics = pilots.statistics_of_resamples(r, np.array([-c[2] / c[0], 0.0, 1.0]), 8, 39)
    for limit, quantile in ((drawn.low, statistics[-2]), (drawn.high, statistics[1])):
        at = np.array([-((limit - 1.0) ** 2), 0.0, 1.0])
        assert at @ c / np.sqrt(at @ covariance @ at) == pytest.approx(quantile, rel=1e-8)


def test_without_a_positive_estimate_there_is_no_limit():
    many = noise(7, 60, prompts=4)
    found, negative = intervals.group_size_jackknife(many), intervals.estimate_group_size_law(many).c1 <= 0.0
    assert 0 < negative.sum() < 60
    np.testing.assert_array_equal(np.isinf(found.estimate), negative)
    assert (np.array([found.low, found.high])[:, negative] == [[1.0], [np.inf]]).all()
    assert "c1 = 0" in found.note


def korn_graubard(rewards, level):
    """The paper's recipe, step by step, for one dataset."""
    (b, n), m = (len(rewards), rewards.size), rewards.mean()
    s = rewards.mean(axis=1).std(ddof=1) / np.sqrt(b)
    effective = min(max(m * (1 - m) / s**2, b), n) if 0.0 < m < 1.0 and s > 0.0 else n if s == 0.0 < m < 1.0 else b
    effective *= (student.ppf((1 - level) / 2, n - 1) / student.ppf((1 - level) / 2, b - 1)) ** 2
    x = m * effective
    low = beta.ppf((1 - level) / 2, x, effective - x + 1) if m > 0.0 else 0.0
    return low, beta.ppf((1 + level) / 2, x + 1, effective - x) if m < 1.0 else 1.0


def test_limits_of_the_value_are_students_and_korn_and_graubards():
    r = noise(1)
    for interval, sample in zip(OF_VALUE, (r.rewards.ravel(), r.rewards.mean(axis=1)), strict=True):
        expected = ttest_1samp(sample, 0.0).confidence_interval(0.9)
        close([interval(r, 0.9).low, interval(r, 0.9).high], [expected.low, expected.high], rtol=1e-12)
    clumped, alternating = np.repeat([[0.0] * 4, [1.0] * 4], 3, axis=0), np.array([[0.0, 1.0, 0.0, 1.0]] * 6)
    clustered = (np.random.default_rng(0).random((9, 5)) < np.random.default_rng(1).beta(0.5, 1.0, (9, 1))) * 1.0
    for rewards in (clustered, clumped, alternating, np.zeros((5, 8)), np.ones((5, 8))):
        found, turned = intervals.value_effective(Rollouts(rewards), 0.9), Rollouts(3.0 - 4.0 * rewards)
        close((found.low, found.high), korn_graubard(rewards, 0.9))
        moved = intervals.value_effective(turned, 0.9, bounds=(-1.0, 3.0))
        expected = 4.0 * np.array([-found.high, -found.low, found.standard_error]) + [3, 3, 0]
        close((moved.low, moved.high, moved.standard_error), expected)
        counts = gt.RewardCounts.from_rewards(np.repeat(np.arange(len(rewards)), rewards.shape[1]), rewards.ravel())
        close(gt.plan.effective_sample_size(counts, level=0.9).mean_reward.high, found.high)


def assert_covers(found, truth):
    for covered, narrow in zip(*(np.atleast_2d(x.T) for x in (found.covers(truth), pilots.narrowed(found, truth))), strict=True):
        assert abs(pilots.deviation(covered)) < 4.0
        assert pilots.deviation(narrow) < -4.0


def test_coverage_of_the_gradient(seed):
    """Between prompts, within them, and jointly; what is true within prompts is not between them."""
    c = case("linear", "binary")
    f, tables = c.bandit.prompt_weights, prompts(c)
    each = np.stack([t.gradient for t in tables])
    truth, along = f @ each, np.linalg.svd(np.concatenate([t.scores for t in tables]))[2][:2]
    r, _ = draw(c, REPLICATIONS, 100, 8, np.random.default_rng(seed(11)))
    assert_covers(intervals.gradient_between(r.along(np.eye(r.scores.shape[-1])[:1])), truth[:1])
    joint = intervals.gradient_ellipsoid(r.along(along))
    assert abs(pilots.deviation(joint.covers(along @ truth))) < 4.0
    assert pilots.deviation(joint.squared_distance(along @ truth) <= 0.81 * joint.squared_radius) < -4.0
    assert pilots.deviation(intervals.gradient_jackknife(r).covers(truth)[:, 0]) < -4.0
    r, drawn = draw(c, REPLICATIONS, 16, 96, np.random.default_rng(seed(13)))
    assert_covers(intervals.gradient_jackknife(r.along(np.eye(r.scores.shape[-1])[:1])), each[drawn].mean(axis=1)[:, :1])


def test_coverage_of_components_error_and_group_size(seed):
    c = pilots.gentle_case()
    law = gt.group_size_law(c.problem, c.theta)
    r, _ = draw(c, REPLICATIONS, 100, 16, np.random.default_rng(seed(33)))
    assert_covers(intervals.components_jackknife(r), np.array([law.c1, law.c2, law.c3]))
    assert_covers(intervals.mse_jackknife(r, 1, 6), law.mse(1, 6))
    few, _ = draw(c, REPLICATIONS, 40, 16, np.random.default_rng(seed(34)))
    assert_covers(intervals.components_bootstrap(few, resamples=199, rng=seed(36)), np.array([law.c1, law.c2, law.c3]))
    resampled = intervals.group_size_bootstrap(few, resamples=199, rng=seed(35))
    for found in (intervals.group_size_jackknife(r), intervals.group_size_fieller(r), resampled):
        ends = (np.log(one - 1.0) for one in (found.estimate, found.low, found.high))  # symmetric on the scale of log(c3/c1)
        assert_covers(gt.Interval(next(ends), found.standard_error, *ends, 0.95), np.log(law.optimum - 1.0))


def test_coverage_of_the_value(seed):
    c, rng = case("linear", "graded"), np.random.default_rng(seed(22))
    truth = c.bandit.prompt_weights @ [t.value for t in prompts(c)]
    r, _ = draw(c, REPLICATIONS, 64, 8, np.random.default_rng(seed(21)))
    assert_covers(intervals.value_clustered(r), truth)
    assert pilots.deviation(intervals.value_naive(r).covers(truth)) < -4.0
    # Nine prompts in ten never succeed, the tenth once in ten: Student's t fails, the effective size does not.
    chances = np.where(rng.random((REPLICATIONS, 48, 1)) < 0.1, 0.1, 0.0)
    rare = Rollouts((rng.random((REPLICATIONS, 48, 8)) < chances) * 1.0)
    assert pilots.deviation(intervals.value_effective(rare).covers(0.01)) > -4.0
    assert pilots.deviation(intervals.value_clustered(rare).covers(0.01)) < -4.0
