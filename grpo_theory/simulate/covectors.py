"""Counted groups to the covectors of their estimates, for estimators whose kernels are tables and whose responses are one token.

Every token then weighs its advantage, and all such estimators are worked on together.
"""

from functools import cache
from typing import Any

import numba
import numpy as np

from grpo_theory.compilation import F1, F2, I2, compile_function, stage
from grpo_theory.simulate.book import BOOK, find_advantages, find_multisets
from grpo_theory.simulate.counting import COUNTS
from grpo_theory.simulate.strip import STRIP

COVECTORS = numba.float64[:, :, :, :, ::1]


@stage
def look_up_lanes(table, prompts, found):
    """Read a table (rows, M) at each lane's prompt, into found (rows, STRIP)."""
    for row in range(table.shape[0]):
        for j in range(STRIP):
            found[row, j] = table[row, np.uintp(prompts[j])]


@stage
def weigh_outcomes(outcomes, advantages, weights):
    """Weigh responses (K, STRIP): the sum over reward values of the advantage (L, STRIP) times the count."""
    n_values = advantages.shape[0]
    for k in range(weights.shape[0]):
        for j in range(STRIP):
            weights[k, j] = advantages[0, j] * outcomes[k * n_values, j]
        for value in range(1, n_values):
            for j in range(STRIP):
                weights[k, j] += advantages[value, j] * outcomes[k * n_values + value, j]


@stage
def centre_lanes(weights, tokens, vocabulary_size, sums):
    """Turn weights of edges (D, STRIP) into covectors: less, at each prefix, their sum times the probabilities there."""
    for start in range(0, weights.shape[0], vocabulary_size):
        for j in range(STRIP):
            sums[j] = 0.0
        for d in range(start, start + vocabulary_size):
            for j in range(STRIP):
                sums[j] += weights[d, j]
        for d in range(start, start + vocabulary_size):
            for j in range(STRIP):
                weights[d, j] -= sums[j] * tokens[d, j]


def fill_covectors(tokens, book, counts, places, advantages, here, sums, covectors):
    """Fill in covectors (E, S, B, K, STRIP) by a book of E tables; `tokens` (K, M) are probabilities of the current policy.

    The others are room: places (2, STRIP), advantages (L, STRIP), here (K, STRIP) and sums (STRIP,).
    """
    n_strips, batch_size, _ = counts.prompts.shape
    for s in range(n_strips):
        for b in range(batch_size):
            prompts, outcomes = counts.prompts[s, b], counts.outcomes[s, b]
            look_up_lanes(tokens, prompts, here)
            find_multisets(outcomes, book.ranks, places[0], places[1])
            for e in range(covectors.shape[0]):
                find_advantages(book, e, prompts, places[1], advantages)
                weigh_outcomes(outcomes, advantages, covectors[e, s, b])
                centre_lanes(covectors[e, s, b], here, tokens.shape[0], sums)


@cache
def compiled_fill_covectors() -> Any:
    """Compile `fill_covectors`, or read it from the cache; one machine code serves every problem and every kernel."""
    return compile_function(fill_covectors, numba.void(F2, BOOK, COUNTS, I2, F2, F2, F1, COVECTORS))
