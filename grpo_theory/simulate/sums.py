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
from grpo_theory.compilation import F1, F2, F3, F4, I1, I2, record_type, stage
from grpo_theory.estimation.kernel import KERNEL
from grpo_theory.first_class import function_value
from grpo_theory.lanes import WIDTH, as_integer, as_real, lane_numbers, load, reals, shorts, store, take, where
from grpo_theory.simulate.choice import LOOKUP, Lookup, at_places, read_rows
from grpo_theory.simulate.show import BATCH, fill_advantages
from grpo_theory.simulate.tally import MASK

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
        Outcomes, where the kernel is called; (B, 0, N) where it is not.
    advantages : ndarray, shape (N B, G)
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
def list_outcomes(counts, n_values, n, listed):
    """List the outcomes (G, n) of one group of each run from their numbers, those with the lowest reward value first."""
    group_size = listed.shape[0]
    for i in range(n):
        g = 0
        for value in range(n_values):
            for o in range(value, counts.shape[0], n_values):
                # Where a run has left the numbers, counts mean nothing; they must not lead out of the group.
                stop = min(g + max(counts[o, i], 0), group_size)
                while g < stop:
                    listed[np.uintp(g), i] = o
                    g += 1
        while g < group_size:
            listed[np.uintp(g), i] = 0
            g += 1


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
def show_fields(fields, b, batch_size, values, standard_deviations, optimal_baselines, n):
    """Write out what oracles know of the prompt of group number b of each run, if there is anything."""
    for i in range(n if fields.shape[0] > 0 else 0):
        place = np.uintp(i * batch_size + b)
        values[place] = fields[0, i]
        standard_deviations[place] = fields[1, i]
        optimal_baselines[place] = fields[2, i]


@stage
def sum_alike(listed, b, batch_size, advantages, counts, n, sums):
    """Sum the advantages of listed responses (G, n), those with one outcome one after another, (1, O, n).

    The sum is the number of them times the first one's advantage, and the others' differences from it, which are 0: bit for bit
    what a table gives.
    """
    for o in range(sums.shape[1]):
        for i in range(n):
            sums[0, o, i] = 0.0
    for i in range(n):
        place, last, first = np.uintp(i * batch_size + b), -1, 0.0
        for g in range(listed.shape[0]):
            o = listed[g, i]
            if o != last:
                last, first = o, advantages[place, g]
                sums[0, np.uintp(o), i] = first * counts[np.uintp(o), i]
            else:
                sums[0, np.uintp(o), i] += advantages[place, g] - first


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
    listed, rewards, norms, fields = rollout.listed, rollout.rewards, rollout.norms, rollout.fields
    seen_rewards, seen_norms, seen_lengths = batch.rewards, batch.squared_score_norms, batch.lengths
    values, deviations, baselines = batch.values, batch.standard_deviations, batch.optimal_baselines
    batch_size = listed.shape[0]
    for b in range(batch_size):
        show_responses(
            listed[b], b, batch_size, responses, rewards[b], norms[b], lengths, seen_rewards, seen_norms, seen_lengths, n
        )
        show_fields(fields[b], b, batch_size, values, deviations, baselines, n)


@stage
def call_kernel(rule, rollout, batch, n):
    """Call the kernel on the groups of n runs."""
    n_groups = n * rollout.prompts.shape[0]
    fill_advantages(rule.kernel, batch, rule.at_a_time if rule.at_a_time > 0 else n_groups, rollout.advantages[:n_groups])


@stage
def note_fault(logits, sums, seen_rewards, n, fault):
    """Note a group whose sums (B, S, O, N) are not finite although its run's logits (B, D, N) are: that is the kernel's doing."""
    for i in range(n):
        total, height = 0.0, 0.0
        for b in range(sums.shape[0]):
            for part in range(sums.shape[1]):
                for o in range(sums.shape[2]):
                    total += sums[b, part, o, i]
        if np.isfinite(total):
            continue
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
                    fault[1 + g] = seen_rewards[i * sums.shape[0] + b, g]
                return


@function_value(SIGNATURE)
def sum_shown(rule, rollout, batch, words, first, n, responses, lengths, n_values, logits):
    """Sum the advantages of a kernel that treats responses alike: those with one outcome have one advantage."""
    counts, listed, advantages, sums = rollout.counts, rollout.listed, rollout.advantages, rollout.sums
    for b in range(counts.shape[0]):
        list_outcomes(counts[b], n_values, n, listed[b])
    show_groups(rollout, batch, n, responses, lengths)
    call_kernel(rule, rollout, batch, n)
    for b in range(counts.shape[0]):
        sum_alike(listed[b], b, counts.shape[0], advantages, counts[b], n, sums[b])
    note_fault(logits, sums, batch.rewards, n, rollout.fault)


@function_value(SIGNATURE)
def sum_in_order(rule, rollout, batch, words, first, n, responses, lengths, n_values, logits):
    """Sum the advantages of a kernel that does not treat responses alike, each for itself."""
    counts, listed, advantages, sums = rollout.counts, rollout.listed, rollout.advantages, rollout.sums
    group_size = listed.shape[1]
    for b in range(counts.shape[0]):
        find_outcomes(words[b * group_size : (b + 1) * group_size], first, rollout.thresholds[b], n, listed[b])
    show_groups(rollout, batch, n, responses, lengths)
    call_kernel(rule, rollout, batch, n)
    for b in range(counts.shape[0]):
        sum_each(listed[b], b, counts.shape[0], advantages, counts[b], n, sums[b])
    note_fault(logits, sums, batch.rewards, n, rollout.fault)
