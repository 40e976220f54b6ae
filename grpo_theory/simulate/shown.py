"""Kernels that see every response: counted groups are written out for them, and what they give is added up by response.

For kernels that treat responses alike the groups are written in the order in which tables of advantages are made, by reward
value and then by response; so a kernel that has a table gets the same advantages here, bit for bit.
"""

from functools import cache
from typing import Any, NamedTuple

import numba
import numpy as np

from grpo_theory.arrays import Array, Integers
from grpo_theory.compilation import F2, F4, I1, allocating_stage, compile_driver, record_type, stage
from grpo_theory.estimation.kernel import KERNEL
from grpo_theory.simulate.counting import COUNTS
from grpo_theory.simulate.ordering import ORDERED
from grpo_theory.simulate.show import BATCH, fill_advantages
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
def lanes_between(first, n, b, batch_size):
    """Return the lanes (from, up to) whose group b is among the n groups from number `first` on; lane j's is number j B + b."""
    return (first - b + batch_size - 1) // batch_size, (first + n - b + batch_size - 1) // batch_size


@stage
def show_prompts(shown, prompts, b, batch_size, first, n, batch):
    """Write out what oracles know of the lanes' prompts b (STRIP,)."""
    if shown.fields.shape[0] > 0:
        start, stop = lanes_between(first, n, b, batch_size)
        for j in range(start, stop):
            i, m = j * batch_size + b - first, np.uintp(prompts[j])
            batch.values[i] = shown.fields[0, m]
            batch.standard_deviations[i] = shown.fields[1, m]
            batch.optimal_baselines[i] = shown.fields[2, m]


@stage
def show_counted(shown, outcomes, prompts, b, batch_size, first, n, batch):
    """Write out the lanes' groups b from their counts (O, STRIP)."""
    rewards, norms, lengths = batch.rewards, batch.squared_score_norms, batch.lengths
    sees_norms, sees_lengths = shown.norms.shape[0] > 0, shown.lengths.shape[0] > 0
    n_values = outcomes.shape[0] // shown.n_responses
    start, stop = lanes_between(first, n, b, batch_size)
    for j in range(start, stop):
        i, m, g = j * batch_size + b - first, np.uintp(prompts[j]), 0
        for value in range(n_values):
            for response in range(shown.n_responses):
                outcome = response * n_values + value
                last = g + int(outcomes[outcome, j])
                while g < last:
                    rewards[i, g] = shown.rewards[m, outcome]
                    if sees_norms:
                        norms[i, g] = shown.norms[m, response]
                    if sees_lengths:
                        lengths[i, g] = shown.lengths[response]
                    g += 1


@stage
def show_ordered(shown, outcomes, responses, prompts, b, batch_size, first, n, batch):
    """Write out the lanes' groups b from their outcomes in the order drawn (G, STRIP); the responses (O,) are the outcomes'."""
    rewards, norms, lengths = batch.rewards, batch.squared_score_norms, batch.lengths
    sees_norms, sees_lengths = shown.norms.shape[0] > 0, shown.lengths.shape[0] > 0
    start, stop = lanes_between(first, n, b, batch_size)
    for j in range(start, stop):
        i, m = j * batch_size + b - first, np.uintp(prompts[j])
        for g in range(outcomes.shape[0]):
            outcome = np.uintp(outcomes[g, j])
            response = np.uintp(responses[outcome])
            rewards[i, g] = shown.rewards[m, outcome]
            if sees_norms:
                norms[i, g] = shown.norms[m, response]
            if sees_lengths:
                lengths[i, g] = shown.lengths[response]


@stage
def add_counted(shown, outcomes, advantages, b, batch_size, first, n, pushes):
    """Add up the advantages of the lanes' groups b, over G, by sign and response, in pushes (n_signs K, STRIP), 0 before.

    Those of an outcome are its first, times its count, and what the others differ from it.
    """
    group_size = advantages.shape[1]
    n_values = outcomes.shape[0] // shown.n_responses
    start, stop = lanes_between(first, n, b, batch_size)
    for j in range(start, stop):
        i, g = j * batch_size + b - first, 0
        for value in range(n_values):
            for response in range(shown.n_responses):
                count = int(outcomes[response * n_values + value, j])
                if count > 0:
                    one, rest = advantages[i, g], 0.0
                    for h in range(g + 1, g + count):
                        rest += advantages[i, h] - one
                    row = response if one > 0.0 or shown.n_signs == 1 else shown.n_responses + response
                    pushes[row, j] += one / group_size * count + rest / group_size
                    g += count


@stage
def compare_counted(shown, outcomes, advantages, b, batch_size, first, n, firsts, deviations):
    """Put apart the first advantage of each reward value of the lanes' groups b, over G, and add up what others differ from it.

    The first are for firsts (L, STRIP), and the others, by response, for deviations (K, STRIP); both are 0 before.
    """
    group_size = advantages.shape[1]
    n_values = outcomes.shape[0] // shown.n_responses
    start, stop = lanes_between(first, n, b, batch_size)
    for j in range(start, stop):
        i, g = j * batch_size + b - first, 0
        for value in range(n_values):
            begin = g
            for response in range(shown.n_responses):
                last = g + int(outcomes[response * n_values + value, j])
                while g < last:
                    deviations[response, j] += (advantages[i, g] - advantages[i, begin]) / group_size
                    g += 1
            if g > begin:
                firsts[value, j] = advantages[i, begin] / group_size


@stage
def add_ordered(shown, outcomes, responses, advantages, b, batch_size, first, n, pushes):
    """Add up what `add_counted` does, for outcomes in the order drawn (G, STRIP)."""
    group_size = advantages.shape[1]
    start, stop = lanes_between(first, n, b, batch_size)
    for j in range(start, stop):
        i = j * batch_size + b - first
        for g in range(group_size):
            response, advantage = responses[np.uintp(outcomes[g, j])], advantages[i, g]
            row = response if advantage > 0.0 or shown.n_signs == 1 else shown.n_responses + response
            pushes[np.uintp(row), j] += advantage / group_size


@allocating_stage
def show_to_kernel(kernel, shown, counts, s, first, n, batch, advantages):
    """Write out n groups of strip s, from number `first` on, from their counts, and fill in the kernel's advantages of them."""
    batch_size = counts.prompts.shape[1]
    for b in range(batch_size):
        show_prompts(shown, counts.prompts[s, b], b, batch_size, first, n, batch)
        show_counted(shown, counts.outcomes[s, b], counts.prompts[s, b], b, batch_size, first, n, batch)
    fill_advantages(kernel, batch, n, advantages[:n])


def fill_pushes(kernel, shown, counts, batch, advantages, pushes):
    """Fill in pushes (S, B, n_signs K, STRIP) of a kernel that treats responses alike, as many groups at once as `batch` has."""
    n_strips, batch_size, _ = counts.prompts.shape
    at_once = advantages.shape[0]
    pushes[:, :, :, :] = 0.0
    for s in range(n_strips):
        for first in range(0, batch_size * STRIP, at_once):
            n = min(at_once, batch_size * STRIP - first)
            show_to_kernel(kernel, shown, counts, s, first, n, batch, advantages)
            for b in range(batch_size):
                add_counted(shown, counts.outcomes[s, b], advantages, b, batch_size, first, n, pushes[s, b])


def fill_firsts(kernel, shown, counts, batch, advantages, firsts, deviations):
    """Do the same, but fill in firsts (S, B, L, STRIP) and deviations (S, B, K, STRIP): see `compare_counted`."""
    n_strips, batch_size, _ = counts.prompts.shape
    at_once = advantages.shape[0]
    firsts[:, :, :, :] = 0.0
    deviations[:, :, :, :] = 0.0
    for s in range(n_strips):
        for first in range(0, batch_size * STRIP, at_once):
            n = min(at_once, batch_size * STRIP - first)
            show_to_kernel(kernel, shown, counts, s, first, n, batch, advantages)
            for b in range(batch_size):
                outcomes = counts.outcomes[s, b]
                compare_counted(shown, outcomes, advantages, b, batch_size, first, n, firsts[s, b], deviations[s, b])


def fill_ordered_pushes(kernel, shown, prompts, outcomes, responses, batch, advantages, pushes):
    """Fill in pushes (S, B, n_signs K, STRIP) of a kernel that is shown outcomes (S, B, G, STRIP) in the order drawn.

    The responses (O,) are those of the outcomes.
    """
    n_strips, batch_size, _, _ = outcomes.shape
    at_once = advantages.shape[0]
    pushes[:, :, :, :] = 0.0
    for s in range(n_strips):
        for first in range(0, batch_size * STRIP, at_once):
            n = min(at_once, batch_size * STRIP - first)
            for b in range(batch_size):
                show_prompts(shown, prompts[s, b], b, batch_size, first, n, batch)
                show_ordered(shown, outcomes[s, b], responses, prompts[s, b], b, batch_size, first, n, batch)
            fill_advantages(kernel, batch, n, advantages[:n])
            for b in range(batch_size):
                add_ordered(shown, outcomes[s, b], responses, advantages, b, batch_size, first, n, pushes[s, b])


@cache
def compiled_fill_pushes() -> Any:
    """Compile `fill_pushes`, or read it from the cache."""
    return compile_driver(fill_pushes, numba.void(KERNEL, SHOWN, COUNTS, BATCH, F2, F4))


@cache
def compiled_fill_firsts() -> Any:
    """Compile `fill_firsts`, or read it from the cache."""
    return compile_driver(fill_firsts, numba.void(KERNEL, SHOWN, COUNTS, BATCH, F2, F4, F4))


@cache
def compiled_fill_ordered_pushes() -> Any:
    """Compile `fill_ordered_pushes`, or read it from the cache."""
    prompts = numba.int64[:, :, ::1]
    return compile_driver(fill_ordered_pushes, numba.void(KERNEL, SHOWN, prompts, ORDERED, I1, BATCH, F2, F4))
