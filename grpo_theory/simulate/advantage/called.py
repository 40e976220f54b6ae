"""Kernels that see every response: counted groups are written out for them, and what they give is read off by outcome.

For kernels that treat responses alike the groups are written in the order in which tables of advantages are made, by reward
value and then by response, and so a kernel that has a table gives the same advantages here, bit for bit.
"""

from functools import cache
from typing import Any, NamedTuple

import numba
import numpy as np

from grpo_theory.arrays import Array, Integers
from grpo_theory.compiler.compilation import F2, F3, F4, I1, allocating_stage, compile_driver, record_type, stage
from grpo_theory.compiler.lanes import WIDTH, are_finite, as_real, load, reals, store, where, zeros
from grpo_theory.estimation.kernel import KERNEL, Batch
from grpo_theory.simulate.advantage.kernel_call import BATCH, fill_advantages, make_batch, spare_rows, write_run
from grpo_theory.simulate.advantage.response_sums import push_outcomes
from grpo_theory.simulate.draw.counting import COUNTS
from grpo_theory.simulate.draw.generator import LANES
from grpo_theory.simulate.draw.order import ORDERED

SHOWN_RESPONSES = 1 << 12
"""The responses that a kernel is shown at once, unless one group has more, or one batch of groups that it couples."""


class Shown(NamedTuple):
    """What a kernel sees of the outcomes.

    Attributes
    ----------
    rewards : ndarray, shape (M, O)
        Less the penalty if it is in the reward.
    norms : ndarray, shape (M, K)
        Squared score norms; shape (0, 0) if the kernel does not read them.
    lengths : ndarray of int64, shape (K,)
        The responses' lengths; empty if the kernel does not read them.
    fields : ndarray, shape (3, M)
        What oracles know; shape (0, 0) if the kernel reads none of it.
    responses : ndarray of int64, shape (O,)
        The outcomes' responses, in order.
    n_responses, n_signs : int
        K; and 2 if advantages above 0 are added up apart from the others, else 1.
    """

    rewards: Array
    norms: Array
    lengths: Integers
    fields: Array
    responses: Integers
    n_responses: int
    n_signs: int


class ShowRoom(NamedTuple):
    """Room for some groups of some lanes, whose number divides WIDTH, and rows to spare.

    The b-th group of the j-th lane has row b lanes + j: so one count after another is read from memory that lies close together.

    Attributes
    ----------
    lanes, groups : int
    batch : Batch
        What the kernel sees.
    advantages : ndarray, shape (at least n, G)
        What it gives.
    outcomes : ndarray, shape (B, O, WIDTH)
        The advantages of the outcomes, over G, for a vector of lanes.
    """

    lanes: int
    groups: int
    batch: Batch
    advantages: Array
    outcomes: Array


SHOWN = record_type(Shown, F2, F2, I1, F2, I1, numba.int64, numba.int64)
SHOW_ROOM = record_type(ShowRoom, numba.int64, numba.int64, BATCH, F2, F3)


def make_show_room(n_outcomes: int, batch_size: int, group_size: int, parameters: Array, *, couples: bool) -> ShowRoom:
    """Make room to show batches to a kernel with these parameters: a whole one, and one at a time, if it couples its groups."""
    most = 1 if couples else min(WIDTH, SHOWN_RESPONSES // (batch_size * group_size))
    lanes = 1 << max(0, most.bit_length() - 1)
    groups = batch_size if couples else max(1, min(batch_size, SHOWN_RESPONSES // group_size))
    n = lanes * groups + spare_rows(group_size)
    by_outcome = zeros(batch_size, n_outcomes, WIDTH)
    return ShowRoom(lanes, groups, make_batch(n, group_size, parameters), zeros(n, group_size), by_outcome)


@stage
def show_prompts(shown, prompts, start, stop, first, n, batch):
    """Write out what oracles know of the prompts (B, LANES) of some groups of n lanes, from the first on."""
    if shown.fields.shape[0] > 0:
        for b in range(start, stop):
            for j in range(n):
                i, m = (b - start) * n + j, np.uintp(prompts[b, first + j])
                batch.values[i] = shown.fields[0, m]
                batch.standard_deviations[i] = shown.fields[1, m]
                batch.optimal_baselines[i] = shown.fields[2, m]


@stage
def show_counted(shown, outcomes, prompts, start, stop, first, n, batch):
    """Write out some groups of n lanes, from the first on, from their counts (B, O, LANES)."""
    sees_norms, sees_lengths = shown.norms.shape[0] > 0, shown.lengths.shape[0] > 0
    n_values = outcomes.shape[1] // shown.n_responses
    for b in range(start, stop):
        for j in range(n):
            i, m, g = (b - start) * n + j, np.uintp(prompts[b, first + j]), 0
            for value in range(n_values):
                for response in range(shown.n_responses):
                    outcome = response * n_values + value
                    count = int(outcomes[b, outcome, first + j])
                    write_run(shown.rewards[m, outcome], count, batch.rewards, i, g)
                    if sees_norms:
                        write_run(shown.norms[m, response], count, batch.squared_score_norms, i, g)
                    if sees_lengths:
                        write_run(shown.lengths[response], count, batch.lengths, i, g)
                    g += count


@stage
def read_counted(shown, outcomes, start, stop, first, n, advantages, by_outcome, i):
    """Read off what some groups of n lanes, from the first on, are given, over G, to the lanes of by_outcome from i on.

    An outcome's advantage is its first response's: a kernel that treats responses alike gives equal ones equal advantages, up to
    rounding.  Outcomes that did not occur are left as they are.
    """
    n_values, group_size = outcomes.shape[1] // shown.n_responses, float(advantages.shape[1])
    for b in range(start, stop):
        for j in range(n):
            g = 0
            for value in range(n_values):
                for response in range(shown.n_responses):
                    outcome = response * n_values + value
                    count = int(outcomes[b, outcome, first + j])
                    if count > 0:
                        by_outcome[b, outcome, i + j] = advantages[(b - start) * n + j, g] / group_size
                        g += count


@stage
def note_gaps(advantages, start, stop, n, by_outcome, i):
    """Spoil what was read off groups of n lanes in which the kernel leaves an advantage that is not finite.

    The first outcome's advantage, in the lanes of by_outcome from i on, is then no number, and so is the group's estimate: even
    if the outcome did not occur, because 0 times what is no number is none either.
    """
    for b in range(start, stop):
        for j in range(n):
            for g in range(advantages.shape[1]):
                if not np.isfinite(advantages[(b - start) * n + j, g]):
                    by_outcome[b, 0, i + j] = np.nan


@stage
def clear(by_outcome):
    """Put 0 wherever advantages of outcomes (B, O, WIDTH) are."""
    for b in range(by_outcome.shape[0]):
        for outcome in range(by_outcome.shape[1]):
            store(reals(0.0), by_outcome, b, outcome, 0)


@allocating_stage
def call_on_vector(kernel, shown, outcomes, prompts, i, room):
    """Fill in the advantages of the outcomes of a vector of lanes, from lane i of counts (B, O, LANES) on, over G."""
    batch_size, group_size, n = prompts.shape[0], room.advantages.shape[1], room.lanes
    clear(room.outcomes)
    for lane in range(0, WIDTH, n):
        for start in range(0, batch_size, room.groups):
            stop = min(start + room.groups, batch_size)
            n_groups = (stop - start) * n
            show_prompts(shown, prompts, start, stop, i + lane, n, room.batch)
            show_counted(shown, outcomes, prompts, start, stop, i + lane, n, room.batch)
            fill_advantages(kernel, room.batch, n_groups, room.advantages[:n_groups])
            read_counted(shown, outcomes, start, stop, i + lane, n, room.advantages, room.outcomes, lane)
            if not are_finite(room.advantages, n_groups * group_size):
                note_gaps(room.advantages, start, stop, n, room.outcomes, lane)


def fill_pushes(kernel, shown, counts, room, pushes):
    """Fill in pushes (S, B, n_signs K, LANES) of a kernel that treats responses alike."""
    n_strips, batch_size, _ = counts.prompts.shape
    n_values = counts.outcomes.shape[2] // shown.n_responses
    for s in range(n_strips):
        for i in range(0, LANES, WIDTH):
            call_on_vector(kernel, shown, counts.outcomes[s], counts.prompts[s], i, room)
            for b in range(batch_size):
                push_outcomes(counts.outcomes, s, b, i, room.outcomes[b], n_values, n_values, shown.n_signs, pushes)


@stage
def find_firsts(outcomes, s, b, i, by_outcome, n_values, firsts, deviations):
    """Put apart the advantage of the first response with each reward value of a group, and add up what others differ from it.

    The first are for firsts (S, B, L, LANES), 0 where no response has the value, and the others, by response, for deviations
    (S, B, K, LANES).
    """
    for value in range(n_values):
        first, outcome = reals(0.0), by_outcome.shape[1] - n_values + value
        while outcome >= 0:
            first = where(load(outcomes, s, b, outcome, i) > 0, load(by_outcome, b, outcome, 0), first)
            outcome -= n_values
        store(first, firsts, s, b, value, i)
    for k in range(deviations.shape[2]):
        found = reals(0.0)
        for value in range(n_values):
            outcome = k * n_values + value
            difference = load(by_outcome, b, outcome, 0) - load(firsts, s, b, value, i)
            found = found + as_real(load(outcomes, s, b, outcome, i)) * difference
        store(found, deviations, s, b, k, i)


def fill_firsts(kernel, shown, counts, room, firsts, deviations):
    """Fill in firsts (S, B, L, LANES) and deviations (S, B, K, LANES): see `find_firsts`."""
    n_strips, batch_size, _ = counts.prompts.shape
    for s in range(n_strips):
        for i in range(0, LANES, WIDTH):
            call_on_vector(kernel, shown, counts.outcomes[s], counts.prompts[s], i, room)
            for b in range(batch_size):
                find_firsts(counts.outcomes, s, b, i, room.outcomes, firsts.shape[2], firsts, deviations)


@stage
def show_ordered(shown, outcomes, prompts, start, stop, first, n, batch):
    """Write out some groups of n lanes, from the first on, from their outcomes in the order drawn (B, G, LANES)."""
    sees_norms, sees_lengths = shown.norms.shape[0] > 0, shown.lengths.shape[0] > 0
    for b in range(start, stop):
        for j in range(n):
            i, m = (b - start) * n + j, np.uintp(prompts[b, first + j])
            for g in range(outcomes.shape[1]):
                outcome = np.uintp(outcomes[b, g, first + j])
                response = np.uintp(shown.responses[outcome])
                batch.rewards[i, g] = shown.rewards[m, outcome]
                if sees_norms:
                    batch.squared_score_norms[i, g] = shown.norms[m, response]
                if sees_lengths:
                    batch.lengths[i, g] = shown.lengths[response]


@stage
def add_ordered(shown, outcomes, start, stop, first, n, advantages, pushes):
    """Add the advantages of some groups of n lanes, from the first on, over G, to pushes (B, n_signs K, LANES)."""
    group_size = advantages.shape[1]
    for b in range(start, stop):
        for j in range(n):
            for g in range(group_size):
                advantage = advantages[(b - start) * n + j, g]
                response = shown.responses[np.uintp(outcomes[b, g, first + j])]
                row = response if advantage > 0.0 or shown.n_signs == 1 else shown.n_responses + response
                pushes[b, np.uintp(row), first + j] += advantage / group_size


def fill_ordered_pushes(kernel, shown, prompts, outcomes, room, pushes):
    """Fill in pushes (S, B, n_signs K, LANES) of a kernel that is shown outcomes (S, B, G, LANES) in the order drawn."""
    n_strips, batch_size, _, _ = outcomes.shape
    pushes[:, :, :, :] = 0.0
    for s in range(n_strips):
        for first in range(0, LANES, room.lanes):
            for start in range(0, batch_size, room.groups):
                stop = min(start + room.groups, batch_size)
                n_groups = (stop - start) * room.lanes
                show_prompts(shown, prompts[s], start, stop, first, room.lanes, room.batch)
                show_ordered(shown, outcomes[s], prompts[s], start, stop, first, room.lanes, room.batch)
                fill_advantages(kernel, room.batch, n_groups, room.advantages[:n_groups])
                add_ordered(shown, outcomes[s], start, stop, first, room.lanes, room.advantages, pushes[s])


@cache
def compiled_fill_pushes() -> Any:
    """Compile `fill_pushes`, or read it from the cache."""
    return compile_driver(fill_pushes, numba.void(KERNEL, SHOWN, COUNTS, SHOW_ROOM, F4))


@cache
def compiled_fill_firsts() -> Any:
    """Compile `fill_firsts`, or read it from the cache."""
    return compile_driver(fill_firsts, numba.void(KERNEL, SHOWN, COUNTS, SHOW_ROOM, F4, F4))


@cache
def compiled_fill_ordered_pushes() -> Any:
    """Compile `fill_ordered_pushes`, or read it from the cache."""
    prompts = numba.int64[:, :, ::1]
    return compile_driver(fill_ordered_pushes, numba.void(KERNEL, SHOWN, prompts, ORDERED, SHOW_ROOM, F4))
