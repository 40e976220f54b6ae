"""Rewards of a rollout to advantages, where the policy moves: summed over the responses of each group that have one outcome.

Advantages come from the kernel's table, if it reads only rewards and these have few values.  They come from its coefficients, if
it is affine in the rewards and in what oracles know.  Otherwise the kernel itself is called.
"""

from typing import Any, NamedTuple

import numba
import numpy as np

from grpo_theory.compiler import F1, F3, F4, I1, FirstClassType, function_value, record_type, stage
from grpo_theory.compiler.lanes import WIDTH, are_finite, as_real, load, store
from grpo_theory.estimation.kernel import KERNEL
from grpo_theory.simulate.advantage.affine import SUM_AFFINE
from grpo_theory.simulate.advantage.call_room import CALL_ROOM, CallRoom
from grpo_theory.simulate.advantage.kernel_call import call_in_order, call_on_counts
from grpo_theory.simulate.advantage.rewards import (
    FILL_REWARDS,
    FILL_SEEN,
    PENALISE,
    REWARD_ROOM,
    REWARD_TABLES,
    TERMS,
    RewardRoom,
    RewardTables,
)
from grpo_theory.simulate.advantage.tables import TABLES, Tables, look_up_advantages, multiset_numbers
from grpo_theory.simulate.draw.policy_draw import GROUPS, T2, Groups, find_outcomes
from grpo_theory.validation import Array, Integers


class AdvantageRule(NamedTuple):
    """How rewards become advantages.

    Attributes
    ----------
    rewards : RewardTables
    wants_rewards : bool
        Whether the rewards of the outcomes are needed.
    sees_fields : bool
        Whether the kernel reads score norms or what oracles know.
    tables : Tables
        The kernel's; empty if they are not used.
    coefficients : ndarray, shape (6,)
        See `affine_coefficients`; empty if they are not used.
    is_called : bool
        Whether the kernel is called.
    kernel : compiled function
    """

    rewards: RewardTables
    wants_rewards: bool
    sees_fields: bool
    tables: Tables
    coefficients: Array
    is_called: bool
    kernel: Any


class Rollout(NamedTuple):
    """What the advantages of one rollout of N runs are computed in; the first n are wanted.

    Attributes
    ----------
    rewards : RewardRoom
    sums : ndarray, shape (B, S, O, N)
        Sums of advantages.  S is 1 where the responses with one outcome have one advantage, and 2 where they need not.  The
        positive advantages are then summed apart from the others, because a clip may treat them differently.
    ordered : ndarray of int64, shape (B, G, N)
        Outcomes in the order drawn, where they are wanted; (B, 0, N) where they are not.
    call : CallRoom
    fault : ndarray of int64, shape (3,)
        1, and the group and the run to which the kernel has left an advantage that is not finite, or else 0.
    """

    rewards: RewardRoom
    sums: Array
    ordered: Integers
    call: CallRoom
    fault: Integers


class AdvantageFunctions(NamedTuple):
    """What is called only where an estimator needs it (see `value_or_null`)."""

    penalise: Any
    fill_terms: Any
    fill_rewards: Any
    see_fields: Any
    sum_affine: Any
    sum_called: Any


ADVANTAGE_RULE = record_type(AdvantageRule, REWARD_TABLES, numba.boolean, numba.boolean, TABLES, F1, numba.boolean, KERNEL)
ROLLOUT = record_type(Rollout, REWARD_ROOM, F4, numba.int64[:, :, ::1], CALL_ROOM, I1)
SUM_CALLED = numba.void(KERNEL, T2, numba.int64, numba.int64, GROUPS, ROLLOUT, F3)
ADVANTAGE_FUNCTIONS = record_type(
    AdvantageFunctions,
    FirstClassType(PENALISE),
    TERMS,
    FirstClassType(FILL_REWARDS),
    FirstClassType(FILL_SEEN),
    FirstClassType(SUM_AFFINE),
    FirstClassType(SUM_CALLED),
)


@stage
def sum_looked_up(groups, b, i, n_values, sums):
    """Sum the advantages of group b, in sums (O, N), from those of each reward value, which the groups' facts hold."""
    counts = groups.counts
    for value in range(n_values):
        advantage = load(groups.facts, value, 0)
        for o in range(value, counts.shape[1], n_values):
            store(advantage * as_real(load(counts, b, o, i)), sums, o, i)


@stage
def sum_by_table(tables, groups, b, i, sums):
    """Sum the advantages of group b, in sums (O, N), by the kernel's table."""
    multisets = multiset_numbers(groups.counts, b, i, tables.ranks)
    look_up_advantages(tables, 0, load(groups.prompts, b, i), multisets, groups.facts)
    sum_looked_up(groups, b, i, tables.ranks.shape[0] + 1, sums)


@stage
def note_fault(logits, sums, n, fault):
    """Note a group whose sums (B, S, O, N) are not finite although its run's logits (B, D, N) are: that is the kernel's doing."""
    if are_finite(sums, sums.size):
        return
    for i in range(n):
        height = 0.0
        for b in range(logits.shape[0]):
            for d in range(logits.shape[1]):
                height += abs(logits[b, d, i])
        if not np.isfinite(height):
            continue
        for b in range(sums.shape[0]):
            own = 0.0
            for part in range(sums.shape[1]):
                for o in range(sums.shape[2]):
                    own += sums[b, part, o, i]
            if not np.isfinite(own):
                fault[0], fault[1], fault[2] = 1, b, i
                return


@function_value(SUM_CALLED)
def sum_counted(kernel, words, first, n, groups, rollout, logits):
    """Sum the advantages of a kernel that treats responses alike: those with one outcome have one advantage.

    If the kernel has a table, the sums are bit for bit what that gives.
    """
    counts, sums = groups.counts, rollout.sums.reshape(groups.counts.shape)
    call_on_counts(kernel, rollout.rewards.seen, counts, groups.prompts, 0, n, rollout.call, sums)
    for b in range(counts.shape[0]):
        for o in range(counts.shape[1]):
            for i in range(0, n, WIDTH):
                store(load(sums, b, o, i) * as_real(load(counts, b, o, i)), sums, b, o, i)
    note_fault(logits, rollout.sums, n, rollout.fault)


@function_value(SUM_CALLED)
def sum_in_order(kernel, words, first, n, groups, rollout, logits):
    """Sum the advantages of a kernel that does not treat responses alike, each for itself, from the words of the responses."""
    ordered, group_size = rollout.ordered, rollout.ordered.shape[1]
    for b in range(ordered.shape[0]):
        find_outcomes(words[b * group_size :], first, groups.thresholds[b], n, ordered[b])
    call_in_order(kernel, rollout.rewards.seen, ordered, groups.prompts, n, rollout.call, rollout.sums)
    note_fault(logits, rollout.sums, n, rollout.fault)


@stage
def find_advantages(functions, rule, policy, n, groups, rollout):
    """Fill what is made of the outcomes of n runs: rewards, what kernels see, and advantages if no kernel need be called."""
    rewards, tables = rollout.rewards, rule.rewards
    if tables.strength > 0.0:
        functions.penalise(functions.fill_terms, tables, policy.log_tokens, groups.prompts, n, rewards)
    if rule.wants_rewards:
        functions.fill_rewards(tables.values, rewards.penalties, n, rewards.seen.rewards)
    if rule.sees_fields:
        functions.see_fields(tables, policy, groups.prompts, n, rewards)
    if rule.tables.advantages.shape[0] > 0:
        for b in range(groups.counts.shape[0]):
            own = rollout.sums[b, 0]
            for i in range(0, n, WIDTH):
                sum_by_table(rule.tables, groups, b, i, own)
    elif rule.coefficients.shape[0] > 0:
        penalties, fields = rewards.penalties, rewards.seen.fields
        functions.sum_affine(groups.counts, tables.values, penalties, n, fields, rule.coefficients, rollout.sums)


def faulty_rewards(groups: Groups, rollout: Rollout) -> Array:
    """Return the rewards of the group to which the kernel has left an advantage that is not finite, as it saw them."""
    _, b, i = rollout.fault
    rewards = rollout.rewards.seen.rewards[b, :, i]
    if rollout.ordered.shape[1] > 0:
        return np.array(rewards[rollout.ordered[b, :, i]])
    n_values = len(rewards) // (int(rollout.rewards.seen.responses[-1]) + 1)
    order = np.argsort(np.arange(len(rewards)) % n_values, kind="stable")
    return np.array(np.repeat(rewards[order], groups.counts[b, order, i]))
