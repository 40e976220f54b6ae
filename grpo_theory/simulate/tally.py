"""Stage 1 of a training step, the draw: 30-bit words to numbers of responses with each outcome.

What an estimate needs of a group is how often each outcome (response, reward) came; integer comparisons and sums count that
without finding out which response had it.
"""

import numpy as np

from grpo_theory.compilation import stage

ONE = 1 << 30
"""A probability of 1 in the units of the thresholds."""
MASK = np.int32(ONE - 1)


@stage
def fill_thresholds(pi, laws, prompts, dither, n, thresholds, scratch):
    """Fill the distribution function F of the outcomes (O - 1, N) as the whole part of 2^30 F + dither.

    The dither is uniform on [0, 1) and shared by all that one rollout draws: a response's law is exact, and the joint law of
    several is so to 2^-60.  laws (K, L, M) are the distribution functions of the rewards given response and prompt.
    """
    below, n_values = scratch[0], laws.shape[1]
    for i in range(n):
        below[i] = 0.0
    for k in range(pi.shape[0]):
        for value in range(n_values - 1):
            row = k * n_values + value
            for i in range(n):
                share = laws[k, value, np.uintp(prompts[i])]
                thresholds[row, i] = np.int32((below[i] + pi[k, i] * share) * ONE + dither)
        row = (k + 1) * n_values - 1
        if row < thresholds.shape[0]:
            for i in range(n):
                below[i] += pi[k, i]
                thresholds[row, i] = np.int32(below[i] * ONE + dither)


@stage
def count_outcomes(words, first, thresholds, n, counts):
    """Count the outcomes (O, N) of words (G, N), those from the lane `first` on.

    A word has the first outcome whose threshold is above it.
    """
    group_size, last = words.shape[0], thresholds.shape[0]
    for o in range(last):
        for i in range(n):
            counts[o, i] = 0
    g = 0
    while g + 4 <= group_size:
        for o in range(last):
            for i in range(n):
                threshold, found = thresholds[o, i], counts[o, i]
                for h in range(4):
                    found += np.int32((words[g + h, np.uintp(first + i)] & MASK) < threshold)
                counts[o, i] = found
        g += 4
    while g < group_size:
        for o in range(last):
            for i in range(n):
                counts[o, i] += np.int32((words[g, np.uintp(first + i)] & MASK) < thresholds[o, i])
        g += 1
    for i in range(n):
        counts[last, i] = group_size
    for o in range(last, 0, -1):
        for i in range(n):
            counts[o, i] -= counts[o - 1, i]
