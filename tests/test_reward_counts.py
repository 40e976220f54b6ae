"""Rewards as counts by prompt and value."""

import numpy as np

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
