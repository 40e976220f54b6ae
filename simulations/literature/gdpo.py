"""GDPO (arXiv 2601.05242): several rewards normalised one by one, and their sum normalised.

In the controls there is one reward, a rollout more, a rollout with both rewards, or the sum is normalised.
"""

import itertools

import numpy as np

import grpo_theory as gt
from grpo_theory.harness import check
from simulations.literature.drawn import POLICIES, expected_update, over, world
from simulations.sequence.parts import of_length
from simulations.statements import stated


def rows(n):
    """Return all rewards of a response that has n of them, 0 or 1 each, shape (2^n, n)."""
    return np.array([*itertools.product((0.0, 1.0), repeat=n)])


def apart(table, advantage="grpo", weights=None):
    """Return advantages reward by reward, without what guards the division."""
    base = gt.estimators()[advantage]
    base = base.with_parameters(epsilon=0.0) if advantage == "grpo" else base
    return gt.estimation.apart("apart", advantage=base, rewards=table, weights=weights)


def number(group_size, table, advantage="grpo"):
    """Return how many groups of advantages there are, up to the order of responses."""
    groups = [*itertools.combinations_with_replacement(range(len(table)), group_size)]
    found = gt.advantages(groups, apart(table, advantage))
    return len(np.unique(np.sort(np.round(found, 9), axis=1) + 0.0, axis=0))


@check(
    *stated("gdpo/equal totals", "gdpo/opposite rewards"),
    cases=over(size=(3, 4, 8), weights=((1.0, 1.0),)),
    broken={"more": True},
    sound={"weights": (1.0, 0.5)},
    setting="{size} rollouts",
)
def equal_totals(size, weights, more=False):
    """The largest advantage where it is least over ways to add up to 1, and all; in the control one is uniform."""
    split = np.array([[1] * k + [2] * (size - k) for k in range(1, size)])
    if more:
        split[0], split[1:, 0] = 1, 3
    found, first = (np.array(gt.advantages(split, apart(rows(2), weights=own))) for own in (weights, (1.0, 0.0)))
    least = np.abs(found).max(axis=1).min()
    return {"gdpo/equal totals": (0.0, least), "gdpo/opposite rewards": (found, (weights[0] - weights[1]) * first)}


@check(stated("gdpo/two rollouts"), cases=[{"size": 2}], broken={"size": 3}, setting="two rewards")
def two_rollouts(size):
    """The numbers of groups of advantages, and what they are said to be."""
    table = rows(2)
    return [number(size, table.sum(axis=1, keepdims=True)), number(size, table)], [2.0, 3.0]


CASES = [{"size": size, "rewards": 2} for size in (4, 6, 8)] + [{"size": 4, "rewards": n} for n in (3, 4)]


@check(stated("gdpo/more groups"), cases=CASES, broken={"rewards": 1}, setting="{size} rollouts, {rewards} rewards")
def more_groups(size, rewards):
    """The numbers of groups of advantages of the sum, divided by its deviation and not, and of rewards one by one."""
    table = rows(rewards)
    summed = [number(size, table.sum(axis=1, keepdims=True), one) for one in ("grpo", "dr_grpo")]
    return summed, [number(size, table)] * 2


@check(
    stated("gdpo/groups of two"),
    cases=over(policy=POLICIES, draw=range(2)),
    broken={"summed": True},
    setting="{policy}, draw {draw}",
)
def groups_of_two(policy, rng, summed=False):
    """The direction of the mean update and of the gradient; in the control the weighted sum is normalised."""
    table, weights = rows(2), np.array([1.0, 0.6])
    problem = world(policy, rng, range(4), objective=gt.Objective.mean_of(table @ weights))
    kernel = apart(table @ weights[:, None]) if summed else apart(table, weights=weights)
    return of_length(1.0, expected_update(problem, kernel, 2)), of_length(1.0, gt.exact.gradient(problem))
