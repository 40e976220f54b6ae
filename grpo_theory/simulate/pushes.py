"""Pushes to covectors, for estimators whose tokens weigh more than their advantage alone.

The push of a response is the sum of its advantages in the group, over G; where gains depend on the sign of the advantage, those
above 0 are apart from the others.
"""

from functools import cache
from typing import Any, NamedTuple

import numba
import numpy as np

from grpo_theory.arrays import Array, Integers
from grpo_theory.compilation import F1, F2, F3, F4, I1, I2, compile_function, record_type, stage
from grpo_theory.estimation import Estimator
from grpo_theory.exact.weights import TokenWeights
from grpo_theory.simulate.book import BOOK, find_advantages, find_multisets
from grpo_theory.simulate.counting import COUNTS
from grpo_theory.simulate.covectors import centre_lanes, look_up_lanes
from grpo_theory.simulate.strip import STRIP


class Weighing(NamedTuple):
    """What the tokens of every response weigh.

    Attributes
    ----------
    tokens : ndarray, shape (D, M)
        Probabilities of tokens given their prefixes.
    vocabulary_size : int
    edges, lengths : ndarray of int64, shapes (K, T) and (K,)
    gains : ndarray, shape (K, n_signs, T, P)
        What an advantage is multiplied with; P is M, or 1 if all prompts have the same.
    drifts : ndarray, shape (K, T, M), or (0, 0, 0)
        What is added whatever the advantage.
    together : int
        The number of groups that pool their tokens: 0 for no pooling, 1, or B.
    """

    tokens: Array
    vocabulary_size: int
    edges: Integers
    lengths: Integers
    gains: Array
    drifts: Array
    together: int

    @property
    def is_plain(self) -> bool:
        """Whether every response is one token that weighs its advantage."""
        return self.edges.shape[1] == 1 and self.drifts.size == 0 and bool((self.gains == 1.0).all())


def make_weighing(weights: TokenWeights, estimator: Estimator, batch_size: int) -> Weighing:
    """Tabulate what the tokens of an estimator weigh."""
    gains = weights.gains if weights.depends_on_sign else weights.gains[:, :1]
    same = bool((gains == gains[..., :1]).all())
    return Weighing(
        tokens=np.ascontiguousarray(weights.token_probabilities.T),
        vocabulary_size=weights.paths.vocabulary_size,
        edges=weights.paths.edges,
        lengths=weights.paths.lengths,
        gains=np.ascontiguousarray(gains[..., :1] if same else gains),
        drifts=np.ascontiguousarray(weights.drifts) if weights.drifting else np.empty((0, 0, 0)),
        together={"": 0, "group": 1, "batch": batch_size}[estimator.aggregation.pool],
    )


WEIGHING = record_type(Weighing, F2, numba.int64, I2, I1, F4, F3, numba.int64)


@stage
def push_outcomes(outcomes, advantages, n_signs, pushes):
    """Add up the advantages (L, STRIP) of the outcomes' counts (O, STRIP), by sign and response (n_signs K, STRIP)."""
    n_values = advantages.shape[0]
    n_responses = outcomes.shape[0] // n_values
    for row in range(pushes.shape[0]):
        for j in range(STRIP):
            pushes[row, j] = 0.0
    for value in range(n_values):
        for response in range(n_responses):
            for j in range(STRIP):
                advantage = advantages[value, j]
                push = advantage * outcomes[response * n_values + value, j]
                if advantage > 0.0 or n_signs == 1:
                    pushes[response, j] += push
                else:
                    pushes[n_responses + response, j] += push


def fill_pushes_by_book(book, counts, n_signs, places, advantages, pushes):
    """Fill in pushes (S, B, n_signs K, STRIP) of the one table of a book; places (2, STRIP), advantages (L, STRIP) are room."""
    n_strips, batch_size, _ = counts.prompts.shape
    for s in range(n_strips):
        for b in range(batch_size):
            find_multisets(counts.outcomes[s, b], book.ranks, places[0], places[1])
            find_advantages(book, 0, counts.prompts[s, b], places[1], advantages)
            push_outcomes(counts.outcomes[s, b], advantages, n_signs, pushes[s, b])


@stage
def weigh_tokens(weighing, prompts, pushes, weights):
    """Put the pushes (n_signs K, STRIP), times the gains, on the edges that the tokens take (D, STRIP)."""
    n_responses, n_signs = weighing.gains.shape[0], weighing.gains.shape[1]
    step = 0 if weighing.gains.shape[3] == 1 else 1
    for d in range(weights.shape[0]):
        for j in range(STRIP):
            weights[d, j] = 0.0
    for k in range(n_responses):
        for t in range(weighing.lengths[k]):
            edge = weighing.edges[k, t]
            for sign in range(n_signs):
                for j in range(STRIP):
                    gain = weighing.gains[k, sign, t, np.uintp(step * prompts[j])]
                    weights[edge, j] += pushes[sign * n_responses + k, j] * gain


@stage
def add_drifts(weighing, prompts, outcomes, group_size, weights):
    """Add what tokens weigh whatever the advantage, times the share of the group's responses that have them."""
    n_values = outcomes.shape[0] // weighing.lengths.shape[0]
    for k in range(weighing.drifts.shape[0]):
        for t in range(weighing.lengths[k]):
            edge = weighing.edges[k, t]
            for outcome in range(k * n_values, (k + 1) * n_values):
                for j in range(STRIP):
                    drift = weighing.drifts[k, t, np.uintp(prompts[j])]
                    weights[edge, j] += drift * outcomes[outcome, j] / group_size


@stage
def find_factors(weighing, outcomes, group_size, factors):
    """Find what scales the tokens of groups (n, O, STRIP) that pool them: the number of responses over that of tokens."""
    n_outcomes = outcomes.shape[1]
    n_values = n_outcomes // weighing.lengths.shape[0]
    for j in range(STRIP):
        factors[j] = 0.0
    for c in range(outcomes.shape[0]):
        for outcome in range(n_outcomes):
            for j in range(STRIP):
                factors[j] += weighing.lengths[outcome // n_values] * outcomes[c, outcome, j]
    for j in range(STRIP):
        factors[j] = group_size * outcomes.shape[0] / factors[j]


def fill_covectors_of_pushes(weighing, group_size, counts, pushes, here, sums, covectors):
    """Turn pushes into covectors (S, B, D, STRIP); here (D, STRIP) and sums (STRIP,) are room."""
    n_strips, batch_size, _ = counts.prompts.shape
    factors = np.ones(STRIP)
    for s in range(n_strips):
        for b in range(batch_size):
            prompts, weights = counts.prompts[s, b], covectors[s, b]
            if weighing.together > 0 and b % weighing.together == 0:
                find_factors(weighing, counts.outcomes[s, b : b + weighing.together], group_size, factors)
            weigh_tokens(weighing, prompts, pushes[s, b], weights)
            add_drifts(weighing, prompts, counts.outcomes[s, b], group_size, weights)
            for d in range(weights.shape[0]):
                for j in range(STRIP):
                    weights[d, j] *= factors[j]
            look_up_lanes(weighing.tokens, prompts, here)
            centre_lanes(weights, here, weighing.vocabulary_size, sums)


@cache
def compiled_fill_pushes_by_book() -> Any:
    """Compile `fill_pushes_by_book`, or read it from the cache."""
    return compile_function(fill_pushes_by_book, numba.void(BOOK, COUNTS, numba.int64, I2, F2, F4))


@cache
def compiled_fill_covectors_of_pushes() -> Any:
    """Compile `fill_covectors_of_pushes`, or read it from the cache."""
    return compile_function(fill_covectors_of_pushes, numba.void(WEIGHING, numba.int64, COUNTS, F4, F2, F1, F4))
