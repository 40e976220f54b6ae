"""Stage 1 of a training step, the draw: 30-bit words to numbers of responses with each outcome.

What an estimate needs of a group is how often each outcome (response, reward) came; integer comparisons and sums count that
without finding out which response had it.  A stage is for the b-th group of the `WIDTH` runs from lane i on, whose words
begin in column `first` + i.
"""

import numpy as np

from grpo_theory.compilation import stage
from grpo_theory.lanes import as_short, load, reals, shorts, store, tally_low_below
from grpo_theory.simulate.choice import at_places, read_rows

ONE = 1 << 30
"""A probability of 1 in the units of the thresholds."""
MASK = np.int32(ONE - 1)
AT_ONCE = 4
"""A word is compared with so many thresholds at a time."""


@stage
def count_below(words, row, first, group_size, n_thresholds, b, i, counts):
    """Replace so many thresholds (B, O, N) of a group by the numbers of its 30-bit words (n, lanes) below them."""
    whole, place = n_thresholds - n_thresholds % AT_ONCE, first + i
    for o in range(0, whole, AT_ONCE):
        one, two, three, four = (
            load(counts, b, o, i),
            load(counts, b, o + 1, i),
            load(counts, b, o + 2, i),
            load(counts, b, o + 3, i),
        )
        p, q, r, s = shorts(0), shorts(0), shorts(0), shorts(0)
        for g in range(row, row + group_size):
            p, q = tally_low_below(p, one, MASK, words, g, place), tally_low_below(q, two, MASK, words, g, place)
            r, s = tally_low_below(r, three, MASK, words, g, place), tally_low_below(s, four, MASK, words, g, place)
        store(p, counts, b, o, i)
        store(q, counts, b, o + 1, i)
        store(r, counts, b, o + 2, i)
        store(s, counts, b, o + 3, i)
    for o in range(whole, n_thresholds):
        threshold, found = load(counts, b, o, i), shorts(0)
        for g in range(row, row + group_size):
            found = tally_low_below(found, threshold, MASK, words, g, place)
        store(found, counts, b, o, i)


@stage
def find_thresholds(pi, b, i, n_values, laws, prompts, dither, facts, counts):
    """Fill the whole parts of 2^30 F + dither of a group's outcomes (B, O, N), with F their distribution function, but the last.

    laws (M, K (L - 1)) are the distribution functions of the n_values rewards given prompt and response, but for their last
    values; facts (at least as many, WIDTH) are room for those of the lanes' prompts.
    """
    last, own_prompts, reached = counts.shape[1] - 1, load(prompts, b, i), reals(0.0)
    read_rows(laws, own_prompts, facts)
    for k in range(pi.shape[1]):
        own = load(pi, b, k, i)
        for value in range(n_values - 1):
            share = at_places(laws, k * (n_values - 1) + value, own_prompts, facts)
            store(as_short((reached + own * share) * ONE + dither), counts, b, k * n_values + value, i)
        reached = reached + own
        if (k + 1) * n_values <= last:
            store(as_short(reached * ONE + dither), counts, b, (k + 1) * n_values - 1, i)


@stage
def count_outcomes(words, row, first, group_size, pi, b, i, n_values, laws, prompts, dither, facts, thresholds, counts):
    """Count the outcomes (B, O, N) of a group, whose words (n, lanes) are so many rows from `row` on.

    A word has the first outcome whose threshold is above it, see `find_thresholds`; these are kept (B, O - 1, N) if there is
    room.  The dither is uniform on [0, 1) and shared by all that one rollout draws: a response's law is exact, and the joint law
    of several is so to 2^-60.
    """
    last, before = counts.shape[1] - 1, shorts(0)
    find_thresholds(pi, b, i, n_values, laws, prompts, dither, facts, counts)
    for o in range(thresholds.shape[1]):
        store(load(counts, b, o, i), thresholds, b, o, i)
    count_below(words, row, first, group_size, last, b, i, counts)
    for o in range(last):
        found = load(counts, b, o, i)
        store(found - before, counts, b, o, i)
        before = found
    store(group_size - before, counts, b, last, i)
