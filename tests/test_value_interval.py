"""Intervals of the value: against textbook formulae, at no success at all, and their coverage."""

import numpy as np
import pytest
from enumeration import case, prompts
from pilots import REPLICATIONS, assert_same, deviation, draw, narrowed, noise, pick, shuffled, transformed
from scipy.stats import beta, ttest_1samp
from scipy.stats import t as student

import grpo_theory as gt
from grpo_theory import Rollouts
from grpo_theory.intervals import value_clustered, value_effective, value_naive

STUDENTS = (value_naive, value_clustered)


def binary(seed, *leading, prompts=9, responses=5):
    """Rewards 0 and 1 that cluster by prompt."""
    rng = np.random.default_rng(seed)
    chances = rng.beta(0.5, 1.0, size=(*leading, prompts, 1))
    rewards = (rng.random((*leading, prompts, responses)) < chances).astype(float)
    return Rollouts(rewards, np.zeros((*rewards.shape, 1)))


def of_rewards(rewards):
    """Rollouts of which only the rewards matter."""
    rewards = np.asarray(rewards, dtype=float)
    return Rollouts(rewards, np.zeros((*rewards.shape, 1)))


def test_against_student():
    r = noise(1)
    for interval, sample in ((value_naive, r.rewards.ravel()), (value_clustered, r.rewards.mean(axis=1))):
        expected = ttest_1samp(sample, 0.0).confidence_interval(0.9)
        found = interval(r, 0.9)
        np.testing.assert_allclose([found.low, found.high], [expected.low, expected.high], rtol=1e-12)


def korn_graubard(rewards, level):
    """The paper's recipe, step by step, for one dataset with successes and failures."""
    b, n = len(rewards), rewards.size
    m = rewards.mean()
    s = rewards.mean(axis=1).std(ddof=1) / np.sqrt(b)
    effective = (
        min(max(m * (1 - m) / s**2, b), n) * (student.ppf((1 - level) / 2, n - 1) / student.ppf((1 - level) / 2, b - 1)) ** 2
    )
    x = m * effective
    return beta.ppf((1 - level) / 2, x, effective - x + 1), beta.ppf((1 + level) / 2, x + 1, effective - x)


@pytest.mark.parametrize("seed", range(4))
def test_effective_against_the_recipe(seed):
    r = binary(seed)
    found = value_effective(r, 0.9)
    np.testing.assert_allclose((found.low, found.high), korn_graubard(r.rewards, 0.9), rtol=1e-10)


def test_effective_size_is_kept_within_its_range():
    alternating = of_rewards([[0, 1, 0, 1]] * 6)
    clumped = of_rewards([[0] * 4] * 3 + [[1] * 4] * 3)
    for r in (alternating, clumped):
        found = value_effective(r)
        size = {True: 24, False: 6}[r is alternating] * (student.ppf(0.975, 23) / student.ppf(0.975, 5)) ** 2
        np.testing.assert_allclose(found.high, beta.ppf(0.975, size / 2 + 1, size / 2), rtol=1e-10)


def test_limits_of_success_rates_are_success_rates():
    """Student's are not, and say so; the planner has the same limits as the interval that is recommended."""
    found = value_clustered(of_rewards([[1, 1, 1], [1, 1, 1], [1, 1, 0]]))
    assert found.high > 1.3
    assert "value_effective" in found.note
    assert value_clustered(binary(1)).note == ""
    for rewards in (np.array([[1, 1, 1], [1, 1, 1], [1, 1, 0]]), np.zeros((10, 3)), binary(2).rewards):
        counts = gt.RewardCounts.from_rewards(np.repeat(np.arange(len(rewards)), rewards.shape[1]), rewards.ravel())
        effective, planned = value_effective(of_rewards(rewards)), gt.plan.effective_sample_size(counts).mean_reward
        assert 0.0 <= effective.low < effective.high <= 1.0
        np.testing.assert_allclose([planned.low, planned.high], [effective.low, effective.high], rtol=1e-12)


def test_effective_limits_scale_with_the_bounds():
    r = binary(6)
    base, moved = value_effective(r), value_effective(transformed(r, 4.0, -1.0), bounds=(-1.0, 3.0))
    for name in ("estimate", "low", "high"):
        np.testing.assert_allclose(getattr(moved, name), 4.0 * getattr(base, name) - 1.0, rtol=1e-12)
    assert value_effective(r, bounds=(0.0, 2.0)).width > base.width


@pytest.mark.parametrize(("prompts", "responses"), [(5, 1), (5, 8), (40, 8)])
def test_no_success(prompts, responses):
    found = value_effective(of_rewards(np.zeros((prompts, responses))))
    assert found.low == 0.0
    # However prompts differ, no success at all is no likelier at the limit than the tail's probability.
    assert (1.0 - found.high) ** prompts <= 0.025 * (1.0 + 1e-9)
    mirrored = value_effective(of_rewards(np.ones((prompts, responses))))
    assert mirrored.high == 1.0
    assert mirrored.low == pytest.approx(1.0 - found.high, rel=1e-10)


@pytest.mark.parametrize("interval", STUDENTS)
def test_equivariance(interval):
    r = noise(2)
    base, moved = interval(r), interval(transformed(r, -2.0, 5.0))
    np.testing.assert_allclose(
        [moved.estimate, moved.low, moved.high], 5.0 - 2.0 * np.array([base.estimate, base.high, base.low])
    )
    assert_same(interval(shuffled(r, 1)), base)


def test_effective_takes_failures_for_successes():
    r = binary(3)
    base, mirrored = value_effective(r), value_effective(transformed(r, -1.0, 1.0))
    np.testing.assert_allclose([mirrored.low, mirrored.high], 1.0 - np.array([base.high, base.low]), rtol=1e-10)
    assert_same(value_effective(shuffled(r, 1)), base)


@pytest.mark.parametrize("interval", [*STUDENTS, value_effective])
def test_many_datasets_are_each_as_alone(interval):
    many = binary(4, 2, 3)
    found = interval(many, 0.9)
    assert interval.vectorized
    for i in np.ndindex(2, 3):
        alone = interval(pick(many, i), 0.9)
        np.testing.assert_allclose([found.low[i], found.high[i]], [alone.low, alone.high], rtol=1e-12)


@pytest.mark.parametrize(
    ("interval", "what"), [(value_naive, "the rewards do"), (value_clustered, "the prompts' mean rewards do")]
)
def test_constant_rewards(interval, what):
    rewards = binary(5, 3).rewards.copy()
    rewards[1] = 0.1
    with pytest.raises(ValueError, match=what + " not vary"):
        interval(of_rewards(rewards[1]))
    np.testing.assert_array_equal(np.isnan(interval(of_rewards(rewards)).low), [False, True, False])


def test_bad_arguments():
    with pytest.raises(ValueError, match="at least 2 prompts, got B = 1"):
        value_clustered(noise(1, prompts=1))
    with pytest.raises(ValueError, match="at least 2 prompts, got B = 1"):
        value_effective(binary(1, prompts=1))
    with pytest.raises(ValueError, match="at least 2 rewards"):
        value_naive(noise(1, prompts=1, responses=1))
    with pytest.raises(ValueError, match=r"rewards must lie within the bounds 0 and 1, got 1.5"):
        value_effective(of_rewards([[0.0, 1.5], [1.0, 1.0]]))
    for bounds in ((1.0, 1.0), (0.0, np.inf), (0.0,)):
        with pytest.raises(ValueError, match="bounds must be the least and the largest reward"):
            value_effective(binary(1), bounds=bounds)
    for interval in (*STUDENTS, value_effective):
        with pytest.raises(ValueError, match="level must lie strictly"):
            interval(binary(1), 1.0)
    with pytest.raises(ValueError, match="rewards must be finite, got nan"):
        of_rewards([[0.0, np.nan]])


def test_coverage(seed):
    c = case("linear", "graded")
    truth = c.bandit.prompt_weights @ [t.value for t in prompts(c)]
    r, _ = draw(c, REPLICATIONS, 64, 8, np.random.default_rng(seed(21)))
    found = value_clustered(r)
    assert abs(deviation(found.covers(truth))) < 4.0
    assert deviation(narrowed(found, truth)) < -4.0
    # Responses to one prompt are not independent: the naive interval misses.
    assert deviation(value_naive(r).covers(truth)) < -4.0


def test_coverage_of_rare_success(seed):
    """Nine prompts in ten never succeed, the tenth once in ten: Student's t fails, the effective size does not."""
    rng = np.random.default_rng(seed(22))
    chances = np.where(rng.random((REPLICATIONS, 48, 1)) < 0.1, 0.1, 0.0)
    r = of_rewards(rng.random((REPLICATIONS, 48, 8)) < chances)
    assert deviation(value_effective(r).covers(0.01)) > -4.0
    assert deviation(value_clustered(r).covers(0.01)) < -4.0
