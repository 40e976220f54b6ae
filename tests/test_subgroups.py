"""Averages over the subgroups of a logged group, against all subgroups, all logs, and what the planner knows of rloo."""

from itertools import combinations

import numpy as np
import pytest
from enumeration import groups, prompts
from pilots import gentle_case

import grpo_theory as gt
from grpo_theory.estimation import find
from grpo_theory.estimation.code import plain_python
from grpo_theory.estimation.kernel import Batch
from grpo_theory.plan.efficiency import (
    RewardClasses,
    average_over_subgroups,
    check_reads_own_rewards,
)

NAMES = ("rloo", "dr_grpo", "trl_grpo", "verl_grpo", "nemo_rl", "max_rl", "reinforce", "verl_grpo_passk")


def by_hand(estimator, rewards, scores):
    """Return one group's estimates (n, J) for groups of rewards (n, G) and scores (n, G, J), the kernel as plain Python."""
    advantages, unread = np.full(rewards.shape, np.nan), np.full(len(rewards), np.nan)
    fields = (
        rewards,
        np.full(rewards.shape, np.nan),
        np.ones(rewards.shape, dtype=np.int64),
        np.full(rewards.shape, np.nan),
        unread,
        unread,
        unread,
    )
    plain_python(estimator.advantage.function)(Batch(*fields, estimator.advantage.parameter_array), advantages)
    return (advantages[..., None] * scores).mean(axis=1)


@pytest.mark.parametrize("name", ["rloo", "trl_grpo", "nemo_rl", "max_rl"])
def test_the_means_over_all_logs_are_the_law_of_smaller_groups(name):
    """Unbiased, whatever the logged size."""
    found = find(name)
    for table in prompts(gentle_case())[:2]:
        rows, weights = groups(table, 4)
        logs = RewardClasses.of(gt.Rollouts(table.rewards[rows], table.scores[rows]))
        for size in (2, 3, 4):
            smaller, chances = groups(table, size)
            estimates = by_hand(found, table.rewards[smaller], table.scores[smaller])
            means, powers = average_over_subgroups(logs, found, size)
            assert weights @ means == pytest.approx(chances @ estimates, abs=1e-12)
            assert weights @ powers == pytest.approx(chances @ (estimates**2).sum(axis=1), abs=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_groups_of_any_sizes_have_the_averages_of_their_own_subgroups(name):
    """One prompt has one value alone."""
    rng, sizes, found = np.random.default_rng(3), (6, 3, 5), find(name)
    index = np.repeat(np.arange(3), sizes)
    rewards, scores = rng.choice([0.0, 0.5, 2.0], index.size), rng.normal(size=(index.size, 3))
    rewards[:3], rewards[6:9] = [0.0, 0.5, 2.0], 2.0
    classes = RewardClasses.of(gt.RaggedRollouts.from_index(np.arange(3), index, rewards, scores))
    for size in (2, 3):
        means, powers = average_over_subgroups(classes, found, size)
        for b in range(3):
            rows = np.flatnonzero(index == b)[np.array(list(combinations(range(sizes[b]), size)))]
            estimates = by_hand(found, rewards[rows], scores[rows])
            assert means[b] == pytest.approx(estimates.mean(axis=0), abs=1e-12)
            assert powers[b] == pytest.approx((estimates**2).sum(axis=1).mean(), abs=1e-12)


@pytest.mark.parametrize(("name", "reason"), [("james_stein", "the other groups of the batch"), ("verl_opo", "lengths")])
def test_estimators_that_read_more_are_refused(name, reason):
    with pytest.raises(ValueError, match=rf"those of '{name}' depend on {reason}\. Name another"):
        check_reads_own_rewards(find(name))
