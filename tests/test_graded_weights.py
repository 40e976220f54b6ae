"""How the expected step is shared among prompts: against every subgroup written out, and against p (1 - p)."""

from itertools import combinations

import numpy as np
import pytest

import grpo_theory as gt


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
    rng = np.random.default_rng(4)
    rewards = rng.choice([0.0, 0.3, 1.0], (12, 6), p=[0.5, 0.2, 0.3]) * (rng.random((12, 1)) < 0.8)
    parts = np.zeros(12)
    for m, row in enumerate(rewards):
        groups = [row[list(one)] for one in combinations(range(6), size)]
        parts[m] = np.mean([ADVANTAGES[name](group) @ (group - row.mean()) / size for group in groups])
    place = rewards.mean(axis=1)
    classes = [place <= 0.2, (place > 0.2) & (place <= 0.8), place > 0.8]
    expected = [parts[one].sum() / parts.sum() for one in classes]
    found = gt.plan.weigh_graded_prompts(counts_of(rewards), name, size)
    np.testing.assert_allclose(found.step_shares.estimate, expected, atol=1e-9)
    np.testing.assert_allclose(found.prompts.estimate, [one.mean() for one in classes], atol=1e-12)
    assert (found.step_shares.low <= found.step_shares.high).all()


def test_of_success_and_failure_the_share_of_a_class_is_that_of_p_times_one_less_p():
    """On policies of two rewards the covariance of advantage and reward is h'(p) p (1 - p): another derivation, one number."""
    rng = np.random.default_rng(3)
    rewards = (rng.random((3000, 8)) < rng.choice([0.1, 0.5, 0.9], (3000, 1))).astype(float)
    found = gt.plan.weigh_prompts(counts_of(rewards), "rloo", 4).step_shares
    truth = np.array([0.09, 0.25, 0.09]) / 0.43
    assert ((found.low <= truth) & (truth <= found.high)).all()
    assert np.abs(found.estimate - truth).max() < 0.05
