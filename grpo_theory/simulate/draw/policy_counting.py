"""Stage 1 of a training step, the draw: 30-bit words to numbers of responses with each outcome.

What an estimate needs of a group is how often each outcome (response, reward) came; integer comparisons and sums count that
without finding out which response had it.  A stage is for the b-th group of the `WIDTH` runs from lane i on, whose words
begin in column `first` + i.
"""

import numpy as np

from grpo_theory.compiler.compilation import stage
from grpo_theory.compiler.lanes import as_short, load, reals, shorts, store
from grpo_theory.simulate.draw.prompt_tables import at_places, read_rows

ONE = 1 << 30
"""A probability of 1 in the units of the thresholds."""
MASK = np.int32(ONE - 1)


@stage
def count_below(words, row, first, group_size, i, threshold):
    """Count the 30-bit words (n, lanes) below a threshold, so many rows from `row` on."""
    found = shorts(0)
    for g in range(row, row + group_size):
        found = found + as_short((load(words, g, first + i) & MASK) < threshold)
    return found


@stage
def count_outcomes(words, row, first, group_size, pi, b, i, n_values, laws, prompts, dither, facts, thresholds, counts):
    """Count the outcomes (B, O, N) of a group, whose words (n, lanes) are so many rows from `row` on.

    A word has the first outcome whose threshold is above it: the whole part of 2^30 F + dither, with F the distribution function
    of the outcomes.  The thresholds (B, O - 1, N) are kept if there is room.  The dither is uniform on [0, 1) and shared by all
    that one rollout draws: a response's law is exact, and the joint law of several is so to 2^-60.  laws (M, K (L - 1)) are
    the distribution functions of the n_values rewards given prompt and response, but for their last values; facts (at least as
    many, WIDTH) are room for those of the lanes' prompts.
    """
    last, own_prompts, reached, before = counts.shape[1] - 1, load(prompts, b, i), reals(0.0), shorts(0)
    read_rows(laws, own_prompts, facts)
    for k in range(pi.shape[1]):
        own = load(pi, b, k, i)
        for value in range(n_values):
            o = k * n_values + value
            if o == last:
                store(group_size - before, counts, b, last, i)
                return
            if value < n_values - 1:
                share = at_places(laws, k * (n_values - 1) + value, own_prompts, facts)
                threshold = as_short((reached + own * share) * ONE + dither)
            else:
                reached = reached + own
                threshold = as_short(reached * ONE + dither)
            if thresholds.shape[1] > 0:
                store(threshold, thresholds, b, o, i)
            found = count_below(words, row, first, group_size, i, threshold)
            store(found - before, counts, b, o, i)
            before = found
