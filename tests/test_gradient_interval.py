"""Confidence sets of the gradient: against explicit deletion, exact moments, an independent package, and their coverage."""

import numpy as np
import pytest
from enumeration import case, groups, prompts
from pilots import REPLICATIONS, assert_same, deviation, draw, narrowed, noise, pick, shuffled, transformed
from scipy.stats import norm as normal
from scipy.stats import t as student
from statsmodels.stats.multivariate import test_mvmean as mean_test

from grpo_theory import Rollouts
from grpo_theory.intervals import gradient_between, gradient_ellipsoid, gradient_jackknife
from grpo_theory.intervals.u_statistics import prompt_gradients, prompt_jackknife_variances

INTERVALS = (gradient_jackknife, gradient_between)
SETS = (*INTERVALS, gradient_ellipsoid)


def u_statistic(rewards, scores):
    """The mean of h(i, j) over pairs of different responses."""
    n = len(rewards)
    pairs = [(scores[i] - scores[j]) * (rewards[i] - rewards[j]) / 2.0 for i in range(n) for j in range(n) if i != j]
    return np.mean(pairs, axis=0)


def test_estimate_and_jackknife_against_deletion():
    r = noise(1)
    n = r.group_size
    estimates, variances = [], []
    for z, w in zip(r.rewards, r.scores, strict=True):
        deleted = np.array([u_statistic(np.delete(z, i), np.delete(w, i, axis=0)) for i in range(n)])
        estimates.append(u_statistic(z, w))
        variances.append((n - 1) / n * ((deleted - deleted.mean(axis=0)) ** 2).sum(axis=0))
    estimates, variances = np.array(estimates), np.array(variances)
    np.testing.assert_allclose(prompt_gradients(r), estimates, rtol=1e-12)
    np.testing.assert_allclose(prompt_jackknife_variances(r), variances, rtol=1e-12)
    found = gradient_jackknife(r, 0.9)
    error = np.sqrt(variances.sum(axis=0)) / r.batch_size
    degrees = variances.sum(axis=0) ** 2 / (variances**2 / (n - 1)).sum(axis=0)
    np.testing.assert_allclose(found.standard_error, error, rtol=1e-12)
    np.testing.assert_allclose(found.high - estimates.mean(axis=0), student.ppf(0.95, degrees) * error, rtol=1e-10)


def test_between_is_the_jackknife_that_deletes_prompts():
    r = noise(2)
    size = r.batch_size
    deleted = [gradient_between(Rollouts(np.delete(r.rewards, b, 0), np.delete(r.scores, b, 0))).estimate for b in range(size)]
    variance = (size - 1) / size * ((np.array(deleted) - np.mean(deleted, axis=0)) ** 2).sum(axis=0)
    found = gradient_between(r)
    np.testing.assert_allclose(found.standard_error, np.sqrt(variance), rtol=1e-12)
    np.testing.assert_allclose(found.width, 2.0 * student.ppf(0.975, size - 1) * found.standard_error, rtol=1e-12)


@pytest.mark.parametrize("rewards", ["binary", "graded"])
@pytest.mark.parametrize("group_size", [3, 4])
def test_mean_of_the_jackknife_variance(rewards, group_size):
    c = case("linear", rewards)
    for table in prompts(c):
        p, z, w = table.probabilities, table.rewards, table.scores
        index, weights = groups(table, group_size)
        found = weights @ prompt_jackknife_variances(Rollouts(z[index][:, None], w[index][:, None]))[:, 0]
        oracle = p @ (w * (z - table.value)[:, None]) ** 2 - table.gradient**2
        second = table.standard_deviation**2 * (p @ w**2) + table.gradient**2
        expected = oracle / group_size + 2.0 * second / (group_size * (group_size - 2))
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)
        estimates = prompt_gradients(Rollouts(z[index][:, None], w[index][:, None]))[:, 0]
        np.testing.assert_allclose(weights @ estimates, table.gradient, rtol=1e-12, atol=1e-14)
        # It is not unbiased: the variance itself is smaller, where there is any.
        variance = weights @ estimates**2 - table.gradient**2
        assert (found > 1.05 * variance)[variance > 1e-9].all()


def test_ellipsoid_against_an_independent_package():
    r = noise(3, prompts=12)
    found = gradient_ellipsoid(r, 0.9)
    estimates = prompt_gradients(r)
    rng = np.random.default_rng(0)
    points = found.estimate + rng.normal(size=(50, 3)) * 0.6
    inside = np.array([bool(found.covers(x)) for x in points])
    np.testing.assert_array_equal(inside, [mean_test(estimates, x).pvalue >= 0.1 for x in points])
    assert 5 < inside.sum() < 45


@pytest.mark.parametrize("interval", INTERVALS)
def test_equivariance(interval):
    r = noise(4)
    base, moved = interval(r), interval(transformed(r, -2.5, 7.0))
    np.testing.assert_allclose(moved.estimate, -2.5 * base.estimate, rtol=1e-10)
    np.testing.assert_allclose(moved.low, -2.5 * base.high, rtol=1e-10, atol=1e-12)
    assert_same(interval(shuffled(r, 1)), base)
    directions = np.array([[1.0, 2.0, 0.0], [0.0, 0.0, -1.0]])
    np.testing.assert_allclose(interval(r.along(directions)).estimate, directions @ base.estimate, rtol=1e-12)
    np.testing.assert_allclose(interval(r.along(directions)).low[1], -base.high[2], rtol=1e-12)


def test_ellipsoid_is_invariant():
    r = noise(5, prompts=9)
    rotation = np.linalg.qr(np.random.default_rng(1).normal(size=(3, 3)))[0]
    shears = rotation @ np.diag([1.0, 10.0, 0.1])
    base = gradient_ellipsoid(r)
    for matrix in (rotation, shears):
        turned = gradient_ellipsoid(r.along(matrix))
        for x in np.random.default_rng(2).normal(size=(5, 3)):
            assert turned.squared_distance(matrix @ x) == pytest.approx(base.squared_distance(x), rel=1e-9)
    assert gradient_ellipsoid(transformed(r, 3.0, 1.0)).width == pytest.approx(3.0 * base.width, rel=1e-10)
    assert gradient_ellipsoid(shuffled(r, 3)).width == pytest.approx(base.width, rel=1e-10)


@pytest.mark.parametrize("interval", SETS)
def test_many_datasets_are_each_as_alone(interval):
    many = noise(6, 2, 3, prompts=7)
    found = interval(many, 0.9)
    assert interval.vectorized
    for i in np.ndindex(2, 3):
        alone = interval(pick(many, i), 0.9)
        np.testing.assert_allclose(found.estimate[i], alone.estimate, rtol=1e-12)
        np.testing.assert_allclose(found.width[i], alone.width, rtol=1e-12)


def degenerate(seed=7):
    """Six datasets, the second with constant rewards."""
    r = noise(seed, 3, prompts=7)
    rewards = r.rewards.copy()
    rewards[1] = 0.1
    return Rollouts(rewards, r.scores)


@pytest.mark.parametrize(
    ("interval", "message"),
    [(gradient_jackknife, "do not vary"), (gradient_between, "do not vary"), (gradient_ellipsoid, "unit vector")],
)
def test_constant_rewards(interval, message):
    r = degenerate()
    with pytest.raises(ValueError, match=message):
        interval(pick(r, 1))
    covered = interval(r).covers(interval(r).estimate)
    np.testing.assert_array_equal(covered.reshape(3, -1).all(axis=1), [True, False, True])
    assert not covered[1].any()
    np.testing.assert_array_equal(np.isnan(interval(r).width).reshape(3, -1).all(axis=1), [False, True, False])


def test_singular_ellipsoid_names_the_direction():
    r = noise(8, prompts=9)
    flat = r.along(np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [-3.0, 4.0, 0.0]]))
    with pytest.raises(ValueError, match="unit vector") as caught:
        gradient_ellipsoid(flat)
    vector = np.array([float(x) for x in str(caught.value).split("[")[1].split("]")[0].split(",")])
    np.testing.assert_allclose(vector * np.sign(vector[0]), np.array([3.0, -4.0, 1.0]) / np.sqrt(26.0), atol=1e-4)
    null = r.along(np.array([[1.0, 0.0, 0.0], [1e-17, 0.0, 0.0]]))
    with pytest.raises(ValueError, match="unit vector"):
        gradient_ellipsoid(null)


@pytest.mark.parametrize("interval", INTERVALS)
def test_a_direction_that_is_flat_but_for_rounding_says_nothing(interval):
    """Scores of a softmax have sum 0, and in double precision nearly so."""
    raw = noise(11).scores
    r = Rollouts(noise(11).rewards, raw - raw.mean(axis=-1, keepdims=True))
    assert (r.scores.sum(axis=-1) != 0.0).any()
    with pytest.raises(ValueError, match="do not vary in component 1: they give no standard error"):
        interval(r.along(np.array([[1.0, 0.0, 0.0], [1.0, 1.0, 1.0]])))
    assert (interval(r.along(np.array([[1.0, 1.0, 1.0 + 1e-9]]))).width > 0.0).all()


def test_bad_arguments():
    with pytest.raises(ValueError, match="at least 3 responses per prompt, got G = 2"):
        gradient_jackknife(noise(1, responses=2))
    with pytest.raises(ValueError, match="at least 2 prompts, got B = 1"):
        gradient_between(noise(1, prompts=1))
    with pytest.raises(ValueError, match="at least 4 prompts, got B = 3"):
        gradient_ellipsoid(noise(1, prompts=3))
    for level in (0.0, 1.0, -1, 95, float("nan"), "high", True):
        for interval in SETS:
            with pytest.raises(ValueError, match="level must lie strictly between 0 and 1"):
                interval(noise(1), level)
    for directions in (np.ones(3), np.ones((2, 4))):
        with pytest.raises(ValueError, match="directions must have"):
            noise(1).along(directions)


def gradients_of(c):
    """The prompts' gradients (M, d), and the population's."""
    found = np.stack([t.gradient for t in prompts(c)])
    return found, c.bandit.prompt_weights @ found


def test_coverage_between_prompts(seed):
    c = case("linear", "binary")
    _, truth = gradients_of(c)
    r, _ = draw(c, REPLICATIONS, 64, 8, np.random.default_rng(seed(11)))
    found = gradient_between(r)
    assert abs(deviation(found.covers(truth)[:, 0])) < 4.0
    assert deviation(narrowed(found, truth)[:, 0]) < -4.0


def test_limit_of_the_coverage_within_prompts(seed):
    """What share of the population's gradients the jackknife within prompts covers follows from the components."""
    c, size = case("linear", "binary"), 8
    each, truth = gradients_of(c)
    f = c.bandit.prompt_weights
    oracle = [t.probabilities @ (t.scores * (t.rewards - t.value)[:, None]) ** 2 - t.gradient**2 for t in prompts(c)]
    second = [t.standard_deviation**2 * (t.probabilities @ t.scores**2) + t.gradient**2 for t in prompts(c)]
    c1, c2, c3 = f @ each**2 - truth**2, f @ np.array(oracle), f @ np.array(second)
    within = c2 / size + c3 / (size * (size - 1))
    seen = c2 / size + 2.0 * c3 / (size * (size - 2))
    level = 2.0 * normal.cdf(normal.ppf(0.975) * np.sqrt(seen / (within + c1))) - 1.0
    r, _ = draw(c, REPLICATIONS, 100, size, np.random.default_rng(seed(14)))
    covered = gradient_jackknife(r).covers(truth)
    for share, expected in zip(covered.T, level, strict=True):
        assert abs(deviation(share, expected)) < 4.0
    assert deviation(covered[:, 0], 0.95) < -4.0


def test_coverage_within_prompts(seed):
    """Large groups, for the jackknife's variance is too large in the second order."""
    c = case("linear", "binary")
    each, truth = gradients_of(c)
    r, drawn = draw(c, REPLICATIONS, 16, 96, np.random.default_rng(seed(13)))
    found, at_hand = gradient_jackknife(r), each[drawn].mean(axis=1)
    assert abs(deviation(found.covers(at_hand)[:, 0])) < 4.0
    assert deviation(narrowed(found, at_hand)[:, 0]) < -4.0
    # Responses alone do not tell how prompts differ: the population's gradient is missed.
    assert deviation(found.covers(truth)[:, 0]) < -4.0


def test_coverage_of_the_ellipsoid(seed):
    c = case("linear", "binary")
    _, truth = gradients_of(c)
    directions = np.linalg.svd(np.concatenate([t.scores for t in prompts(c)]))[2][:2]
    r, _ = draw(c, REPLICATIONS, 200, 4, np.random.default_rng(seed(12)))
    found = gradient_ellipsoid(r.along(directions))
    assert abs(deviation(found.covers(directions @ truth))) < 4.0
    assert deviation(found.squared_distance(directions @ truth) <= 0.9**2 * found.squared_radius) < -4.0
