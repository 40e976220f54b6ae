"""How the expected step is shared among prompts: against every subgroup written out, and against p (1 - p)."""

from itertools import combinations

import numpy as np
import pytest

import grpo_theory as gt


def graded(seed=4, prompts=12, responses=6):
    rng = np.random.default_rng(seed)
    return rng.choice([0.0, 0.3, 1.0], (prompts, responses), p=[0.5, 0.2, 0.3]) * (rng.random((prompts, 1)) < 0.8)


def counts_of(rewards):
    return gt.RewardCounts.from_rewards(np.repeat(np.arange(len(rewards)), rewards.shape[1]), rewards.ravel())


ADVANTAGES = {
    "rloo": lambda group: (group - group.mean()) * group.size / (group.size - 1),
    "dr_grpo": lambda group: group - group.mean(),
    "grpo": lambda group: (group - group.mean()) / (group.std(ddof=1) + 1e-4) if group.std() > 0.0 else 0.0 * group,
}


@pytest.mark.parametrize("size", [2, 3, 5])
@pytest.mark.parametrize("name", ADVANTAGES)
def test_shares_are_those_of_all_subgroups_written_out(name, size):
    rewards = graded()
    parts = np.array(
        [
            np.mean(
                [ADVANTAGES[name](row[list(one)]) @ (row[list(one)] - row.mean()) / size for one in combinations(range(6), size)]
            )
            for row in rewards
        ]
    )
    place = rewards.mean(axis=1)
    classes = [place <= 0.2, (place > 0.2) & (place <= 0.8), place > 0.8]
    expected = [parts[one].sum() / parts.sum() for one in classes]
    found = gt.plan.weigh_graded_prompts(counts_of(rewards), name, size)
    np.testing.assert_allclose(found.step_shares.estimate, expected, atol=1e-9)
    np.testing.assert_allclose(found.prompts.estimate, [one.mean() for one in classes], atol=1e-12)
    assert (found.step_shares.low <= found.step_shares.high).all()


def test_of_success_and_failure_the_two_weights_agree():
    """On policies of two rewards the covariance of advantage and reward is h'(p) p (1 - p): another derivation, one number."""
    rng = np.random.default_rng(3)
    rewards = (rng.random((3000, 8)) < rng.choice([0.1, 0.5, 0.9], (3000, 1))).astype(float)
    counts = counts_of(rewards)
    exact = gt.plan.weigh_prompts(counts, "rloo", 4).step_shares
    variance = rewards.var(axis=1, ddof=1)
    place = rewards.mean(axis=1)
    by_mean = [variance[one].sum() / variance.sum() for one in (place <= 0.2, (place > 0.2) & (place <= 0.8), place > 0.8)]
    found = gt.plan.weigh_graded_prompts(counts, "rloo", 4).step_shares
    np.testing.assert_allclose(found.estimate, by_mean, atol=1e-12)
    truth = np.array([0.09, 0.25, 0.09]) / 0.43
    assert (exact.low <= truth).all()
    assert (truth <= exact.high).all()
    assert np.abs(exact.estimate - truth).max() < 0.05
