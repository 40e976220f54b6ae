"""Kernels that see every response: counted groups are written out for them, and what they give is read off by outcome.

For kernels that treat responses alike the groups are written in the order in which tables of advantages are made, by reward
value and then by response, and so a kernel that has a table gives the same advantages here, bit for bit.
"""

from functools import cache
from typing import Any, NamedTuple

import numba
import numpy as np

from grpo_theory.arrays import Array, Integers
from grpo_theory.compilation import F2, F3, F4, I1, allocating_stage, compile_driver, record_type, stage
from grpo_theory.estimation.kernel import KERNEL, Batch
from grpo_theory.lanes import WIDTH, are_finite, as_real, load, reals, store, where, zeros
from grpo_theory.simulate.counting import COUNTS
from grpo_theory.simulate.ordering import ORDERED
from grpo_theory.simulate.pushes import push_outcomes
from grpo_theory.simulate.show import (
    BATCH,
    fill_advantages,
    make_batch,
    read_run,
    spare_rows,
    write_run,
)
from grpo_theory.simulate.strip import STRIP

SHOWN_RESPONSES = 1 << 12
"""The responses that a kernel is shown at once, unless one batch has more."""


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
    couples : bool
        Whether the kernel is given the groups of one batch at a time, because it couples them.
    """

    rewards: Array
    norms: Array
    lengths: Integers
    fields: Array
    responses: Integers
    n_responses: int
    n_signs: int
    couples: bool


class ShowRoom(NamedTuple):
    """Room for the batches of some lanes, whose number divides WIDTH: n groups, and rows to spare.

    Attributes
    ----------
    lanes : int
    batch : Batch
        What the kernel sees.
    advantages : ndarray, shape (at least n, G)
        What it gives.
    outcomes : ndarray, shape (B, O, WIDTH)
        The advantages of the outcomes, over G, for a vector of lanes.
    """

    lanes: int
    batch: Batch
    advantages: Array
    outcomes: Array


SHOWN = record_type(Shown, F2, F2, I1, F2, I1, numba.int64, numba.int64, numba.boolean)
SHOW_ROOM = record_type(ShowRoom, numba.int64, BATCH, F2, F3)


def make_show_room(shown: Shown, batch_size: int, group_size: int, parameters: Array) -> ShowRoom:
    """Make room to show batches to a kernel with these parameters."""
    lanes = 1 << max(0, min(WIDTH, SHOWN_RESPONSES // (batch_size * group_size)).bit_length() - 1)
    n = lanes * batch_size + spare_rows(group_size)
    by_outcome = zeros(batch_size, len(shown.responses), WIDTH)
    return ShowRoom(lanes, make_batch(n, group_size, parameters), zeros(n, group_size), by_outcome)


@stage
def show_prompts(shown, prompts, first, n, batch):
    """Write out what oracles know of the prompts (B, STRIP) of n lanes, from the first on."""
    batch_size = prompts.shape[0]
    if shown.fields.shape[0] > 0:
        for j in range(n):
            for b in range(batch_size):
                i, m = j * batch_size + b, np.uintp(prompts[b, first + j])
                batch.values[i] = shown.fields[0, m]
                batch.standard_deviations[i] = shown.fields[1, m]
                batch.optimal_baselines[i] = shown.fields[2, m]


@stage
def show_counted(shown, outcomes, prompts, first, n, batch):
    """Write out the groups of n lanes, from the first on, from their counts (B, O, STRIP)."""
    sees_norms, sees_lengths = shown.norms.shape[0] > 0, shown.lengths.shape[0] > 0
    batch_size, n_values = prompts.shape[0], outcomes.shape[1] // shown.n_responses
    for j in range(n):
        for b in range(batch_size):
            i, m, g = j * batch_size + b, np.uintp(prompts[b, first + j]), 0
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
def read_counted(shown, outcomes, first, n, advantages, by_outcome, i):
    """Read off the advantages of the outcomes of n lanes, from the first on, to the lanes of by_outcome from i on."""
    batch_size, n_values = outcomes.shape[0], outcomes.shape[1] // shown.n_responses
    for j in range(n):
        for b in range(batch_size):
            g = 0
            for value in range(n_values):
                for response in range(shown.n_responses):
                    outcome = response * n_values + value
                    count = int(outcomes[b, outcome, first + j])
                    by_outcome[b, outcome, i + j] = read_run(advantages, count, j * batch_size + b, g)
                    g += count


@stage
def note_gaps(advantages, n, by_outcome, i):
    """Let nothing be read off the groups of n lanes, from lane i of by_outcome on, to which the kernel leaves a gap."""
    batch_size = by_outcome.shape[0]
    for j in range(n):
        for b in range(batch_size):
            for g in range(advantages.shape[1]):
                if not np.isfinite(advantages[j * batch_size + b, g]):
                    by_outcome[b, 0, i + j] = np.nan


@stage
def divide(by_outcome, group_size):
    """Divide the advantages of outcomes (B, O, WIDTH) by G."""
    for b in range(by_outcome.shape[0]):
        for outcome in range(by_outcome.shape[1]):
            store(load(by_outcome, b, outcome, 0) / group_size, by_outcome, b, outcome, 0)


@allocating_stage
def call_on_vector(kernel, shown, outcomes, prompts, i, room):
    """Fill in the advantages of the outcomes of a vector of lanes, from lane i of counts (B, O, STRIP) on, over G."""
    batch_size, group_size = prompts.shape[0], room.advantages.shape[1]
    n_groups = room.lanes * batch_size
    for lane in range(0, WIDTH, room.lanes):
        show_prompts(shown, prompts, i + lane, room.lanes, room.batch)
        show_counted(shown, outcomes, prompts, i + lane, room.lanes, room.batch)
        fill_advantages(kernel, room.batch, batch_size if shown.couples else n_groups, room.advantages[:n_groups])
        read_counted(shown, outcomes, i + lane, room.lanes, room.advantages, room.outcomes, lane)
        if not are_finite(room.advantages, n_groups * group_size):
            note_gaps(room.advantages, room.lanes, room.outcomes, lane)
    divide(room.outcomes, float(group_size))


def fill_pushes(kernel, shown, counts, room, pushes):
    """Fill in pushes (S, B, n_signs K, STRIP) of a kernel that treats responses alike."""
    n_strips, batch_size, _ = counts.prompts.shape
    n_values = counts.outcomes.shape[2] // shown.n_responses
    for s in range(n_strips):
        for i in range(0, STRIP, WIDTH):
            call_on_vector(kernel, shown, counts.outcomes[s], counts.prompts[s], i, room)
            for b in range(batch_size):
                push_outcomes(counts.outcomes, s, b, i, room.outcomes[b], n_values, n_values, shown.n_signs, pushes)


@stage
def find_firsts(outcomes, s, b, i, by_outcome, n_values, firsts, deviations):
    """Put apart the advantage of the first response with each reward value of a group, and add up what others differ from it.

    The first are for firsts (S, B, L, STRIP), 0 where no response has the value, and the others, by response, for deviations
    (S, B, K, STRIP).
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
    """Fill in firsts (S, B, L, STRIP) and deviations (S, B, K, STRIP): see `find_firsts`."""
    n_strips, batch_size, _ = counts.prompts.shape
    for s in range(n_strips):
        for i in range(0, STRIP, WIDTH):
            call_on_vector(kernel, shown, counts.outcomes[s], counts.prompts[s], i, room)
            for b in range(batch_size):
                find_firsts(counts.outcomes, s, b, i, room.outcomes, firsts.shape[2], firsts, deviations)


@stage
def show_ordered(shown, outcomes, prompts, first, n, batch):
    """Write out the groups of n lanes, from the first on, from their outcomes in the order drawn (B, G, STRIP)."""
    sees_norms, sees_lengths = shown.norms.shape[0] > 0, shown.lengths.shape[0] > 0
    batch_size = prompts.shape[0]
    for j in range(n):
        for b in range(batch_size):
            i, m = j * batch_size + b, np.uintp(prompts[b, first + j])
            for g in range(outcomes.shape[1]):
                outcome = np.uintp(outcomes[b, g, first + j])
                response = np.uintp(shown.responses[outcome])
                batch.rewards[i, g] = shown.rewards[m, outcome]
                if sees_norms:
                    batch.squared_score_norms[i, g] = shown.norms[m, response]
                if sees_lengths:
                    batch.lengths[i, g] = shown.lengths[response]


@stage
def add_ordered(shown, outcomes, first, n, advantages, pushes):
    """Add the advantages of n lanes, from the first on, over G, by sign and response to pushes (B, n_signs K, STRIP)."""
    batch_size, group_size = pushes.shape[0], advantages.shape[1]
    for j in range(n):
        for b in range(batch_size):
            for g in range(group_size):
                advantage = advantages[j * batch_size + b, g]
                response = shown.responses[np.uintp(outcomes[b, g, first + j])]
                row = response if advantage > 0.0 or shown.n_signs == 1 else shown.n_responses + response
                pushes[b, np.uintp(row), first + j] += advantage / group_size


def fill_ordered_pushes(kernel, shown, prompts, outcomes, room, pushes):
    """Fill in pushes (S, B, n_signs K, STRIP) of a kernel that is shown outcomes (S, B, G, STRIP) in the order drawn."""
    n_strips, batch_size, _, _ = outcomes.shape
    n_groups = room.lanes * batch_size
    pushes[:, :, :, :] = 0.0
    for s in range(n_strips):
        for first in range(0, STRIP, room.lanes):
            show_prompts(shown, prompts[s], first, room.lanes, room.batch)
            show_ordered(shown, outcomes[s], prompts[s], first, room.lanes, room.batch)
            fill_advantages(kernel, room.batch, batch_size if shown.couples else n_groups, room.advantages[:n_groups])
            add_ordered(shown, outcomes[s], first, room.lanes, room.advantages, pushes[s])


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
