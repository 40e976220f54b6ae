"""Counted groups to the covectors of their estimates, for estimators whose kernels are tables and whose responses are one token.

Every token then weighs its advantage, and all such estimators are worked on together.
"""

from functools import cache
from typing import Any, NamedTuple

import numba

from grpo_theory.arrays import Array
from grpo_theory.compilation import F2, NO_ARRAYS, compile_function, record_type, stage
from grpo_theory.lanes import WIDTH, as_real, load, reals, spread, store
from grpo_theory.simulate.book import BOOK, find_advantages, find_multisets
from grpo_theory.simulate.counting import COUNTS
from grpo_theory.simulate.strip import STRIP

COVECTORS = numba.float64[:, :, :, :, ::1]


class CovectorRoom(NamedTuple):
    """Room for one vector of lanes: advantages of the reward values (at least L, WIDTH), probabilities (at least D, WIDTH)."""

    advantages: Array
    tokens: Array


COVECTOR_ROOM = record_type(CovectorRoom, F2, F2)


@stage
def weigh_outcomes(outcomes, s, b, i, advantages, n_values, covectors, e):
    """Weigh responses, in covectors (E, S, B, K, STRIP): the sum over reward values of the advantage times the count.

    Returns the sum of the weights.
    """
    total = reals(0.0)
    for k in range(covectors.shape[3]):
        weight = load(advantages, 0, 0) * as_real(load(outcomes, s, b, k * n_values, i))
        for value in range(1, n_values):
            weight = weight + load(advantages, value, 0) * as_real(load(outcomes, s, b, k * n_values + value, i))
        store(weight, covectors, e, s, b, k, i)
        total = total + weight
    return total


@stage
def add_up(covectors, e, s, b, i, start, stop):
    """Return the sum of the weights of some edges (E, S, B, D, STRIP)."""
    total = reals(0.0)
    for d in range(start, stop):
        total = total + load(covectors, e, s, b, d, i)
    return total


@stage
def centre(covectors, e, s, b, i, start, stop, total, tokens):
    """Turn weights of the edges at a prefix into covectors: less their sum times the probabilities (at least D, WIDTH)."""
    for d in range(start, stop):
        store(load(covectors, e, s, b, d, i) - total * load(tokens, d, 0), covectors, e, s, b, d, i)


def fill_covectors(tokens, book, counts, room, covectors):
    """Fill in covectors (E, S, B, K, STRIP) by a book of E tables; `tokens` (M, at least K) are the policy's probabilities."""
    n_estimators, n_strips, batch_size, n_responses, _ = covectors.shape
    n_values = book.ranks.shape[0] + 1
    for s in range(n_strips):
        for b in range(batch_size):
            for i in range(0, STRIP, WIDTH):
                prompts = load(counts.prompts, s, b, i)
                spread(tokens, prompts, room.tokens)
                places = find_multisets(counts.outcomes, s, b, i, book.ranks)
                for e in range(n_estimators):
                    find_advantages(book, e, prompts, places, room.advantages)
                    total = weigh_outcomes(counts.outcomes, s, b, i, room.advantages, n_values, covectors, e)
                    centre(covectors, e, s, b, i, 0, n_responses, total, room.tokens)


@cache
def compiled_fill_covectors() -> Any:
    """Compile `fill_covectors`, or read it from the cache; one machine code serves every problem and every kernel."""
    return compile_function(fill_covectors, numba.void(F2, BOOK, COUNTS, COVECTOR_ROOM, COVECTORS), **NO_ARRAYS)
