"""Averages over the subgroups of a logged group, against all subgroups, all logs, and what the planner knows of rloo."""

from itertools import combinations

import numpy as np
import pytest

import grpo_theory as gt
from grpo_theory.compiler import plain_python
from grpo_theory.estimation import find
from grpo_theory.estimation.kernel import Batch
from grpo_theory.plan import subgroups
from grpo_theory.plan.subgroups import RewardClasses, average_over_subgroups, can_be_averaged

NAMES = ("rloo", "dr_grpo", "trl_grpo", "verl_grpo", "nemo_rl", "max_rl", "reinforce", "verl_grpo_passk")


def by_hand(estimator, rewards, scores):
    """Return one group's estimates (n, J) for groups of rewards (n, G) and scores (n, G, J), the kernel as plain Python."""
    advantages, unread = np.full(rewards.shape, np.nan), np.full(len(rewards), np.nan)
    fields = rewards, np.full(rewards.shape, np.nan), np.ones(rewards.shape, dtype=np.int64), unread, unread, unread
    plain_python(estimator.advantage.function)(Batch(*fields, estimator.advantage.parameter_array), advantages)
    return (advantages[..., None] * scores).mean(axis=1)


def averages(estimator, rollouts, size):
    classes = RewardClasses.of(rollouts)
    return average_over_subgroups(classes, estimator, size)


@pytest.mark.parametrize("few", [subgroups.FEW_COUNTS, 0])
@pytest.mark.parametrize("name", NAMES)
def test_averages_are_those_of_all_subgroups(name, few, monkeypatch):
    """From all counts that could be, and from those that are."""
    monkeypatch.setattr(subgroups, "FEW_COUNTS", few)
    values = (0.0, 0.5, 2.0)
    rng = np.random.default_rng(20261125)
    responses, found = 6, find(name)
    rewards = rng.choice(values, size=(4, responses))
    rewards[0, : len(values)], rewards[1] = values, values[-1]  # every value comes, and one prompt has one value alone
    scores = rng.normal(size=(4, responses, 3))
    for size in range(2, responses + 1):
        means, powers = averages(found, gt.Rollouts(rewards, scores), size)
        for b in range(4):
            rows = np.array(list(combinations(range(responses), size)))
            estimates = by_hand(found, np.ascontiguousarray(rewards[b][rows]), scores[b][rows])
            assert means[b] == pytest.approx(estimates.mean(axis=0), abs=1e-12)
            assert powers[b] == pytest.approx((estimates**2).sum(axis=1).mean(), abs=1e-12)


def test_groups_of_any_sizes_have_the_averages_of_their_own_subgroups():
    rng = np.random.default_rng(3)
    sizes = (5, 3, 5)
    index = np.repeat(np.arange(3), sizes)
    rewards, scores = rng.integers(0, 2, index.size).astype(float), rng.normal(size=(index.size, 2))
    rewards[:2] = 0.0, 1.0
    ragged = gt.RaggedRollouts.from_index(np.arange(3), index, rewards, scores)
    means, powers = averages(find("trl_grpo"), ragged, 3)
    for b in range(3):
        rows = np.flatnonzero(index == b)[np.array(list(combinations(range(sizes[b]), 3)))]
        estimates = by_hand(find("trl_grpo"), rewards[rows], scores[rows])
        assert means[b] == pytest.approx(estimates.mean(axis=0), abs=1e-12)
        assert powers[b] == pytest.approx((estimates**2).sum(axis=1).mean(), abs=1e-12)
    classes = RewardClasses.of(ragged)
    assert can_be_averaged(classes, 3)
    assert not can_be_averaged(classes, 4)
