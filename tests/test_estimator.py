"""The named kernels: formulas, invariances, and their compiled twins."""

import numpy as np
import pytest
from enumeration import NAMED
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import grpo_theory as gt
from grpo_theory.estimation.kernel import Batch

REWARDS = arrays(np.float64, (2, 5), elements=st.floats(-10, 10, width=32))


def make_batch(rewards, norms=None, parameters=(1e-4,)):
    rewards = np.array(rewards, dtype=np.float64, order="C")
    n = len(rewards)
    norms = np.ones(rewards.shape) if norms is None else np.array(norms, dtype=np.float64, order="C")
    oracles = np.linspace(0.1, 0.3, n), np.linspace(0.5, 0.7, n), np.linspace(-0.2, 0.4, n)
    return Batch(rewards, norms, np.ones(rewards.shape, dtype=np.int64), *oracles, np.array(parameters, dtype=np.float64))


def fill(name, batch):
    out = np.full(batch.rewards.shape, np.nan)
    gt.estimators()[name].advantage.kernel(batch, out)
    return out


def others(row):
    """Yield each entry with the array of the rest of its group."""
    return [(row[g], np.delete(row, g)) for g in range(len(row))]


def transcriptions(batch):
    """Transcribe the formulas of the papers, one response at a time."""
    z, w2 = batch.rewards, batch.squared_score_norms
    rows = range(len(z))

    def weighted_mean(b, g):
        return np.average(np.delete(z[b], g), weights=np.delete(w2[b], g))

    return {
        "reinforce": z,
        "oracle": z - batch.values[:, None],
        "optimal": z - batch.optimal_baselines[:, None],
        "rloo": np.array([[own - rest.mean() for own, rest in others(z[b])] for b in rows]),
        "dr_grpo": np.array([[own - z[b].mean() for own in z[b]] for b in rows]),
        "grpo": np.array([[(own - z[b].mean()) / (z[b].std(ddof=1) + 1e-4) for own in z[b]] for b in rows]),
        "optimal_loo": np.array([[own - weighted_mean(b, g) for g, own in enumerate(z[b])] for b in rows]),
    }


@pytest.mark.parametrize("name", NAMED)
def test_kernels_are_their_formulas(name):
    rng = np.random.default_rng(0)
    batch = make_batch(rng.normal(size=(4, 6)), rng.uniform(0.1, 2.0, size=(4, 6)))
    np.testing.assert_allclose(fill(name, batch), transcriptions(batch)[name], rtol=1e-12, atol=1e-14)


@pytest.mark.compiled
@pytest.mark.parametrize("name", NAMED)
@pytest.mark.parametrize("group_size", [2, 3, 8])
def test_compiled_kernels_agree_with_plain_python(name, group_size):
    rng = np.random.default_rng(1)
    batch = make_batch(rng.integers(0, 2, size=(5, group_size)), rng.uniform(size=(5, group_size)))
    plain = np.full(batch.rewards.shape, np.nan)
    gt.estimators()[name].advantage.function(batch, plain)
    np.testing.assert_allclose(fill(name, batch), plain, rtol=1e-13, atol=1e-15)
    assert gt.estimators()[name].advantage.kernel.py_func is gt.estimators()[name].advantage.function


@pytest.mark.parametrize("small", [1e-3, 1e-7, 1e-10, 1e-14])
def test_optimal_loo_is_accurate_where_one_norm_dwarfs_the_others(small):
    """The rare response of a policy that is nearly certain: the others' mean must not be what rounding leaves of a difference."""
    batch = make_batch([[1.0, 0.3, 0.7, 0.1]], [[1.9, small, 2 * small, 3 * small]])
    np.testing.assert_allclose(fill("optimal_loo", batch), transcriptions(batch)["optimal_loo"], rtol=1e-12)


@given(rewards=REWARDS, shift=st.floats(-10, 10))
@pytest.mark.parametrize("name", ["rloo", "dr_grpo", "optimal_loo"])
def test_group_baselines_ignore_a_shift_of_all_rewards(name, rewards, shift):
    np.testing.assert_allclose(fill(name, make_batch(rewards + shift)), fill(name, make_batch(rewards)), atol=1e-12)


@given(rewards=REWARDS)
@pytest.mark.parametrize("name", ["rloo", "dr_grpo", "grpo"])
def test_advantages_about_a_group_mean_sum_to_zero(name, rewards):
    filled = fill(name, make_batch(rewards))
    np.testing.assert_allclose(filled.sum(axis=1), 0.0, atol=1e-9 * max(1.0, np.abs(filled).max()))


@given(rewards=REWARDS, place=st.permutations(range(5)))
@pytest.mark.parametrize("name", NAMED)
def test_advantages_follow_a_permutation_of_the_group(name, rewards, place):
    norms = np.random.default_rng(4).uniform(0.1, 2.0, size=rewards.shape)
    moved = fill(name, make_batch(rewards[:, place], norms[:, place]))
    np.testing.assert_allclose(moved, fill(name, make_batch(rewards, norms))[:, place], atol=1e-8)
