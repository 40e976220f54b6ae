"""Pushes to covectors, for estimators whose tokens weigh more than their advantage alone.

The push of a response is the sum of its advantages in the group, over G; where gains depend on the sign of the advantage, those
above 0 are apart from the others.
"""

from functools import cache
from typing import Any, NamedTuple

import numba
import numpy as np

from grpo_theory.arrays import Array, Integers
from grpo_theory.compiler.compilation import F2, F3, F4, I1, I2, NO_ARRAYS, compile_driver, record_type, stage
from grpo_theory.compiler.lanes import WIDTH, as_real, load, reals, store, take
from grpo_theory.estimation import Estimator
from grpo_theory.exact.weights import TokenWeights
from grpo_theory.simulate.covector.tabulated import COVECTORS, add_up, centre
from grpo_theory.simulate.draw.counting import COUNTS
from grpo_theory.simulate.draw.generator import VECTORS
from grpo_theory.simulate.draw.prompt_tables import LOOKUP, Lookup, lookup, read_rows


class Weighing(NamedTuple):
    """What the tokens of every response weigh.

    Attributes
    ----------
    tokens : Lookup
        Probabilities (M, D) of tokens given their prefixes.
    vocabulary_size : int
    edges, lengths : ndarray of int64, shapes (K, T) and (K,)
    gains : ndarray, shape (K, n_signs, T, P)
        What an advantage is multiplied with; P is M, or 1 if all prompts have the same.
    drifts : ndarray, shape (K, T, M), or (0, 0, 0)
        What is added whatever the advantage.
    together : int
        The number of groups that pool their tokens: 0 for no pooling, 1, or B.
    """

    tokens: Lookup
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
        tokens=lookup(weights.token_probabilities),
        vocabulary_size=weights.paths.vocabulary_size,
        edges=weights.paths.edges.copy(),
        lengths=weights.paths.lengths.copy(),
        gains=np.ascontiguousarray(gains[..., :1] if same else gains),
        drifts=np.ascontiguousarray(weights.drifts) if weights.drifting else np.empty((0, 0, 0)),
        together={"": 0, "group": 1, "batch": batch_size}[estimator.aggregation.pool],
    )


WEIGHING = record_type(Weighing, LOOKUP, numba.int64, I2, I1, F4, F3, numba.int64)


@stage
def gain_of(gains, k, sign, t, prompts):
    """Return what gains (K, n_signs, T, P) an advantage of the sign has at the t-th token of response k."""
    if gains.shape[3] == 1:
        return reals(gains[k, sign, t, 0])
    return take(gains, prompts + ((k * gains.shape[1] + sign) * gains.shape[2] + t) * gains.shape[3])


@stage
def weigh_tokens(weighing, prompts, pushes, s, b, i, covectors, v):
    """Put pushes (S, B, n_signs K, LANES), times the gains, on the edges that tokens take, in covectors (1, V, B, D, WIDTH)."""
    n_responses, n_signs = weighing.gains.shape[0], weighing.gains.shape[1]
    for d in range(covectors.shape[3]):
        store(reals(0.0), covectors, 0, v, b, d, 0)
    for k in range(n_responses):
        for t in range(weighing.lengths[k]):
            edge = weighing.edges[k, t]
            weight = load(covectors, 0, v, b, edge, 0)
            for sign in range(n_signs):
                gain = gain_of(weighing.gains, k, sign, t, prompts)
                weight = weight + load(pushes, s, b, sign * n_responses + k, i) * gain
            store(weight, covectors, 0, v, b, edge, 0)


@stage
def add_drifts(weighing, prompts, outcomes, s, b, i, group_size, covectors, v):
    """Add what tokens weigh whatever the advantage, times the share of the group's responses that have them."""
    drifts, n_values = weighing.drifts, outcomes.shape[2] // weighing.lengths.shape[0]
    for k in range(drifts.shape[0]):
        for t in range(weighing.lengths[k]):
            edge = weighing.edges[k, t]
            weight = load(covectors, 0, v, b, edge, 0)
            drift = take(drifts, prompts + (k * drifts.shape[1] + t) * drifts.shape[2])
            for outcome in range(k * n_values, (k + 1) * n_values):
                weight = weight + drift * as_real(load(outcomes, s, b, outcome, i)) / float(group_size)
            store(weight, covectors, 0, v, b, edge, 0)


@stage
def find_factor(weighing, outcomes, s, first, i, group_size):
    """Return what scales the tokens of the groups that pool them, from the first on: the responses' number over the tokens'."""
    n_outcomes = outcomes.shape[2]
    n_values = n_outcomes // weighing.lengths.shape[0]
    n_tokens = reals(0.0)
    for b in range(first, first + weighing.together):
        for outcome in range(n_outcomes):
            n_tokens = n_tokens + as_real(load(outcomes, s, b, outcome, i)) * float(weighing.lengths[outcome // n_values])
    return float(group_size * weighing.together) / n_tokens


@stage
def scale(covectors, v, b, factor):
    """Multiply a group's covector (1, V, B, D, WIDTH)."""
    for d in range(covectors.shape[3]):
        store(load(covectors, 0, v, b, d, 0) * factor, covectors, 0, v, b, d, 0)


def fill_covectors_of_pushes(weighing, group_size, counts, pushes, tokens, covectors):
    """Turn pushes into covectors (1, V, B, D, WIDTH); tokens (at least D, WIDTH) are room."""
    _, n_vectors, _, n_logits, _ = covectors.shape
    batch_size = counts.prompts.shape[1]
    for v in range(n_vectors):
        s, i, factor = v // VECTORS, v % VECTORS * WIDTH, reals(1.0)
        for b in range(batch_size):
            prompts = load(counts.prompts, s, b, i)
            if weighing.together > 0 and b % weighing.together == 0:
                factor = find_factor(weighing, counts.outcomes, s, b, i, group_size)
            weigh_tokens(weighing, prompts, pushes, s, b, i, covectors, v)
            add_drifts(weighing, prompts, counts.outcomes, s, b, i, group_size, covectors, v)
            scale(covectors, v, b, factor)
            read_rows(weighing.tokens, prompts, tokens)
            for start in range(0, n_logits, weighing.vocabulary_size):
                stop = start + weighing.vocabulary_size
                total = add_up(covectors, 0, v, b, start, stop)
                centre(covectors, 0, v, b, start, stop, total, weighing.tokens, prompts, tokens)


@cache
def compiled_fill_covectors_of_pushes() -> Any:
    """Compile `fill_covectors_of_pushes`, or read it from the cache."""
    arguments = WEIGHING, numba.int64, COUNTS, F4, F2, COVECTORS
    return compile_driver(fill_covectors_of_pushes, numba.void(*arguments), **NO_ARRAYS)
