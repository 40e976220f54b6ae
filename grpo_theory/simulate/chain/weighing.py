"""From responses that were drawn to the estimates of their groups, as covectors: advantages, and the weights of tokens.

A covector has one entry for each edge, a pair of a state and a token.  A token adds its weight to the edge that it takes.  At the
end, the expected weight of each state under the policy is subtracted.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import numba
import numpy as np
from numba import types

from grpo_theory.compiler import F1, F2, READONLY_F1, READONLY_F2, FirstClassType, compile_function, function_value
from grpo_theory.estimation import Estimator
from grpo_theory.estimation.kernel import PROMPT_FIELDS, Batch
from grpo_theory.estimation.parts import CLIP_SIGNATURE as CLIP
from grpo_theory.estimation.parts import RATIO_SIGNATURE as RATIO
from grpo_theory.exact.multisets import advantages_of
from grpo_theory.exact.score_moments import by_token, check_penalty, shares_by_length
from grpo_theory.problem import ChainPoint
from grpo_theory.simulate.chain.walks import WALKS, Walks
from grpo_theory.validation import Array, Integers

MARKS = types.Array(numba.uint8, 1, "C", readonly=True)
_by_token = lru_cache(maxsize=64)(by_token)


def seen(walks: Walks, sampler: ChainPoint, reads: Iterable[str]) -> Batch:
    """Return what kernels that read these fields may read of groups that were drawn at a point; the parameters are empty."""
    reads, n_groups = set(reads), walks.prompts.size
    shape = n_groups, walks.lengths.size // n_groups
    norms, fields = np.full(shape, np.nan), [np.full(n_groups, np.nan) for _ in PROMPT_FIELDS]
    if "squared_score_norms" in reads:
        norms = np.stack([_squared_norms(walks.groups(b, b + 1), sampler) for b in range(n_groups)])
    if reads & set(PROMPT_FIELDS):
        fields = [known[walks.prompts] for known in sampler.moments.known_to_oracles]
    return Batch._make([walks.rewards.reshape(shape), norms, walks.lengths.reshape(shape), *fields, np.empty(0)])


def _squared_norms(walks: Walks, sampler: ChainPoint) -> Array:
    """Return ||W||^2 of each response, shape (N,), by the number of times that it takes each edge."""
    counts, ones = np.zeros((walks.lengths.size, sampler.policy.n_logits)), np.ones(walks.lengths.size)
    add_tabulated(walks, ones, np.ones((2, counts.shape[1])), ones.astype(np.uint8), counts)
    vectors = sampler.tangent.vectors(sampler.centred(counts))
    return np.maximum((vectors**2).sum(axis=-1), 0.0)


def advantages_in(estimator: Estimator, batch: Batch, batch_size: int) -> Array:
    """Return the advantages of groups, shape (n, G): of all at once, unless the kernel couples those of a batch.

    Raises
    ------
    ValueError
        If the kernel leaves a value that is not finite.
    """
    own = batch._replace(parameters=estimator.advantage.parameter_array)
    if not estimator.advantage.couples_groups:
        return advantages_of(estimator.advantage, own)
    parts = []
    for first in range(0, len(batch.rewards), batch_size):
        fields = (field[first : first + batch_size] for field in own[:-1])
        parts.append(advantages_of(estimator.advantage, Batch._make([*fields, own.parameters])))
    return np.concatenate(parts)


@dataclass(frozen=True, eq=False)
class Weighing:
    """The weights of an estimator's tokens at one point, for responses drawn at another; made by `weighing`.

    Attributes
    ----------
    estimator : Estimator
    current : ChainPoint
    shares : ndarray, shape (T + 1,)
        The weight of a response's tokens, by its length.
    gains : ndarray, shape (2, D), or None
        The factor that the ratio and the clip give each edge, for positive advantages and for others.  None if a token's weight
        depends on the other tokens of its response.
    log_ratios : ndarray, shape (D,)
        Logs of the edges' ratios.
    """

    estimator: Estimator
    current: ChainPoint
    shares: Array
    gains: Array | None
    log_ratios: Array

    def covectors(self, walks: Walks, advantages: Array, batch_size: int) -> Array:
        """Return the estimates of groups as covectors, shape (n, D), for advantages (n, G) and batches of so many groups."""
        n_groups, group_size = advantages.shape
        weights = np.zeros((n_groups, self.current.policy.n_logits))
        factors = advantages.ravel() * self._scales(walks.lengths, group_size, batch_size)
        positive = (advantages.ravel() > 0.0).astype(np.uint8)
        if self.gains is not None:
            add_tabulated(walks, factors, self.gains, positive, weights)
        else:
            fills, clip = (self.estimator.ratio.fill.value, self.estimator.clip.fill.value), self.estimator.clip
            compiled_add_anew()(*fills, clip.widths, self.log_ratios, walks, factors, positive, weights)
        return self.current.centred(weights)

    def _scales(self, lengths: Integers, group_size: int, batch_size: int) -> Array:
        """Return what multiplies the tokens of each response, shape (N,), besides ratios and clips."""
        scales = self.shares[lengths] / group_size
        pool = {"": 0, "group": 1, "batch": batch_size}[self.estimator.aggregation.pool] * group_size
        if pool:
            tokens = lengths.reshape(-1, pool).sum(axis=1)
            scales = scales * np.repeat(pool / tokens, pool)
        return scales


def weighing(estimator: Estimator, current: ChainPoint, log_ratios: Array) -> Weighing:
    """Return what the tokens of an estimator weigh at a point, for the logs of their ratios (S, V) there.

    Raises
    ------
    ValueError
        If the estimator has a KL term in the loss.
    """
    check_penalty(current.kl, estimator)
    chain, ratios = current.chain, np.zeros(log_ratios.shape) if estimator.ratio.constant else log_ratios
    gains = gains_of_tokens(estimator, ratios.reshape(1, -1)) if _by_token(estimator) else None
    return Weighing(estimator, current, shares_by_length(estimator, chain), gains, ratios.ravel())


def gains_of_tokens(estimator: Estimator, log_ratios: Array) -> Array:
    """Return what the ratio and the clip make of tokens, each by itself, shape (2, D), for the logs of their ratios (1, D)."""
    ratios, gains = np.empty(log_ratios.shape), np.empty((2, 1, log_ratios.size))
    estimator.ratio.fill(np.ascontiguousarray(log_ratios), 1, ratios)
    for sign in range(2):
        estimator.clip.fill(ratios, 1, sign == 0, estimator.clip.widths, gains[sign])
    return gains[:, 0]


def compile_weighing(estimator: Estimator) -> None:
    """Compile what weighs an estimator's tokens, before the first thread starts."""
    _ = estimator.advantage.kernel, estimator.ratio.fill.dispatcher, estimator.clip.fill.dispatcher, add_tabulated.dispatcher
    if not _by_token(estimator):
        compiled_add_anew()


@function_value(numba.void(WALKS, READONLY_F1, READONLY_F2, MARKS, F2))
def add_tabulated(walks, factors, gains, positive, weights):
    """Add to weights of edges (n, D), each of as many responses, those of tokens: a response's factor times an edge's gain."""
    together = factors.shape[0] // weights.shape[0]
    for i in range(factors.shape[0]):
        factor, sign, row = factors[i], 0 if positive[i] else 1, i // together
        if factor == 0.0:
            continue
        for t in range(walks.lengths[i]):
            edge = walks.edges[i, t]
            weights[row, edge] += factor * gains[sign, edge]


def add_anew(fill_ratios, fill_weights, widths, log_ratios, walks, factors, positive, weights):
    """Do what `add_tabulated` does where ratio and clip look at the tokens of a response together."""
    horizon, together = walks.edges.shape[1], factors.shape[0] // weights.shape[0]
    along, ratios, own = np.empty((horizon, 1)), np.empty((horizon, 1)), np.empty((horizon, 1))
    for i in range(factors.shape[0]):
        factor, length, row = factors[i], walks.lengths[i], i // together
        if factor == 0.0:
            continue
        for t in range(length):
            along[t, 0] = log_ratios[walks.edges[i, t]]
        fill_ratios(along, length, ratios)
        fill_weights(ratios, length, positive[i] != 0, widths, own)
        for t in range(length):
            weights[row, walks.edges[i, t]] += factor * own[t, 0]


@cache
def compiled_add_anew() -> Any:
    """Compile `add_anew`, or read it from the cache."""
    parts = FirstClassType(RATIO), FirstClassType(CLIP), F1, READONLY_F1
    return compile_function(add_anew, types.void(*parts, WALKS, READONLY_F1, MARKS, F2))
