"""Counted groups to the covectors of their estimates, for estimators whose kernels are tables and whose responses are one token.

Every token then weighs its advantage, and all such estimators are worked on together.

Covectors have shape (E, V, at least B, D, WIDTH).  The numbers of the batches of one vector of lanes lie side by side, and stay
in the first level of cache.  (With all 128 lanes side by side, the groups of a batch would compete for the same few places.)
"""

import numba

from grpo_theory.compiler import F2, F5, driver, stage
from grpo_theory.compiler.lanes import WIDTH, as_real, load, reals, store
from grpo_theory.simulate.advantage.tables import TABLES, look_up_advantages, multiset_numbers
from grpo_theory.simulate.draw.counting import COUNTS
from grpo_theory.simulate.draw.prompt_tables import LOOKUP, at_places, read_rows
from grpo_theory.simulate.draw.streams import VECTORS


@stage
def weigh_outcomes(outcomes, i, advantages, n_values, covector):
    """Weigh the responses (K, WIDTH) of a group: the sum over reward values of the advantage times the count (O, LANES).

    Returns the sum of the weights.
    """
    total = reals(0.0)
    for k in range(covector.shape[0]):
        weight = load(advantages, 0, 0) * as_real(load(outcomes, k * n_values, i))
        for value in range(1, n_values):
            weight = weight + load(advantages, value, 0) * as_real(load(outcomes, k * n_values + value, i))
        store(weight, covector, k, 0)
        total = total + weight
    return total


@stage
def add_up(covector, start, stop):
    """Return the sum of the weights of some edges (D, WIDTH)."""
    total = reals(0.0)
    for d in range(start, stop):
        total = total + load(covector, d, 0)
    return total


@stage
def centre_edges(covector, start, stop, total, tokens, prompts, found):
    """Turn weights of the edges at a prefix into a covector: less their sum times the prompts' probabilities (M, D)."""
    for d in range(start, stop):
        weight = load(covector, d, 0)
        store(weight - total * at_places(tokens, d, prompts, found), covector, d, 0)


@driver(numba.void(LOOKUP, TABLES, COUNTS, F2, F2, F5))
def fill_covectors(tokens, tables, counts, advantages, found, covectors):
    """Fill in covectors (E, V, B, K, WIDTH) by E tables; `tokens` (M, K) are the policy's probabilities.

    advantages (at least L, WIDTH) and found (at least K, WIDTH) are room.
    """
    n_estimators, n_vectors, _, n_responses, _ = covectors.shape
    n_values, batch_size = tables.ranks.shape[0] + 1, counts.prompts.shape[1]
    for v in range(n_vectors):
        s, i = v // VECTORS, v % VECTORS * WIDTH
        for b in range(batch_size):
            prompts, outcomes = load(counts.prompts, s, b, i), counts.outcomes[s, b]
            read_rows(tokens, prompts, found)
            multisets = multiset_numbers(counts.outcomes[s], b, i, tables.ranks)
            for e in range(n_estimators):
                look_up_advantages(tables, e, prompts, multisets, advantages)
                covector = covectors[e, v, b]
                total = weigh_outcomes(outcomes, i, advantages, n_values, covector)
                centre_edges(covector, 0, n_responses, total, tokens, prompts, found)
