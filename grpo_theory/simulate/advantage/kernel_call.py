"""Calls of a kernel: groups are written out for it, run by run of equal responses, and what it gives is read off.

A kernel that treats responses alike is shown counted groups, ordered by reward value and then by response.  Tables of advantages
are made in the same order, so a kernel that has a table gives the same advantages here, bit for bit.  Any other kernel is shown
the responses in the order in which they were drawn.

A run is written by whole vectors, past its end.  The entries past the end are overwritten later with their own values, because
groups are written out in the order of their rows.  So arrays have `spare_rows` more rows than there are groups.
"""

import numpy as np

from grpo_theory.compiler import allocating_stage, stage
from grpo_theory.compiler.lanes import RUN, WIDTH, are_finite, reals, repeat, store
from grpo_theory.estimation.kernel import Batch


@stage
def write_run(number, count, rows, i, g):
    """Write a number to row i of rows (at least n, G) as often as it occurs there, from index g on."""
    more = 0
    while more < count:  # a range would begin with a division
        repeat(number, rows, i, g + more)
        more += RUN


@stage
def fill_advantages(kernel, batch, advantages):
    """Call the kernel on as many of the batch's groups as there are advantages (n, G); what it leaves out stays NaN."""
    n = advantages.shape[0]
    advantages[:, :] = np.nan
    part = Batch(
        batch.rewards[:n],
        batch.squared_score_norms[:n],
        batch.lengths[:n],
        batch.values[:n],
        batch.standard_deviations[:n],
        batch.optimal_baselines[:n],
        batch.parameters,
    )
    kernel(part, advantages)


@stage
def entry(view, prompts, b, i):
    """Return the indices p and q of group b of lane i in the arrays (P, rows, Q) of a `KernelView`."""
    if view.rewards.shape[2] == 1:
        return np.uintp(prompts[b, i]), np.uintp(0)
    return np.uintp(b), np.uintp(i)


@stage
def write_fields(view, prompts, first, n, batch):
    """Write out what oracles know of the prompts (B, N) of n lanes from the first on."""
    for b in range(prompts.shape[0] if view.fields.shape[1] > 0 else 0):
        for j in range(n):
            row = np.uintp(b * n + j)
            p, q = entry(view, prompts, b, first + j)
            batch.values[row] = view.fields[p, 0, q]
            batch.standard_deviations[row] = view.fields[p, 1, q]
            batch.optimal_baselines[row] = view.fields[p, 2, q]


@stage
def write_counted(view, counts, prompts, first, n, batch):
    """Write out the groups of n lanes from their counts (B, O, N), those with the lowest reward value first."""
    sees_norms, sees_lengths = view.norms.shape[1] > 0, view.lengths.shape[0] > 0
    n_outcomes = counts.shape[1]
    n_values = n_outcomes // (view.responses[n_outcomes - 1] + 1)
    for b in range(counts.shape[0]):
        for j in range(n):
            row, g, i = b * n + j, 0, first + j
            p, q = entry(view, prompts, b, i)
            for value in range(n_values):
                response, o = 0, value
                while o < n_outcomes:
                    count = int(counts[b, o, i])
                    write_run(view.rewards[p, o, q], count, batch.rewards, row, g)
                    if sees_norms:
                        write_run(view.norms[p, response, q], count, batch.squared_score_norms, row, g)
                    if sees_lengths:
                        write_run(view.lengths[response], count, batch.lengths, row, g)
                    g += count
                    response += 1
                    o += n_values


@stage
def clear_lanes(rows, n):
    """Put 0 into n lanes of rows (m, N), and into those that fill the last vector."""
    for row in range(rows.shape[0]):
        for i in range(0, n, WIDTH):
            store(reals(0.0), rows, row, i)


@stage
def read_counted(counts, n_values, first, n, room, by_outcome, i):
    """Copy the advantages of the groups of n lanes, over the divisor, to by_outcome (B, O, at least n) from lane i on.

    An outcome's advantage is that of its first response.  A kernel that treats responses alike gives equal responses equal
    advantages, up to rounding.  Outcomes that did not occur are left as they are.
    """
    for b in range(counts.shape[0]):
        for j in range(n):
            row, g = b * n + j, 0
            for value in range(n_values):
                o = value
                while o < counts.shape[1]:
                    count = int(counts[b, o, first + j])
                    if count > 0:
                        by_outcome[b, o, i + j] = room.advantages[row, g] / room.divisor
                        g += count
                    o += n_values


@stage
def note_gaps(advantages, n, by_outcome, i):
    """Mark groups in which the kernel leaves an advantage that is not finite, so that their estimates are NaN.

    The advantage of the group's first outcome becomes NaN, in the lanes of by_outcome from i on.  The group's estimate is then
    NaN too, even if that outcome did not occur, because 0 times NaN is NaN.
    """
    for b in range(by_outcome.shape[0]):
        for j in range(n):
            for g in range(advantages.shape[1]):
                if not np.isfinite(advantages[b * n + j, g]):
                    by_outcome[b, 0, i + j] = np.nan


@allocating_stage
def call_on_counts(kernel, view, counts, prompts, first, n, room, by_outcome):
    """Fill in the advantages of the outcomes of n lanes, from lane `first` of counts (B, O, N) on, over the divisor.

    They are for the first n lanes of by_outcome (B, O, at least n); those of outcomes that did not occur become 0.
    """
    batch_size, group_size = counts.shape[0], room.advantages.shape[1]
    n_values = counts.shape[1] // (view.responses[counts.shape[1] - 1] + 1)
    for b in range(batch_size):
        clear_lanes(by_outcome[b], n)
    for lane in range(0, n, room.lanes):
        shown = min(room.lanes, n - lane)
        write_fields(view, prompts, first + lane, shown, room.batch)
        write_counted(view, counts, prompts, first + lane, shown, room.batch)
        fill_advantages(kernel, room.batch, room.advantages[: batch_size * shown])
        read_counted(counts, n_values, first + lane, shown, room, by_outcome, lane)
        if not are_finite(room.advantages, batch_size * shown * group_size):
            note_gaps(room.advantages, shown, by_outcome, lane)


@stage
def write_ordered(view, ordered, prompts, first, n, batch):
    """Write out the groups of n lanes from their outcomes (B, G, N) in the order drawn."""
    sees_norms, sees_lengths = view.norms.shape[1] > 0, view.lengths.shape[0] > 0
    for b in range(ordered.shape[0]):
        for j in range(n):
            row, i = np.uintp(b * n + j), first + j
            p, q = entry(view, prompts, b, i)
            for g in range(ordered.shape[1]):
                outcome = np.uintp(ordered[b, g, i])
                response = np.uintp(view.responses[outcome])
                batch.rewards[row, g] = view.rewards[p, outcome, q]
                if sees_norms:
                    batch.squared_score_norms[row, g] = view.norms[p, response, q]
                if sees_lengths:
                    batch.lengths[row, g] = view.lengths[response]


@stage
def add_ordered(ordered, responses, first, n, room, sums):
    """Add the advantages of the groups of n lanes, over the divisor, to sums (B, S, O or K, N) by outcome or by response.

    If S is 2, those above 0 are added up apart from the others.
    """
    by_response = sums.shape[2] < responses.shape[0]
    for b in range(ordered.shape[0]):
        for j in range(n):
            i = first + j
            for g in range(ordered.shape[1]):
                advantage, row = room.advantages[b * n + j, g], np.uintp(ordered[b, g, i])
                if by_response:
                    row = np.uintp(responses[row])
                part = 0 if advantage > 0.0 or sums.shape[1] == 1 else 1
                sums[b, part, row, i] += advantage / room.divisor


@allocating_stage
def call_in_order(kernel, view, ordered, prompts, n, room, sums):
    """Fill in the sums of the advantages of n lanes' outcomes (B, G, N) in the order drawn; see `add_ordered`."""
    batch_size = ordered.shape[0]
    for b in range(batch_size):
        for part in range(sums.shape[1]):
            clear_lanes(sums[b, part], n)
    for first in range(0, n, room.lanes):
        shown = min(room.lanes, n - first)
        write_fields(view, prompts, first, shown, room.batch)
        write_ordered(view, ordered, prompts, first, shown, room.batch)
        fill_advantages(kernel, room.batch, room.advantages[: batch_size * shown])
        add_ordered(ordered, view.responses, first, shown, room, sums)
