"""Sums of advantages to covectors, for estimators whose tokens weigh more than their advantage alone, at a fixed policy."""

from typing import NamedTuple

import numba
import numpy as np

from grpo_theory.compiler import F2, F3, F4, F5, I1, I2, driver, record_type, stage
from grpo_theory.compiler.lanes import WIDTH, as_real, load, reals, store, take
from grpo_theory.estimation import Estimator
from grpo_theory.exact.score_moments import TokenWeights
from grpo_theory.simulate.covector.tabulated import add_up, centre_edges, least_sure
from grpo_theory.simulate.draw.counting import COUNTS
from grpo_theory.simulate.draw.prompt_tables import LOOKUP, Lookup, lookup, read_rows
from grpo_theory.simulate.draw.streams import VECTORS
from grpo_theory.validation import Array, Integers


class TokenWeighing(NamedTuple):
    """What the tokens of every response weigh.

    Attributes
    ----------
    tokens : Lookup
        Probabilities (M, D) of tokens given their prefixes.
    sure : float
        See `least_sure`.
    vocabulary_size : int
    edges, lengths : ndarray of int64, shapes (K, T) and (K,)
    gains : ndarray, shape (K, n_signs, T, P)
        What an advantage is multiplied with; P is M, or 1 if all prompts have the same.
    drifts : ndarray, shape (K, T, M), or (0, 0, 0)
        What is added whatever the advantage.
    pool : int
        The number of groups that pool their tokens: 0 for no pooling, 1, or B.
    """

    tokens: Lookup
    sure: float
    vocabulary_size: int
    edges: Integers
    lengths: Integers
    gains: Array
    drifts: Array
    pool: int

    @property
    def is_plain(self) -> bool:
        """Whether every response is one token that weighs its advantage."""
        return self.edges.shape[1] == 1 and self.drifts.size == 0 and bool((self.gains == 1.0).all())


def make_weighing(weights: TokenWeights, estimator: Estimator, batch_size: int) -> TokenWeighing:
    """Tabulate what the tokens of an estimator weigh."""
    gains = weights.gains if weights.depends_on_sign else weights.gains[:, :1]
    same = bool((gains == gains[..., :1]).all())
    return TokenWeighing(
        tokens=lookup(weights.token_probabilities),
        sure=least_sure(weights.token_probabilities),
        vocabulary_size=weights.paths.vocabulary_size,
        edges=weights.paths.edges.copy(),
        lengths=weights.paths.lengths.copy(),
        gains=np.ascontiguousarray(gains[..., :1] if same else gains),
        drifts=np.ascontiguousarray(weights.drifts) if weights.drifting else np.empty((0, 0, 0)),
        pool={"": 0, "group": 1, "batch": batch_size}[estimator.aggregation.pool],
    )


TOKEN_WEIGHING = record_type(TokenWeighing, LOOKUP, numba.float64, numba.int64, I2, I1, F4, F3, numba.int64)


@stage
def gain_of(gains, k, sign, t, prompts):
    """Return what gains (K, n_signs, T, P) an advantage of the sign has at the t-th token of response k."""
    if gains.shape[3] == 1:
        return reals(gains[k, sign, t, 0])
    return take(gains, prompts + ((k * gains.shape[1] + sign) * gains.shape[2] + t) * gains.shape[3])


@stage
def weigh_tokens(weighing, prompts, sums, i, covector):
    """Put the sums (n_signs, K, LANES) of a group, times the gains, on the edges that tokens take, in its covector (D, WIDTH)."""
    n_responses, n_signs = weighing.gains.shape[0], weighing.gains.shape[1]
    for d in range(covector.shape[0]):
        store(reals(0.0), covector, d, 0)
    for k in range(n_responses):
        for t in range(weighing.lengths[k]):
            edge = weighing.edges[k, t]
            weight = load(covector, edge, 0)
            for sign in range(n_signs):
                weight = weight + load(sums, sign, k, i) * gain_of(weighing.gains, k, sign, t, prompts)
            store(weight, covector, edge, 0)


@stage
def add_drifts(weighing, prompts, outcomes, i, group_size, covector):
    """Add what tokens weigh whatever the advantage, times the share of the group's responses that have them."""
    drifts, n_values = weighing.drifts, outcomes.shape[0] // weighing.lengths.shape[0]
    for k in range(drifts.shape[0]):
        for t in range(weighing.lengths[k]):
            edge = weighing.edges[k, t]
            weight = load(covector, edge, 0)
            drift = take(drifts, prompts + (k * drifts.shape[1] + t) * drifts.shape[2])
            for outcome in range(k * n_values, (k + 1) * n_values):
                weight = weight + drift * as_real(load(outcomes, outcome, i)) / float(group_size)
            store(weight, covector, edge, 0)


@stage
def pool_factor(counts, first, pool, i, lengths, group_size):
    """Return what scales the tokens of the groups that pool them, from the first on: the responses' number over the tokens'."""
    n_values, n_tokens = counts.shape[1] // lengths.shape[0], reals(0.0)
    for b in range(first, first + pool):
        for o in range(counts.shape[1]):
            n_tokens = n_tokens + as_real(load(counts, b, o, i)) * float(lengths[o // n_values])
    return float(group_size * pool) / n_tokens


@stage
def scale(covector, i, factor):
    """Multiply a group's covector (D, N), for the lanes from i on."""
    for d in range(covector.shape[0]):
        store(load(covector, d, i) * factor, covector, d, i)


@driver(numba.void(TOKEN_WEIGHING, numba.int64, COUNTS, F5, F2, F5))
def fill_covectors_of_sums(weighing, group_size, counts, sums, tokens, covectors):
    """Turn sums (S, B, n_signs, K, LANES) into covectors (1, V, B, D, WIDTH); tokens (at least D, WIDTH) are room."""
    _, n_vectors, _, n_logits, _ = covectors.shape
    batch_size = counts.prompts.shape[1]
    for v in range(n_vectors):
        s, i, factor = v // VECTORS, v % VECTORS * WIDTH, reals(1.0)
        for b in range(batch_size):
            prompts, covector = load(counts.prompts, s, b, i), covectors[0, v, b]
            if weighing.pool > 0 and b % weighing.pool == 0:
                factor = pool_factor(counts.outcomes[s], b, weighing.pool, i, weighing.lengths, group_size)
            weigh_tokens(weighing, prompts, sums[s, b], i, covector)
            add_drifts(weighing, prompts, counts.outcomes[s, b], i, group_size, covector)
            if weighing.pool > 0:
                scale(covector, 0, factor)
            read_rows(weighing.tokens, prompts, tokens)
            for start in range(0, n_logits, weighing.vocabulary_size):
                stop = start + weighing.vocabulary_size
                total = add_up(covector, start, stop)
                centre_edges(covector, start, stop, total, weighing.tokens, weighing.sure, prompts, tokens)
