"""The compiled sums over a group: against plain Python, against numpy, and on the arrays that a user may hand over."""

import numpy as np
import pytest
from pilots import noise

from grpo_theory import Rollouts
from grpo_theory.intervals import u_statistics
from grpo_theory.intervals.u_statistics import centred, prompt_gradients, prompt_jackknife_variances, prompt_powers

FILLERS = {"gradients": (7, 3), "jackknife_variances": (7, 3), "powers": (7, 3)}


def numbers(n=7, group_size=5, width=3):
    rng = np.random.default_rng(4)
    return rng.exponential(size=(n, group_size)), 2.0 + rng.normal(size=(n, group_size, width))


@pytest.mark.parametrize("name", FILLERS)
def test_compiled_sums_agree_with_plain_python(name):
    filler = getattr(u_statistics, name)
    plain, compiled = (np.full(FILLERS[name], np.nan) for _ in range(2))
    filler.function(*numbers(), plain)
    filler(*numbers(), compiled)
    assert filler.dispatcher.py_func is filler.function
    np.testing.assert_allclose(compiled, plain, rtol=1e-12)


def test_compiled_deviations_agree_with_plain_python_and_with_numpy():
    _, values = numbers()
    plain, compiled = np.empty(values.shape), np.empty(values.shape)
    u_statistics.deviations.function(values, plain)
    u_statistics.deviations(values, compiled)
    np.testing.assert_allclose(compiled, plain, rtol=0, atol=1e-15)
    np.testing.assert_allclose(compiled, values - values.mean(axis=1, keepdims=True), rtol=0, atol=1e-15)


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -2, -3])
def test_values_are_centred_along_any_axis(axis):
    values = np.random.default_rng(5).normal(size=(4, 3, 5))
    expected = values - values.mean(axis=axis, keepdims=True)
    np.testing.assert_allclose(centred(values, axis), expected, rtol=0, atol=1e-15)
    np.testing.assert_allclose(centred(values.T, axis), (values - values.mean(axis=~axis, keepdims=True)).T, rtol=0, atol=1e-15)


def test_what_is_constant_is_exactly_zero_when_centred():
    assert (centred(np.full((3, 7), 0.1), 1) == 0.0).all()
    r = noise(6, responses=7)
    still = np.broadcast_to(r.scores[:, :1], r.scores.shape)
    assert (prompt_jackknife_variances(Rollouts(r.rewards, still)) == 0.0).all()
    assert (prompt_jackknife_variances(Rollouts(np.full(r.rewards.shape, 0.1), r.scores)) == 0.0).all()
    assert (prompt_gradients(Rollouts(np.full(r.rewards.shape, 0.1), r.scores)) == 0.0).all()
    assert (prompt_gradients(Rollouts(r.rewards, still)) == 0.0).all()
    assert (prompt_powers(Rollouts(r.rewards, still)).gradient == 0.0).all()


def test_statistics_do_not_depend_on_how_the_arrays_lie_in_memory():
    """Leading axes, transposed arrays, and arrays that must not be written on."""
    r = noise(7, 2, 4)
    turned = Rollouts(np.asfortranarray(r.rewards), np.asfortranarray(r.scores))
    for array in (r.rewards, r.scores):
        array.flags.writeable = False
    for statistic in (prompt_gradients, prompt_jackknife_variances, lambda rollouts: prompt_powers(rollouts).gradient):
        found = statistic(r)
        assert found.shape[:3] == r.rewards.shape[:3]
        assert np.array_equal(found, statistic(turned))
        assert np.array_equal(found[1, 2], statistic(Rollouts(r.rewards[1, 2], r.scores[1, 2])))


def test_what_is_kept_of_rollouts_is_of_these_rollouts_and_each_function_its_own():
    rewards, scores = numbers()
    first, others = (Rollouts(rewards, factor * scores) for factor in (1.0, 2.0))
    gradients, powers = prompt_gradients(first), prompt_powers(first)
    both = u_statistics.gradients_and_powers(Rollouts(rewards, scores))
    np.testing.assert_array_equal(gradients, both[0])
    np.testing.assert_array_equal(powers.gradient, both[1].gradient)
    assert prompt_gradients(first) is gradients
    assert not gradients.flags.writeable
    np.testing.assert_allclose(prompt_gradients(others), 2.0 * gradients, rtol=1e-14)
    np.testing.assert_allclose(u_statistics.gradients_and_powers(others)[1].gradient, 4.0 * powers.gradient, rtol=1e-12)
