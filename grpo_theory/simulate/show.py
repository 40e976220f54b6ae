"""Stage 2, advantages: what the kernel may read is written out for it, and the kernel is called.

A kernel wants the groups of one batch one after another: the group in lane b R + r goes to place r B + b.
"""

import numpy as np
from numba import types

from grpo_theory.compilation import F1, F2, I2, stage
from grpo_theory.estimation.kernel import Batch


@stage
def show_prompts(fields, rows, places, values, standard_deviations, optimal_baselines):
    """Write out what oracles know of the prompts from fields (3, rows), if there are any; rows (N,) says whose."""
    for i in range(rows.shape[0] if fields.shape[0] > 0 else 0):
        row, place = np.uintp(rows[i]), np.uintp(places[i])
        values[place] = fields[0, row]
        standard_deviations[place] = fields[1, row]
        optimal_baselines[place] = fields[2, row]


@stage
def show_responses(outcomes, rows, places, responses, rewards, norms, lengths, seen_rewards, seen_norms, seen_lengths):
    """Write out the responses of the outcomes (G, N) as a kernel sees them, (N, G).

    Rewards (O, rows) are of outcomes; squared score norms (K, rows) and lengths (K,) are of responses, and empty if the kernel
    does not read them.
    """
    group_size, n_groups = outcomes.shape
    for i in range(n_groups):
        row, place = np.uintp(rows[i]), np.uintp(places[i])
        for g in range(group_size):
            seen_rewards[place, g] = rewards[np.uintp(outcomes[g, i]), row]
        if norms.shape[0] > 0:
            for g in range(group_size):
                seen_norms[place, g] = norms[np.uintp(responses[np.uintp(outcomes[g, i])]), row]
        if lengths.shape[0] > 0:
            for g in range(group_size):
                seen_lengths[place, g] = lengths[np.uintp(responses[np.uintp(outcomes[g, i])])]


BATCH = types.NamedTuple((F2, F2, I2, F1, F1, F1, F1), Batch)


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
