"""Stage 1, the draw: uniforms to prompts and outcomes, N groups side by side.

Everywhere in the drivers the groups of R runs (or replications) with B prompts each lie side by side in N = B R lanes, prompt by
prompt: lane b R + r is group b of run r.
"""

import numpy as np

from grpo_theory.compiler import stage
from grpo_theory.compiler.lanes import as_integer, as_real, where
from grpo_theory.simulate.choice import at_places, read_rows


@stage
def draw_prompts(uniforms, threshold, choices, prompts):
    """Draw prompts (N,) from uniforms (N,) by the alias table of their law: one uniform, one look-up."""
    n_prompts = threshold.shape[1]
    for i in range(prompts.shape[0]):
        x = uniforms[i] * n_prompts
        j = np.uintp(x)
        prompts[i] = choices[0, np.uintp(2) * j + np.uintp(x - j >= threshold[0, j])]


@stage
def choose_prompts(words, table, found):
    """Return the prompts that lanes of words choose by their alias table (M, 2); the rows found there (2, WIDTH) are room."""
    x = as_real(as_integer(words >> 11)) * (table.rows.shape[0] / 9007199254740992.0)
    place = as_integer(x)
    read_rows(table, place, found)
    threshold, other = at_places(table, 0, place, found), at_places(table, 1, place, found)
    return where(x - as_real(place) >= threshold, as_integer(other), place)


@stage
def look_up(table, columns, found):
    """Read the column of each lane from a table (rows, M), into found (rows, N)."""
    for k in range(table.shape[0]):
        for i in range(found.shape[1]):
            found[k, i] = table[k, np.uintp(columns[i])]


@stage
def draw_outcomes(uniforms, thresholds, outcomes):
    """Draw outcomes (G, N) from uniforms (G, N): the number of thresholds (O - 1, N) of the lane that the uniform has reached.

    The thresholds are the distribution function of the lane's outcomes: a whole response, reward included, is one draw.
    """
    for g in range(outcomes.shape[0]):
        for i in range(outcomes.shape[1]):
            outcomes[g, i] = 0
        for o in range(thresholds.shape[0]):
            for i in range(outcomes.shape[1]):
                outcomes[g, i] += uniforms[g, i] >= thresholds[o, i]
