"""Rewards as counts by prompt and value."""

import numpy as np
import pytest
from scipy import sparse

import grpo_theory as gt


def test_counts_are_those_of_the_rows():
    rng = np.random.default_rng(20261122)
    prompts = np.concatenate([np.arange(20), rng.integers(0, 20, 300)])
    rewards = rng.choice([0.0, 0.5, 2.0], prompts.size)
    found = gt.RewardCounts.from_rewards(prompts, rewards)
    np.testing.assert_array_equal(found.values, [0.0, 0.5, 2.0])
    for prompt in range(20):
        own = rewards[prompts == prompt]
        assert found.sizes[prompt] == own.size
        assert found.successes[prompt] == (own == 2.0).sum()
        assert found.uniform[prompt] == (np.unique(own).size == 1)
        np.testing.assert_allclose(found.means[prompt], own.mean(), rtol=1e-12)


@pytest.mark.parametrize(
    ("values", "counts", "message"),
    [
        ([1.0, 0.0], [[1, 1]], "ascending"),
        ([0.0, 1.0], [[1, 1, 1]], "shape"),
        ([0.0, 1.0], [[1.5, 1.0]], "whole numbers"),
        ([0.0, 1.0], [[1, -1]], "none below 0"),
        ([0.0, 1.0], [[1, 1], [0, 0]], "prompt 1 has none"),
    ],
)
def test_no_table_of_counts(values, counts, message):
    with pytest.raises(ValueError, match=message):
        gt.RewardCounts(values, sparse.csr_array(np.array(counts)))


def test_stored_zeros_are_no_rewards():
    stored = sparse.csr_array((np.array([2, 0, 1, 1]), np.array([0, 1, 0, 1]), np.array([0, 2, 4])), shape=(2, 2))
    np.testing.assert_array_equal(gt.RewardCounts(np.array([0.0, 1.0]), stored).uniform, [True, False])
