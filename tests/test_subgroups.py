"""Averages over the subgroups of a logged group, against all subgroups, all logs, and what the planner knows of rloo."""

from itertools import combinations

import numpy as np
import pytest
from enumeration import groups, prompts
from pilots import draw, gentle_case

import grpo_theory as gt
from grpo_theory.compiler import plain_python
from grpo_theory.estimation import find
from grpo_theory.estimation.kernel import Batch
from grpo_theory.intervals.u_statistics import prompt_gradients, prompt_terms
from grpo_theory.plan import subgroups
from grpo_theory.plan.subgroups import (
    RewardClasses,
    average_over_subgroups,
    can_be_averaged,
    check_reads_own_rewards,
)

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


@pytest.mark.parametrize("values", [(0.0, 0.5, 2.0)])
@pytest.mark.parametrize("name", NAMES)
def test_averages_are_those_of_all_subgroups(name, values):
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


@pytest.mark.parametrize("values", [(0.0, 1.0), (0.0, 0.5, 2.0)])
def test_averages_are_the_same_from_all_counts_that_could_be_and_from_those_that_are(monkeypatch, values):
    rng = np.random.default_rng(20261127)
    rollouts = gt.Rollouts(rng.choice(values, size=(12, 6)), rng.normal(size=(12, 6, 3)))
    every, found = RewardClasses.of(rollouts), find("trl_grpo")
    monkeypatch.setattr(subgroups, "FEW_COUNTS", 0)
    some = RewardClasses.of(rollouts)
    assert len(every.counts) == {2: 7, 3: 28}[len(values)] > len(some.counts)
    np.testing.assert_array_equal(every.counts[every.which], some.counts[some.which])
    for first, second in zip(average_over_subgroups(every, found, 4), average_over_subgroups(some, found, 4), strict=True):
        np.testing.assert_allclose(first, second, rtol=0, atol=1e-13)


def all_logs(table, responses):
    """Return all logs of one prompt with so many responses, and their probabilities."""
    rows, weights = groups(table, responses)
    return gt.Rollouts(table.rewards[rows], table.scores[rows]), weights


@pytest.mark.parametrize("name", ["rloo", "trl_grpo", "nemo_rl", "max_rl"])
def test_the_means_over_all_logs_are_the_law_of_smaller_groups(name):
    """Unbiased, whatever the logged size; and not of another estimator."""
    case, found = gentle_case(), find(name)
    other = find("trl_grpo" if name == "max_rl" else "max_rl")
    for table in prompts(case)[:2]:
        logs, weights = all_logs(table, 4)
        for size in (2, 3, 4):
            smaller, chances = all_logs(table, size)
            estimates = by_hand(found, np.array(smaller.rewards), np.array(smaller.scores))
            means, powers = averages(found, logs, size)
            power = chances @ (estimates**2).sum(axis=1)
            assert weights @ means == pytest.approx(chances @ estimates, abs=1e-12)
            assert weights @ powers == pytest.approx(power, abs=1e-12)
            if size > 2:  # of two responses all of these make the same
                assert abs(weights @ averages(other, logs, size)[1] - power) > 1e-3


def test_of_rloo_the_planners_constants_say_the_same():
    """The mean is the leave-one-out gradient in every log; the power agrees on average over the logs."""
    rollouts, _ = draw(gentle_case(), 1, 5, 7, np.random.default_rng(2))
    one = gt.Rollouts(rollouts.rewards[0], rollouts.scores[0])
    for size in (2, 3, 7):
        assert averages(find("rloo"), one, size)[0] == pytest.approx(prompt_gradients(one), abs=1e-12)
    for table in prompts(gentle_case())[:2]:
        logs, weights = all_logs(table, 4)
        terms = prompt_terms(logs, 2)
        for size in (2, 3, 4):
            power = terms.power + terms.c2 / size + terms.c3 / (size * (size - 1.0))
            assert weights @ averages(find("rloo"), logs, size)[1] == pytest.approx(weights @ power, abs=1e-12)


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


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("james_stein", "depend on the other groups of the batch"),
        ("optimal_loo", "depend on squared score norms"),
        ("oracle", "depend on values"),
        ("verl_opo", "depend on lengths"),
    ],
)
def test_estimators_that_read_more_are_refused(name, reason):
    with pytest.raises(ValueError, match=rf"those of '{name}' {reason}\. Name another"):
        check_reads_own_rewards(find(name))
