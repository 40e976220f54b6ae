"""Moments of observations: against numpy's two passes, compiled and as plain Python, and set after set."""

from functools import reduce

import numpy as np
import pytest

import grpo_theory as gt
from grpo_theory.compiler import plain_python
from grpo_theory.compiler.lanes import WIDTH
from grpo_theory.simulate.covector.estimator_covectors import covectors_of
from grpo_theory.simulate.gradient_simulation import pairs_of
from grpo_theory.simulate.observe.moments import (
    AT_ONCE,
    Moments,
    fill_moments,
    make_moments,
    merge_moments,
)

NAMES = ("rloo", "grpo", "oracle", "optimal", "reinforce", "dr_grpo")
ARRAYS = ("means", "mse_scatter", "prompt_mse_scatter", "efficiency_scatter", "along_scatter")
POWER = 900.0
"""The squared length of the gradient that made-up observations are about."""
SHAPES = [(1, 0), (1, 2), (6, 0), (6, 2)]
COUNTS = [1, 2, WIDTH - 1, WIDTH, AT_ONCE, AT_ONCE + 1, 3 * AT_ONCE + WIDTH + 5]


def observe(n_estimators, n_directions, count, seed=0):
    """Make up observations (E, R, 4 + J) whose means are large against their deviations."""
    return 30.0 + np.random.default_rng(seed).normal(size=(n_estimators, count, 4 + n_directions)).cumsum(axis=2)


def two_passes(observations):
    """Return means, and sums of products of deviations, by numpy."""
    means = observations.mean(axis=1)
    deviations = observations - means[:, None, :]
    errors, prompt_errors, along = deviations[:, :, 0], deviations[:, :, 1], deviations[:, :, 4:]
    both = np.concatenate([deviations[:, :, 2], deviations[:, :, 3]])
    across = [np.einsum("er,fr->ef", one, one) for one in (errors, prompt_errors, both)]
    return means, *across, np.einsum("erj,erk->ejk", along, along)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("count", COUNTS)
def test_moments_are_those_of_two_passes(shape, count):
    """To 1e-13 of the largest of each array: sums are added up in another order."""
    observations = observe(*shape, count)
    found = gt.GradientSimulation.of(NAMES[: shape[0]], observations, POWER)
    assert found.replications == count
    for name, expected in zip(ARRAYS, two_passes(observations), strict=True):
        array = getattr(found, name)
        assert array.shape == expected.shape
        np.testing.assert_allclose(array, expected, rtol=0.0, atol=1e-13 * np.abs(expected).max(initial=0.0))
        assert name == "means" or np.array_equal(array, array.swapaxes(-1, -2))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("count", [1, WIDTH + 3, AT_ONCE + 1])
def test_compiled_moments_are_those_of_plain_python(shape, count):
    """To the same bits; what lies beyond the replications is not read."""
    n_estimators, n_rows = shape[0], 4 + shape[1]
    rows = np.full((n_estimators * n_rows, 3 * AT_ONCE), np.nan)
    rows[:, :count] = observe(*shape, count).transpose(0, 2, 1).reshape(-1, count)
    made = []
    for fill in (fill_moments.run, plain_python(fill_moments.function)):
        moments = make_moments(pairs_of(*shape), len(rows), 3)
        fill(rows.copy(), count, 1, moments)
        made.append(moments)
    for one, other in zip(*made, strict=True):
        np.testing.assert_array_equal(one, other)
    assert np.isfinite(made[0].products).all()
    assert made[0].counts.tolist() == [0, count, 0]
    assert not made[0].means[[0, 2]].any()


@pytest.mark.parametrize("shape", SHAPES)
def test_sets_are_merged_one_after_another(shape):
    """Compiled and as plain Python to the same bits, which are those of merging summaries; and close to all at once."""
    counts = [40, 1, WIDTH, 7]
    observations = observe(*shape, sum(counts))
    sets = np.split(observations, np.cumsum(counts)[:-1], axis=1)
    summaries = [gt.GradientSimulation.of(NAMES[: shape[0]], one, POWER) for one in sets]
    parts = [np.concatenate(arrays) for arrays in list(zip(*(one.to_moments() for one in summaries), strict=True))[1:]]
    moments = Moments(pairs_of(*shape), *parts)
    made = []
    for merge in (merge_moments.run, plain_python(merge_moments.function)):
        total = make_moments(moments.pairs, moments.means.shape[1])
        merge(total, moments)
        made.append(total)
    for one, other in zip(*made, strict=True):
        np.testing.assert_array_equal(one, other)
    merged = reduce(gt.GradientSimulation.merge, summaries)
    assert merged.replications == made[0].counts[0] == sum(counts)
    np.testing.assert_array_equal(merged.means.reshape(-1), made[0].means[0])
    np.testing.assert_array_equal(merged.to_moments().products, made[0].products)
    for name, expected in zip(ARRAYS, two_passes(observations), strict=True):
        tolerance = 1e-13 * np.abs(expected).max(initial=0.0)
        np.testing.assert_allclose(getattr(merged, name), expected, rtol=0.0, atol=tolerance)


def test_estimators_come_in_the_order_asked_for():
    """Those whose kernels are called are worked on before those with tables, and moments come in the order of the work."""
    problem = gt.gallery.problem("tabular")
    names = ["rloo", "optimal_loo", "grpo"]
    point, asked = problem.at(problem.theta), [gt.estimators()[name] for name in names]
    assert [one.name for covectors in covectors_of(point, point, asked, 2, 4) for one in covectors.estimators] != names
    sizes = {"batch_size": 2, "group_size": 4, "replications": 300, "rng": 1, "workers": 1, "directions": np.eye(24)[:2]}
    together = gt.simulate_gradients(problem, problem.theta, names, **sizes)
    for i, name in enumerate(names):
        alone = gt.simulate_gradients(problem, problem.theta, name, **sizes)
        np.testing.assert_array_equal(together.means[i], alone.means[0])
        np.testing.assert_array_equal(together.along_scatter[i], alone.along_scatter[0])
        assert together.mse_scatter[i, i] == alone.mse_scatter[0, 0]
        assert together.prompt_mse_scatter[i, i] == alone.prompt_mse_scatter[0, 0]
        own = np.ix_([i, len(names) + i], [i, len(names) + i])
        np.testing.assert_array_equal(together.efficiency_scatter[own], alone.efficiency_scatter)
