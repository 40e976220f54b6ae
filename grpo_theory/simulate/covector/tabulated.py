"""Counted groups to the covectors of their estimates, for estimators whose kernels are tables and whose responses are one token.

Every token then weighs its advantage, and all such estimators are worked on together.

Covectors are (E, V, at least B, D, WIDTH): what belongs to the batches of one vector of lanes lies side by side, and stays in the
first level of cache.  (Were all lanes of a strip side by side, all groups of a batch would ask for the same few places of it.)
"""

from functools import cache
from typing import Any, NamedTuple

import numba

from grpo_theory.arrays import Array
from grpo_theory.compiler.compilation import F2, NO_ARRAYS, compile_driver, record_type, stage
from grpo_theory.compiler.lanes import WIDTH, as_real, load, reals, store, zeros
from grpo_theory.simulate.advantage.tables import BOOK, find_advantages, find_multisets
from grpo_theory.simulate.draw.counting import COUNTS
from grpo_theory.simulate.draw.generator import VECTORS
from grpo_theory.simulate.draw.prompt_tables import LOOKUP, at_places, read_rows

COVECTORS = numba.float64[:, :, :, :, ::1]


class CovectorRoom(NamedTuple):
    """Room for one vector of lanes: advantages of the reward values (at least L, WIDTH), probabilities (at least D, WIDTH)."""

    advantages: Array
    tokens: Array


COVECTOR_ROOM = record_type(CovectorRoom, F2, F2)


def make_covectors(n_estimators: int, n_strips: int, batch_size: int, n_logits: int) -> Array:
    """Make room for covectors, those of each estimator as `Parts` has rows."""
    return zeros(n_estimators, n_strips * VECTORS, batch_size + batch_size % 2, n_logits, WIDTH)


@stage
def weigh_outcomes(outcomes, s, b, i, advantages, n_values, covectors, e, v):
    """Weigh responses, in vector v of covectors (E, V, B, K, WIDTH): the sum over reward values of the advantage times the count.

    Returns the sum of the weights.
    """
    total = reals(0.0)
    for k in range(covectors.shape[3]):
        weight = load(advantages, 0, 0) * as_real(load(outcomes, s, b, k * n_values, i))
        for value in range(1, n_values):
            weight = weight + load(advantages, value, 0) * as_real(load(outcomes, s, b, k * n_values + value, i))
        store(weight, covectors, e, v, b, k, 0)
        total = total + weight
    return total


@stage
def add_up(covectors, e, v, b, start, stop):
    """Return the sum of the weights of some edges (E, V, B, D, WIDTH)."""
    total = reals(0.0)
    for d in range(start, stop):
        total = total + load(covectors, e, v, b, d, 0)
    return total


@stage
def centre(covectors, e, v, b, start, stop, total, tokens, prompts, found):
    """Turn weights of the edges at a prefix into covectors: less their sum times the prompts' probabilities (M, D)."""
    for d in range(start, stop):
        weight = load(covectors, e, v, b, d, 0)
        store(weight - total * at_places(tokens, d, prompts, found), covectors, e, v, b, d, 0)


def fill_covectors(tokens, book, counts, room, covectors):
    """Fill in covectors (E, V, B, K, WIDTH) by a book of E tables; `tokens` (M, K) are the policy's probabilities."""
    n_estimators, n_vectors, _, n_responses, _ = covectors.shape
    n_values, batch_size = book.ranks.shape[0] + 1, counts.prompts.shape[1]
    for v in range(n_vectors):
        s, i = v // VECTORS, v % VECTORS * WIDTH
        for b in range(batch_size):
            prompts = load(counts.prompts, s, b, i)
            read_rows(tokens, prompts, room.tokens)
            multisets = find_multisets(counts.outcomes, s, b, i, book.ranks)
            for e in range(n_estimators):
                find_advantages(book, e, prompts, multisets, room.advantages)
                total = weigh_outcomes(counts.outcomes, s, b, i, room.advantages, n_values, covectors, e, v)
                centre(covectors, e, v, b, 0, n_responses, total, tokens, prompts, room.tokens)


@cache
def compiled_fill_covectors() -> Any:
    """Compile `fill_covectors`, or read it from the cache; one machine code serves every problem and every kernel."""
    return compile_driver(fill_covectors, numba.void(LOOKUP, BOOK, COUNTS, COVECTOR_ROOM, COVECTORS), **NO_ARRAYS)
