"""Stage 2, advantages: groups are written out for a kernel, run by run of equal responses, and the kernel is called on them.

A run is written by whole vectors, past its end: what is meant to be there is written later, because groups are written out in
the order of their rows.  So arrays have `spare_rows` more than there are groups.
"""

import numpy as np
from numba import types

from grpo_theory.arrays import Array
from grpo_theory.compiler.compilation import F1, F2, I2, stage
from grpo_theory.compiler.lanes import RUN, repeat
from grpo_theory.estimation.advantage import Advantage
from grpo_theory.estimation.kernel import PROMPT_FIELDS, Batch
from grpo_theory.estimation.trial import failure

BATCH = types.NamedTuple((F2, F2, I2, F1, F1, F1, F1), Batch)


def spare_rows(group_size: int) -> int:
    """Return how many rows of G numbers the end of the last run may write into."""
    return -(-RUN // group_size)


@stage
def write_run(number, count, rows, i, g):
    """Write a number to row i of rows (at least n, G) as often as it occurs there, from place g on."""
    more = 0
    while more < count:  # a range would begin with a division
        repeat(number, rows, i, g + more)
        more += RUN


@stage
def fill_advantages(kernel, batch, at_a_time, advantages):
    """Call the kernel on the batch's groups, so many at a time; what it leaves out stays NaN."""
    advantages[:, :] = np.nan
    for i in range(0, advantages.shape[0], at_a_time):
        j = i + at_a_time
        part = Batch(
            batch.rewards[i:j],
            batch.squared_score_norms[i:j],
            batch.lengths[i:j],
            batch.values[i:j],
            batch.standard_deviations[i:j],
            batch.optimal_baselines[i:j],
            batch.parameters,
        )
        kernel(part, advantages[i:j])


def fault_message(advantage: Advantage, rewards: Array) -> str:
    """Say that a kernel leaves an advantage that is not finite to a group with these rewards, or raises something there."""
    batch = make_batch(1, rewards.size, advantage.parameter_array)._replace(rewards=rewards[None].copy())
    why = failure(advantage, batch)
    means = f"; as plain Python it raises {why}" if why else ""
    where = f"and does not for a group with rewards {rewards.tolist()}{means}"
    return f"the kernel of estimator {advantage.name!r} must fill finite advantages, {where}"


def make_batch(n_groups: int, group_size: int, parameters: Array) -> Batch:
    """Make room for what a kernel sees of so many groups at once."""
    shape = n_groups, group_size
    unread = [np.full(n_groups, np.nan) for _ in PROMPT_FIELDS]
    return Batch._make([np.empty(shape), np.full(shape, np.nan), np.ones(shape, dtype=np.int64), *unread, parameters])
