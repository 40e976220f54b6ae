"""Stage 2 of a training step, advantages: summed over the responses of each group that have one outcome.

The functions below differ in what they need to know of the kernel:

- `sum_tabulated`: its table of advantages, for a kernel that reads only rewards, where these have few values;
- `sum_affine`: its coefficients, for a kernel whose advantages are affine in the rewards and what oracles know;
- `sum_shown`: the kernel itself, which is shown every response, those with the lowest reward value first;
- `sum_in_order`: the kernel itself, which is shown every response in the order in which they were drawn.

The first is a stage, for one group of `WIDTH` runs; the second is for one group of all runs, and the others, which call the
kernel, are for all of a rollout.
"""

from typing import Any, NamedTuple

import numba
import numpy as np
from numba import types
from numpy.typing import NDArray

from grpo_theory.arrays import Array, Integers
from grpo_theory.compiler.compilation import F1, F2, F3, F4, I1, I2, record_type, stage
from grpo_theory.compiler.first_class import function_value
from grpo_theory.compiler.lanes import (
    WIDTH,
    are_finite,
    as_integer,
    as_real,
    lane_numbers,
    load,
    reals,
    shorts,
    store,
    take,
    where,
)
from grpo_theory.estimation.kernel import KERNEL
from grpo_theory.simulate.advantage.kernel_call import BATCH, fill_advantages, write_run
from grpo_theory.simulate.draw.policy_counting import MASK
from grpo_theory.simulate.draw.prompt_tables import LOOKUP, Lookup, at_places, read_rows

T3 = numba.int32[:, :, ::1]


class Rule(NamedTuple):
    """How advantages are found.

    Attributes
    ----------
    is_called : bool
        Whether the kernel is called.
    kernel : compiled function
    at_a_time : int
        How many groups the kernel is given at once; 0 for all.
    advantages : Lookup
        The kernel's table (n, L); empty if it is not used.
    ranks : ndarray of int64, shape (L - 1, G + 1)
        See `AdvantageTable`.
    coefficients : ndarray, shape (6,)
        Of a response's own reward, of the sum of the group's rewards, of the three fields of the prompt, and the constant; empty
        if they are not used.
    """

    is_called: bool
    kernel: Any
    at_a_time: int
    advantages: Lookup
    ranks: Integers
    coefficients: Array


class Rollout(NamedTuple):
    """What one rollout of N runs is computed in; the first n are wanted.

    Attributes
    ----------
    prompts : ndarray of int64, shape (B, N)
    counts : ndarray of int32, shape (B, O, N)
        The number of the group's responses with each outcome.
    thresholds : ndarray of int32, shape (B, O - 1, N)
        Where responses are wanted in the order drawn; (B, 0, N) where they are not.
    rewards : ndarray, shape (B, O, N)
        Of the outcomes, less the penalty if it is in the reward.
    norms : ndarray, shape (B, K, N)
        Squared score norms; (B, 0, N) if the kernel reads none.
    fields : ndarray, shape (B, 3, N)
        What oracles know of the prompts; (B, 0, N) if the kernel reads none of it.
    sums : ndarray, shape (B, S, O, N)
        Of advantages.  S is 1 where the responses with one outcome have one advantage, and 2 where they need not: the positive
        ones and the others are summed apart, because a clip may treat them differently.
    listed : ndarray of int64, shape (B, G, N)
        Outcomes in the order drawn, where they are wanted; (B, 0, N) where they are not.
    advantages : ndarray, shape (at least N B, G)
        What the kernel gives, where it is called.
    fault : ndarray, shape (1 + G,)
        1 and the rewards of a group, if the kernel has left it an advantage that is not finite, and else 0.
    """

    prompts: Integers
    counts: NDArray[np.int32]
    thresholds: NDArray[np.int32]
    rewards: Array
    norms: Array
    fields: Array
    sums: Array
    listed: Integers
    advantages: Array
    fault: Array


RULE = record_type(Rule, numba.boolean, KERNEL, numba.int64, LOOKUP, I2, F1)
ROLLOUT = record_type(Rollout, I2, T3, T3, F3, F3, F3, F4, numba.int64[:, :, ::1], F2, F1)
WORDS = types.Array(numba.int32, 2, "C", readonly=False)
SIGNATURE = numba.void(RULE, ROLLOUT, BATCH, WORDS, numba.int64, numba.int64, I1, I1, numba.int64, F3)
SUM_AFFINE = numba.void(T3, F1, F3, numba.int64, numba.int64, F3, F1, F4)


@stage
def find_multiset(counts, b, i, ranks):
    """Find the number of each lane's multiset of reward values from the counts (B, O, N) of group b."""
    n_values, n_reached = ranks.shape[0] + 1, ranks.shape[1]
    reached, place = shorts(0), 0 * lane_numbers()
    for value in range(n_values - 1):
        for o in range(value, counts.shape[1], n_values):
            reached = reached + load(counts, b, o, i)
        # Where a run has left the numbers, counts mean nothing; they must not lead out of the table.
        rank = as_integer(where(reached < 0, 0, where(reached > n_reached - 1, n_reached - 1, reached)))
        if value > 0:  # the first ranks are 0, 1, 2...
            rank = take(ranks, rank + value * n_reached)
        place = place + rank
    return place


@stage
def sum_tabulated(counts, b, i, advantages, ranks, facts, sums):
    """Sum the advantages of a group, in the first of sums (B, S, O, N), from the table (m, L) of a kernel.

    Facts (at least L, WIDTH) are room.
    """
    n_values, places = ranks.shape[0] + 1, find_multiset(counts, b, i, ranks)
    read_rows(advantages, places, facts)
    for value in range(n_values):
        advantage = at_places(advantages, value, places, facts)
        for o in range(value, counts.shape[1], n_values):
            store(advantage * as_real(load(counts, b, o, i)), sums, b, 0, o, i)


@function_value(SUM_AFFINE)
def sum_affine(counts, values, penalties, b, n, fields, coefficients, sums):
    """Sum the advantages of the b-th groups of n runs, in the first of sums (B, S, O, N), by an affine kernel's coefficients.

    Rewards are the values (L,) less the penalties (B, K, N).
    """
    n_values = values.shape[0]
    for i in range(0, n, WIDTH):
        total = reals(0.0)
        for k in range(penalties.shape[1]):
            penalty = load(penalties, b, k, i)
            for value in range(n_values):
                total = total + as_real(load(counts, b, k * n_values + value, i)) * (values[value] - penalty)
        common = coefficients[5] + coefficients[1] * total
        for f in range(fields.shape[1]):
            common = common + coefficients[2 + f] * load(fields, b, f, i)
        for k in range(penalties.shape[1]):
            penalty = load(penalties, b, k, i)
            for value in range(n_values):
                advantage = coefficients[0] * (values[value] - penalty) + common
                o = k * n_values + value
                store(advantage * as_real(load(counts, b, o, i)), sums, b, 0, o, i)


@stage
def find_outcomes(words, first, thresholds, n, listed):
    """Find the outcomes (G, n) of one group of each run in the order in which they were drawn."""
    for g in range(listed.shape[0]):
        for i in range(n):
            listed[g, i] = 0
        for o in range(thresholds.shape[0]):
            for i in range(n):
                listed[g, i] += (words[g, np.uintp(first + i)] & MASK) >= thresholds[o, i]


@stage
def bounded(count, is_last, g, group_size):
    """Return how many responses a count stands for.

    Where a run has left the numbers, counts mean nothing, and G responses are shown all the same.
    """
    return group_size - g if is_last else min(max(count, 0), group_size - g)


@stage
def show_counted(rollout, batch, n, n_values, lengths):
    """Write out the groups of n runs from their counts as a kernel sees them, those with the lowest reward value first.

    Group b of run i has row b n + i: so one array after another is read from memory that lies close together.
    """
    counts, rewards, norms = rollout.counts, rollout.rewards, rollout.norms
    batch_size, n_outcomes, group_size = counts.shape[0], counts.shape[1], rollout.advantages.shape[1]
    for b in range(batch_size):
        for i in range(n):
            row, g = b * n + i, 0
            for value in range(n_values):
                response, o = 0, value
                while o < n_outcomes:
                    count = bounded(counts[b, o, i], o == n_outcomes - 1, g, group_size)
                    write_run(rewards[b, o, i], count, batch.rewards, row, g)
                    if norms.shape[1] > 0:
                        write_run(norms[b, response, i], count, batch.squared_score_norms, row, g)
                    if lengths.shape[0] > 0:
                        write_run(lengths[response], count, batch.lengths, row, g)
                    g += count
                    response += 1
                    o += n_values


@stage
def read_counted(rollout, n, n_values):
    """Fill sums (B, 1, O, N) with the advantages of the outcomes, those of their first responses, times their numbers."""
    counts, sums = rollout.counts, rollout.sums
    batch_size, n_outcomes, group_size = counts.shape[0], counts.shape[1], rollout.advantages.shape[1]
    for b in range(batch_size):
        for i in range(n):
            g = 0
            for value in range(n_values):
                o = value
                while o < n_outcomes:
                    count = bounded(counts[b, o, i], o == n_outcomes - 1, g, group_size)
                    sums[b, 0, o, i] = rollout.advantages[b * n + i, g] * counts[b, o, i] if count > 0 else 0.0
                    g += count
                    o += n_values


@stage
def note_gaps(advantages, n, sums):
    """Spoil the sums (B, 1, O, N) of the groups of n runs in which the kernel leaves an advantage that is not finite."""
    for b in range(sums.shape[0]):
        for i in range(n):
            for g in range(advantages.shape[1]):
                if not np.isfinite(advantages[b * n + i, g]):
                    sums[b, 0, 0, i] = np.nan


@stage
def show_responses(listed, b, batch_size, responses, rewards, norms, lengths, seen_rewards, seen_norms, seen_lengths, n):
    """Write out the listed responses (G, n) of group number b of each run, as a kernel sees them, to the rows r B + b."""
    for i in range(n):
        place = np.uintp(i * batch_size + b)
        for g in range(listed.shape[0]):
            seen_rewards[place, g] = rewards[np.uintp(listed[g, i]), i]
        if norms.shape[0] > 0:
            for g in range(listed.shape[0]):
                seen_norms[place, g] = norms[np.uintp(responses[np.uintp(listed[g, i])]), i]
        if lengths.shape[0] > 0:
            for g in range(listed.shape[0]):
                seen_lengths[place, g] = lengths[np.uintp(responses[np.uintp(listed[g, i])])]


@stage
def show_fields(fields, by_run, by_group, batch, n):
    """Write out what oracles know of the groups' prompts (B, 3, N), if there is anything, to rows i by_run + b by_group."""
    for b in range(fields.shape[0]):
        for i in range(n if fields.shape[1] > 0 else 0):
            row = np.uintp(i * by_run + b * by_group)
            batch.values[row] = fields[b, 0, i]
            batch.standard_deviations[row] = fields[b, 1, i]
            batch.optimal_baselines[row] = fields[b, 2, i]


@stage
def sum_each(listed, b, batch_size, advantages, counts, n, sums):
    """Sum the advantages of listed responses (G, n), positive ones and others apart, (2, O, n)."""
    for part in range(2):
        for o in range(sums.shape[1]):
            for i in range(n):
                sums[part, o, i] = 0.0
    for i in range(n):
        place = np.uintp(i * batch_size + b)
        for g in range(listed.shape[0]):
            advantage = advantages[place, g]
            sums[0 if advantage > 0.0 else 1, np.uintp(listed[g, i]), i] += advantage


@stage
def show_groups(rollout, batch, n, responses, lengths):
    """Write out the rollout's listed responses as a kernel sees them."""
    listed, rewards, norms = rollout.listed, rollout.rewards, rollout.norms
    seen_rewards, seen_norms, seen_lengths = batch.rewards, batch.squared_score_norms, batch.lengths
    batch_size = listed.shape[0]
    for b in range(batch_size):
        show_responses(
            listed[b], b, batch_size, responses, rewards[b], norms[b], lengths, seen_rewards, seen_norms, seen_lengths, n
        )


@stage
def call_kernel(rule, rollout, batch, n):
    """Call the kernel on the groups of n runs."""
    n_groups = n * rollout.prompts.shape[0]
    fill_advantages(rule.kernel, batch, rule.at_a_time if rule.at_a_time > 0 else n_groups, rollout.advantages[:n_groups])


@stage
def note_fault(logits, sums, by_run, by_group, seen_rewards, n, fault):
    """Note a group whose sums (B, S, O, N) are not finite although its run's logits (B, D, N) are: that is the kernel's doing.

    What the kernel saw of group b of run i is in row i by_run + b by_group.
    """
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
                fault[0] = 1.0
                for g in range(seen_rewards.shape[1]):
                    fault[1 + g] = seen_rewards[i * by_run + b * by_group, g]
                return


@function_value(SIGNATURE)
def sum_shown(rule, rollout, batch, words, first, n, responses, lengths, n_values, logits):
    """Sum the advantages of a kernel that treats responses alike: those with one outcome have one advantage.

    If the kernel has a table, the sums are bit for bit what that gives.
    """
    show_counted(rollout, batch, n, n_values, lengths)
    show_fields(rollout.fields, 1, n, batch, n)
    call_kernel(rule, rollout, batch, n)
    read_counted(rollout, n, n_values)
    if not are_finite(rollout.advantages, n * rollout.prompts.shape[0] * rollout.advantages.shape[1]):
        note_gaps(rollout.advantages, n, rollout.sums)
    note_fault(logits, rollout.sums, 1, n, batch.rewards, n, rollout.fault)


@function_value(SIGNATURE)
def sum_in_order(rule, rollout, batch, words, first, n, responses, lengths, n_values, logits):
    """Sum the advantages of a kernel that does not treat responses alike, each for itself."""
    counts, listed, advantages, sums = rollout.counts, rollout.listed, rollout.advantages, rollout.sums
    group_size = listed.shape[1]
    for b in range(counts.shape[0]):
        find_outcomes(words[b * group_size : (b + 1) * group_size], first, rollout.thresholds[b], n, listed[b])
    show_groups(rollout, batch, n, responses, lengths)
    show_fields(rollout.fields, counts.shape[0], 1, batch, n)
    call_kernel(rule, rollout, batch, n)
    for b in range(counts.shape[0]):
        sum_each(listed[b], b, counts.shape[0], advantages, counts[b], n, sums[b])
    note_fault(logits, sums, counts.shape[0], 1, batch.rewards, n, rollout.fault)
