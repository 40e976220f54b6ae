"""Kernels that see every response: counted groups are written out for them, and what they give is added up by response.

For kernels that treat responses alike the groups are written in the order in which tables of advantages are made, by reward
value and then by response; so a kernel that has a table gets the same advantages here, bit for bit.
"""

from functools import cache
from typing import Any, NamedTuple

import numba
import numpy as np

from grpo_theory.arrays import Array, Integers
from grpo_theory.compilation import F2, F4, I1, compile_function, record_type, stage
from grpo_theory.estimation.kernel import KERNEL, PROMPT_FIELDS, Batch
from grpo_theory.simulate.counting import COUNTS
from grpo_theory.simulate.ordering import ORDERED
from grpo_theory.simulate.show import BATCH
from grpo_theory.simulate.strip import STRIP


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
    n_responses, n_signs : int
        K; and 2 if advantages above 0 are added up apart from the others, else 1.
    """

    rewards: Array
    norms: Array
    lengths: Integers
    fields: Array
    n_responses: int
    n_signs: int


SHOWN = record_type(Shown, F2, F2, I1, F2, numba.int64, numba.int64)


@stage
def show_prompt(shown, m, i, batch):
    """Write out what oracles know of prompt m, as group i of a batch."""
    if shown.fields.shape[0] > 0:
        batch.values[i] = shown.fields[0, m]
        batch.standard_deviations[i] = shown.fields[1, m]
        batch.optimal_baselines[i] = shown.fields[2, m]


@stage
def show_responses(shown, m, outcome, response, i, first, last, batch):
    """Write out an outcome at prompt m, as responses `first` up to `last` of group i of a batch."""
    reward = shown.rewards[m, outcome]
    for g in range(first, last):
        batch.rewards[i, g] = reward
    if shown.norms.shape[0] > 0:
        norm = shown.norms[m, response]
        for g in range(first, last):
            batch.squared_score_norms[i, g] = norm
    if shown.lengths.shape[0] > 0:
        for g in range(first, last):
            batch.lengths[i, g] = shown.lengths[response]


@stage
def show_counted(shown, outcomes, m, j, i, batch):
    """Write out the group of lane j from its counts (O, STRIP), as group i of a batch."""
    show_prompt(shown, m, i, batch)
    n_values = outcomes.shape[0] // shown.n_responses
    first = 0
    for value in range(n_values):
        for response in range(shown.n_responses):
            outcome = response * n_values + value
            last = first + int(outcomes[outcome, j])
            if last > first:
                show_responses(shown, m, outcome, response, i, first, last, batch)
                first = last


@stage
def show_ordered(shown, outcomes, responses, m, j, i, batch):
    """Write out the group of lane j from its outcomes in the order drawn (G, STRIP), as group i of a batch."""
    show_prompt(shown, m, i, batch)
    for g in range(outcomes.shape[0]):
        outcome = np.uintp(outcomes[g, j])
        show_responses(shown, m, outcome, np.uintp(responses[outcome]), i, g, g + 1, batch)


@stage
def call(kernel, batch, n, advantages):
    """Call the kernel on the first n groups of a batch; what it leaves out stays NaN."""
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
    kernel(part, advantages[:n])


@stage
def add_counted(shown, outcomes, j, advantages, pushes):
    """Add up lane j's advantages (G,), over G, by sign and response, in pushes (n_signs K, STRIP).

    Those of an outcome are its first, times its count, and what the others differ from it.
    """
    group_size = advantages.shape[0]
    n_values = outcomes.shape[0] // shown.n_responses
    g = 0
    for row in range(pushes.shape[0]):
        pushes[row, j] = 0.0
    for value in range(n_values):
        for response in range(shown.n_responses):
            count = int(outcomes[response * n_values + value, j])
            if count > 0:
                first, rest = advantages[g], 0.0
                for h in range(g + 1, g + count):
                    rest += advantages[h] - first
                row = response if first > 0.0 or shown.n_signs == 1 else shown.n_responses + response
                pushes[row, j] += first / group_size * count + rest / group_size
                g += count


@stage
def add_ordered(shown, outcomes, responses, j, advantages, pushes):
    """Add up lane j's advantages (G,), over G, by sign and response, for its outcomes in the order drawn (G, STRIP)."""
    group_size = advantages.shape[0]
    for row in range(pushes.shape[0]):
        pushes[row, j] = 0.0
    for g in range(group_size):
        response = responses[np.uintp(outcomes[g, j])]
        row = response if advantages[g] > 0.0 or shown.n_signs == 1 else shown.n_responses + response
        pushes[np.uintp(row), j] += advantages[g] / group_size


def fill_pushes(kernel, shown, counts, batch, advantages, pushes):
    """Fill in pushes (S, B, n_signs K, STRIP) of a kernel that treats responses alike, as many groups at once as `batch` has."""
    n_strips, batch_size, _ = counts.prompts.shape
    at_once = advantages.shape[0]
    for s in range(n_strips):
        prompts = counts.prompts[s]
        for first in range(0, batch_size * STRIP, at_once):
            n = min(at_once, batch_size * STRIP - first)
            for i in range(n):
                j, b = (first + i) // batch_size, (first + i) % batch_size
                show_counted(shown, counts.outcomes[s, b], prompts[b, j], j, i, batch)
            call(kernel, batch, n, advantages)
            for i in range(n):
                j, b = (first + i) // batch_size, (first + i) % batch_size
                add_counted(shown, counts.outcomes[s, b], j, advantages[i], pushes[s, b])


def fill_ordered_pushes(kernel, shown, prompts, outcomes, responses, batch, advantages, pushes):
    """Fill in pushes (S, B, n_signs K, STRIP) of a kernel that is shown outcomes (S, B, G, STRIP) in the order drawn.

    The responses (O,) are those of the outcomes.
    """
    n_strips, batch_size, _, _ = outcomes.shape
    at_once = advantages.shape[0]
    for s in range(n_strips):
        for first in range(0, batch_size * STRIP, at_once):
            n = min(at_once, batch_size * STRIP - first)
            for i in range(n):
                j, b = (first + i) // batch_size, (first + i) % batch_size
                show_ordered(shown, outcomes[s, b], responses, prompts[s, b, j], j, i, batch)
            call(kernel, batch, n, advantages)
            for i in range(n):
                j, b = (first + i) // batch_size, (first + i) % batch_size
                add_ordered(shown, outcomes[s, b], responses, j, advantages[i], pushes[s, b])


@cache
def compiled_fill_pushes() -> Any:
    """Compile `fill_pushes`, or read it from the cache."""
    return compile_function(fill_pushes, numba.void(KERNEL, SHOWN, COUNTS, BATCH, F2, F4))


@cache
def compiled_fill_ordered_pushes() -> Any:
    """Compile `fill_ordered_pushes`, or read it from the cache."""
    prompts = numba.int64[:, :, ::1]
    return compile_function(fill_ordered_pushes, numba.void(KERNEL, SHOWN, prompts, ORDERED, I1, BATCH, F2, F4))


def make_batch(at_once: int, group_size: int, parameters: Array) -> Batch:
    """Make room for what a kernel sees of so many groups at once."""
    shape = at_once, group_size
    unread = [np.full(at_once, np.nan) for _ in PROMPT_FIELDS]
    return Batch._make([np.empty(shape), np.full(shape, np.nan), np.ones(shape, dtype=np.int64), *unread, parameters])
