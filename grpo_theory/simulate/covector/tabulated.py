"""Counted groups to the covectors of their estimates, for estimators whose kernels are tables and whose responses are one token.

Every token then weighs its advantage, and all such estimators are worked on together.

Covectors have shape (E, V, at least B, D, WIDTH).  The numbers of the batches of one vector of lanes lie side by side, and stay
in the first level of cache.  (With all 128 lanes side by side, the groups of a batch would compete for the same few places.)
"""

import numba
import numpy as np

from grpo_theory.compiler import F2, F5, driver, stage
from grpo_theory.compiler.lanes import WIDTH, as_real, load, reals, store, where
from grpo_theory.problem.logits import SURE
from grpo_theory.simulate.advantage.tables import TABLES, look_up_advantages, multiset_numbers
from grpo_theory.simulate.draw.counting import COUNTS
from grpo_theory.simulate.draw.prompt_tables import LOOKUP, at_places, read_rows
from grpo_theory.simulate.draw.streams import VECTORS
from grpo_theory.validation import Array


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


def least_sure(probabilities: Array) -> float:
    """Return above what probability a token is sure; infinite where none is."""
    return SURE if (probabilities > SURE).any() else np.inf


@stage
def close_covector(covector, start, stop, tokens, i, sure):
    """Make the entry of a sure token at a prefix minus the sum of the others', see `closed`; tokens (D, N) are probabilities.

    A token is sure if its probability is above `sure`.
    """
    others = reals(0.0)
    for d in range(start, stop):
        others = others + where(load(tokens, d, i) > sure, 0.0, load(covector, d, i))
    for d in range(start, stop):
        store(where(load(tokens, d, i) > sure, 0.0 - others, load(covector, d, i)), covector, d, i)


@stage
def close_edges(covector, start, stop, tokens, sure, prompts, found):
    """Do what `close_covector` does by the prompts' rows of a table (M, D), if any of it is above `sure`."""
    if sure < np.inf:
        for d in range(start, stop):
            store(at_places(tokens, d, prompts, found), found, d, 0)
        close_covector(covector, start, stop, found, 0, sure)


@stage
def centre_edges(covector, start, stop, total, tokens, sure, prompts, found):
    """Turn weights of the edges at a prefix into a covector: less their sum times the prompts' probabilities (M, D)."""
    for d in range(start, stop):
        weight = load(covector, d, 0)
        store(weight - total * at_places(tokens, d, prompts, found), covector, d, 0)
    close_edges(covector, start, stop, tokens, sure, prompts, found)


@driver(numba.void(LOOKUP, numba.float64, TABLES, COUNTS, F2, F2, F5))
def fill_covectors(tokens, sure, tables, counts, advantages, found, covectors):
    """Fill in covectors (E, V, B, K, WIDTH) by E tables; `tokens` (M, K) are the policy's probabilities.

    Above `sure`, see `least_sure`, entries are those of `close_edges`.  advantages (at least L, WIDTH) and found (at least K,
    WIDTH) are room.
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
                centre_edges(covector, 0, n_responses, total, tokens, sure, prompts, found)
