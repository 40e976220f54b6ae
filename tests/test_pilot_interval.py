"""Intervals of the error and its components: definitions, enumeration, deletion, resamples built one by one, coverage."""

from functools import partial
from itertools import permutations

import numpy as np
import pytest
from enumeration import POLICIES, REWARDS, case, groups, prompts
from pilots import (
    REPLICATIONS,
    all_batches,
    assert_same,
    components,
    covariance_by_deletion,
    deviation,
    draw,
    gentle_case,
    informative,
    narrowed,
    noise,
    pick,
    shuffled,
    statistics_of_resamples,
    tiny_case,
    transformed,
)
from scipy.stats import t as student

import grpo_theory as gt
from grpo_theory import Rollouts
from grpo_theory.intervals import (
    components_bootstrap,
    components_jackknife,
    estimate_group_size_law,
    group_size_bootstrap,
    group_size_fieller,
    group_size_jackknife,
    mse_bootstrap,
    mse_jackknife,
)
from grpo_theory.intervals import u_statistics as components_module
from grpo_theory.intervals.u_statistics import FAR, prompt_gradients, prompt_powers, prompt_terms, studentised

bootstrap = partial(group_size_bootstrap, resamples=199, rng=5)
mse = partial(mse_jackknife, batch_size=3, group_size=7)
resampled = partial(components_bootstrap, resamples=199, rng=5)
resampled_mse = partial(mse_bootstrap, batch_size=3, group_size=7, resamples=199, rng=5)
SQUARES = (components_jackknife, mse, resampled, resampled_mse)
GROUP_SIZES = (group_size_jackknife, group_size_fieller, bootstrap)
POWERS = ("gradient", "advantage", "independent")


def test_functions_are_marked():
    assert all(
        f.vectorized
        for f in (
            components_jackknife,
            components_bootstrap,
            mse_jackknife,
            mse_bootstrap,
            group_size_jackknife,
            group_size_fieller,
            group_size_bootstrap,
        )
    )


def powers_by_definition(z, w):
    """The three means over distinct responses, written out."""
    four = list(permutations(range(len(z)), 4))
    kernel = {(i, j): (w[i] - w[j]) * (z[i] - z[j]) / 2.0 for i, j in permutations(range(len(z)), 2)}
    return (
        np.mean([kernel[i, j] @ kernel[k, m] for i, j, k, m in four]),
        np.mean([w[i] @ w[i] * (z[i] - z[j]) * (z[i] - z[k]) for i, j, k, _ in four]),
        np.mean([w[k] @ w[k] * (z[i] - z[j]) ** 2 / 2.0 for i, j, k, _ in four]),
    )


def test_powers_are_their_definitions():
    r = noise(1, responses=6)
    found = prompt_powers(r)
    expected = np.array([powers_by_definition(z, w) for z, w in zip(r.rewards, r.scores, strict=True)])
    for name, column in zip(POWERS, expected.T, strict=True):
        np.testing.assert_allclose(getattr(found, name), column, rtol=1e-11)


@pytest.mark.parametrize("penalty", ["plain", "kl"])
@pytest.mark.parametrize("rewards", REWARDS)
@pytest.mark.parametrize("policy", POLICIES)
def test_powers_are_unbiased(policy, rewards, penalty):
    for table in prompts(case(policy, rewards, penalty)):
        p, z, w = table.probabilities, table.rewards, table.scores
        index, weights = groups(table, 4)
        r = Rollouts(z[index][:, None], w[index][:, None])
        norms = (w**2).sum(axis=1)
        truth = (
            table.gradient @ table.gradient,
            p @ (norms * (z - table.value) ** 2),
            (p @ norms) * table.standard_deviation**2,
        )
        found = prompt_powers(r)
        for name, expected in zip(POWERS, truth, strict=True):
            assert weights @ getattr(found, name)[:, 0] == pytest.approx(expected, rel=1e-12, abs=1e-14)
        # The square of the estimate is not an estimate of the square.
        assert weights @ (prompt_gradients(r)[:, 0] ** 2).sum(axis=1) > 1.01 * truth[0]


def test_components_are_unbiased():
    c = tiny_case()
    law = gt.group_size_law(c.problem, c.theta)
    r, weights = all_batches(c, 2, 4)
    assert weights.sum() == pytest.approx(1.0, rel=1e-12)
    np.testing.assert_allclose(weights @ components(r), (law.c1, law.c2, law.c3), rtol=1e-11)
    assert weights @ estimate_group_size_law(r).mse(5, 9) == pytest.approx(law.mse(5, 9), rel=1e-11)
    # With the products of a prompt with itself, c1 comes out too small.
    plug_in = prompt_powers(r).gradient.mean(axis=1) - (prompt_gradients(r).mean(axis=1) ** 2).sum(axis=1)
    assert weights @ plug_in < 0.9 * law.c1


@pytest.mark.parametrize("seed", [1, 2])
def test_jackknife_against_deletion(seed):
    r = noise(seed)
    covariance = covariance_by_deletion(r)
    np.testing.assert_allclose(prompt_terms(r, 3).covariance(), covariance, rtol=1e-10)
    found = components_jackknife(r, 0.9)
    errors, t = np.sqrt(np.diagonal(covariance)), student.ppf(0.95, 5)
    np.testing.assert_allclose(found.low, np.maximum(components(r) - t * errors, 0.0), rtol=1e-10)
    np.testing.assert_allclose(found.high, np.maximum(components(r) + t * errors, 0.0), rtol=1e-10)
    weights = np.array([1 / 3, 1 / 21, 1 / 126])
    error = mse(r, level=0.9)
    assert error.estimate == pytest.approx(weights @ components(r), rel=1e-12)
    assert error.standard_error == pytest.approx(np.sqrt(weights @ covariance @ weights), rel=1e-10)


def test_bootstrap_of_the_components_against_resampled_rollouts():
    r = informative(5, prompts=9)
    found = components_bootstrap(r, 0.9, resamples=39, rng=8)
    for k, contrast in enumerate(np.eye(3)):
        statistics = statistics_of_resamples(r, contrast, 8, 39)
        limits = found.estimate[k] - found.standard_error[k] * statistics[[-2, 1]]
        np.testing.assert_allclose([found.low[k], found.high[k]], np.maximum(limits, 0.0), rtol=1e-8)
    weighed = mse_bootstrap(r, 3, 7, 0.9, resamples=39, rng=8)
    statistics = statistics_of_resamples(r, np.array([1 / 3, 1 / 21, 1 / 126]), 8, 39)
    limits = weighed.estimate - weighed.standard_error * statistics[[-2, 1]]
    np.testing.assert_allclose([weighed.low, weighed.high], np.maximum(limits, 0.0), rtol=1e-8)


@pytest.mark.parametrize("interval", SQUARES)
def test_squares_scale_by_squares(interval):
    r = noise(5)
    base, moved = interval(r), interval(transformed(r, -3.0, 11.0))
    for name in ("estimate", "standard_error", "low", "high"):
        np.testing.assert_allclose(getattr(moved, name), 9.0 * getattr(base, name), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("interval", [components_jackknife, mse, group_size_jackknife, group_size_fieller])
def test_order_does_not_matter(interval):
    r = informative(7, prompts=20)
    assert_same(interval(shuffled(r, 2)), interval(r), rtol=1e-9)


@pytest.mark.parametrize("interval", [*SQUARES, *GROUP_SIZES])
def test_many_datasets_are_each_as_alone(interval):
    many = informative(8, prompts=12)
    many = Rollouts(np.stack([many.rewards, noise(9, prompts=12).rewards]), np.stack([many.scores, noise(9, prompts=12).scores]))
    found = interval(many, level=0.9)
    for i in range(2):
        alone = interval(pick(many, i), level=0.9)
        for name in ("estimate", "standard_error", "low", "high"):
            np.testing.assert_allclose(getattr(found, name)[i], getattr(alone, name), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("interval", [*SQUARES, *GROUP_SIZES])
def test_constant_rewards(interval):
    r = noise(10, 3, prompts=8)
    rewards = r.rewards.copy()
    rewards[1] = 0.1
    with pytest.raises(ValueError, match="the prompts' terms of the error do not vary"):
        interval(Rollouts(rewards[1], r.scores[1]))
    low = interval(Rollouts(rewards, r.scores)).low.reshape(3, -1)
    np.testing.assert_array_equal(np.isnan(low).all(axis=1), [False, True, False])
    assert not np.isnan(low[[0, 2]]).any()


def test_bad_arguments():
    for interval in (*SQUARES, *GROUP_SIZES):
        with pytest.raises(ValueError, match="at least 3 prompts, got B = 2"):
            interval(noise(1, prompts=2))
        with pytest.raises(ValueError, match="at least 4 responses per prompt, got G = 3"):
            interval(noise(1, responses=3))
        with pytest.raises(ValueError, match="level must lie strictly"):
            interval(noise(1), level=1.0)
    with pytest.raises(ValueError, match=r"resamples must be at least .* = 39, got 38"):
        group_size_bootstrap(noise(1), resamples=38)
    with pytest.raises(ValueError, match="group_size must be finite and at least 2, got 1"):
        mse_jackknife(noise(1), 1, 1)
    with pytest.raises(ValueError, match="batch_size must be finite and at least 1, got 0"):
        mse_jackknife(noise(1), 0, 2)
    with pytest.raises(ValueError, match="single numbers"):
        mse_jackknife(noise(1), 1, [2, 3])


def test_coverage(seed):
    c = gentle_case()
    law = gt.group_size_law(c.problem, c.theta)
    r, _ = draw(c, REPLICATIONS, 120, 6, np.random.default_rng(seed(31)))
    for found, truth in ((components_jackknife(r), (law.c1, law.c2, law.c3)), (mse_jackknife(r, 1, 6), law.mse(1, 6))):
        covered = found.covers(truth)
        for share in covered.reshape(REPLICATIONS, -1).T:
            assert abs(deviation(share)) < 4.0
        for share in narrowed(found, np.asarray(truth)).reshape(REPLICATIONS, -1).T:
            assert deviation(share) < -4.0


def test_coverage_of_the_bootstrap(seed):
    c = gentle_case()
    law = gt.group_size_law(c.problem, c.theta)
    r, _ = draw(c, REPLICATIONS, 40, 16, np.random.default_rng(seed(37)))
    found = components_bootstrap(r, resamples=199, rng=seed(36))
    truth = np.array([law.c1, law.c2, law.c3])
    for share in found.covers(truth).T:
        assert abs(deviation(share)) < 4.0
    for share in narrowed(found, truth).T:
        assert deviation(share) < -4.0


@pytest.mark.parametrize("of_product", [[1.0], [0.0, -0.6]])
def test_compiled_statistics_of_resamples_agree_with_plain_python(of_product):
    """The last resample is of one prompt alone, which has no standard error."""
    rng = np.random.default_rng(12)
    counts = np.ascontiguousarray(rng.multinomial(8, np.full(8, 1 / 8), size=20).T, dtype=np.float64)
    counts[:, -1] = 8.0 * np.eye(8)[3]
    size = len(of_product)
    numbers = rng.normal(size=counts.shape), rng.normal(size=(size, 8)), np.array(of_product), np.full(size, 0.1)
    plain, compiled = (np.full((size, 20), np.nan) for _ in range(2))
    studentised.function(counts, *numbers, plain)
    studentised(counts, *numbers, compiled)
    np.testing.assert_allclose(compiled, plain, rtol=1e-12)
    assert (np.abs(compiled[:, -1]) == FAR).all()
    assert (np.abs(compiled[:, :-1]) < 100.0).all()


@pytest.mark.parametrize(("name", "shape"), [("products_of_pairs", (5,)), ("jackknife_covariances", (5, 3, 3))])
def test_compiled_moments_of_prompts_agree_with_plain_python(name, shape):
    rng = np.random.default_rng(13)
    function, arrays = getattr(components_module, name), [rng.normal(size=(5, 6, 4)), rng.normal(size=(5, 3, 6))]
    plain, compiled = np.full(shape, np.nan), np.full(shape, np.nan)
    for one, found in ((function.function, plain), (function, compiled)):
        one(*arrays[: len(function.signature.args) - 1], found)
    np.testing.assert_allclose(compiled, plain, rtol=1e-12, atol=1e-14)
