"""Responses of a chain, drawn token by token, and what an estimator makes of them.

Every response has a stream of its own (SFC64), keyed by the seed, the number of its replication or run, and its own number there.
So what is drawn depends neither on who draws it nor on how long other responses are.  Estimators that are compared see the same
uniforms.
Tokens are drawn by alias tables, so that each takes one uniform and no search; their chances are exact to V 2^-53.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from grpo_theory.estimation import Estimator
from grpo_theory.estimation.kernel import PROMPT_FIELDS, Batch
from grpo_theory.exact.multisets import advantages_of
from grpo_theory.exact.score_moments import by_token, check_penalty, shares_by_length
from grpo_theory.jit import compiled, kernel
from grpo_theory.problem import ChainPoint
from grpo_theory.simulate.draws import fill_aliases
from grpo_theory.validation import Array, Integers

WARM_UP = 24
"""Rounds after which streams that began one apart have nothing in common."""
_U11, _U3, _U24, _U40, _ONE = (np.uint64(number) for number in (11, 3, 24, 40, 1))
by_token = lru_cache(maxsize=64)(by_token)


class Chances(NamedTuple):
    """What responses are drawn from.

    Prompts and rewards are drawn by the sums of their laws, see `sums_of`; tokens by the alias table of their state.

    Attributes
    ----------
    prompts : ndarray, shape (M,)
    starts : ndarray of int64, shape (M,)
        V times the state in which the response to each prompt begins.
    thresholds : ndarray, shape (D,)
        D = S V edges, the pairs of a state and a token.
    choices : ndarray of int64, shape (D, 2)
        The edge that is taken below the threshold, and the one from there on.
    leads : ndarray of int64, shape (D, 2)
        V times the state after each edge, and whether a response ends with it.
    rewards : ndarray, shape (S, L)
        By the state in which a response ends.
    values : ndarray, shape (L,)
    """

    prompts: Array
    starts: Integers
    thresholds: Array
    choices: Integers
    leads: Integers
    rewards: Array
    values: Array


class Walks(NamedTuple):
    """Groups of responses that were drawn, one after another: n groups of G are N = n G responses.

    Attributes
    ----------
    prompts : ndarray of int64, shape (n,)
    edges : ndarray of int32, shape (N, T)
        The number s V + v of each token v in a state s; of no meaning beyond the response's end.
    lengths : ndarray of int64, shape (N,)
    rewards : ndarray, shape (N,)
    """

    prompts: Integers
    edges: NDArray[np.int32]
    lengths: Integers
    rewards: Array

    def groups(self, first: int, stop: int) -> "Walks":
        """Return the groups from one on to before another, as views."""
        size = self.lengths.size // self.prompts.size
        own = slice(first * size, stop * size)
        return Walks(self.prompts[first:stop], self.edges[own], self.lengths[own], self.rewards[own])


def make_walks(n_groups: int, group_size: int, horizon: int) -> Walks:
    """Make room for so many groups."""
    n = n_groups * group_size
    edges = np.zeros((n, horizon), dtype=np.int32)
    return Walks(np.zeros(n_groups, dtype=np.int64), edges, np.ones(n, dtype=np.int64), np.zeros(n))


def sums_of(law: Array) -> Array:
    """Return the sums of laws (..., n) up to each point, infinite from the last on that has a chance."""
    below = np.cumsum(law, axis=-1)
    after = np.flip(np.cumsum(np.flip(law, -1), axis=-1), -1)
    below[..., :-1][after[..., 1:] == 0.0] = np.inf
    below[..., -1] = np.inf
    return below


def chances_of(point: ChainPoint) -> Chances:
    """Return what the responses to a problem are drawn from at a point."""
    chain, rewards = point.policy, point.bandit
    n_tokens, nexts = chain.vocabulary_size, np.where(chain.transitions < 0, 0, chain.transitions)
    thresholds, choices = np.empty(chain.n_logits), np.empty((chain.n_logits, 2), dtype=np.int64)
    fill_aliases(point.state_probabilities, thresholds, choices)
    return Chances(
        prompts=sums_of(rewards.prompt_weights),
        starts=chain.starts * n_tokens,
        thresholds=thresholds,
        choices=choices,
        leads=np.stack([nexts.ravel() * n_tokens, chain.ends.ravel()], axis=1),
        rewards=sums_of(rewards.state_probabilities),
        values=rewards.values,
    )


@kernel
def turn(a, b, c, counter):
    """Return the next word of a stream, and its state then (SFC64: Doty-Humphrey, PractRand)."""
    word = a + b + counter
    return word, b ^ (b >> _U11), c + (c << _U3), ((c << _U24) | (c >> _U40)) + word, counter + _ONE


@kernel
def first_above(sums, u):
    """Return the first place whose sum is above u; the last sum is infinite."""
    place = 0
    while sums[place] <= u:
        place += 1
    return place


@kernel
def draw_walks(words, number, first, batch, chances, walks):
    """Draw groups of responses, `batch` responses for each replication.

    Replications are numbered from `number` on, and the responses of each from `first` on.  `words` (3,) are a seed's.
    """
    n, horizon = walks.edges.shape
    group_size, n_tokens = n // walks.prompts.shape[0], chances.thresholds.shape[0] // chances.rewards.shape[0]
    unit, prompt = 1.0 / 9007199254740992.0, 0
    for i in range(n):
        a, b, c = words[0], words[1] + np.uint64(first + i % batch), words[2] + np.uint64(number + i // batch)
        counter = _ONE
        for _ in range(WARM_UP):
            word, a, b, c, counter = turn(a, b, c, counter)
        if i % group_size == 0:
            word, a, b, c, counter = turn(a, b, c, counter)
            prompt = first_above(chances.prompts, (word >> _U11) * unit)
            walks.prompts[i // group_size] = prompt
        state, length = chances.starts[prompt], 0
        while length < horizon:
            word, a, b, c, counter = turn(a, b, c, counter)
            # x = V u: the column is floor(x), and its own edge is taken if x - floor(x) is below the threshold (Walker 1977).
            x = np.int64(word >> _U11) * (n_tokens * unit)
            place = np.int64(x)
            edge = chances.choices[state + place, np.int64(x - place >= chances.thresholds[state + place])]
            walks.edges[i, length] = edge
            length += 1
            state = chances.leads[edge, 0]
            if chances.leads[edge, 1] != 0:
                break
        walks.lengths[i] = length
        word, a, b, c, counter = turn(a, b, c, counter)
        walks.rewards[i] = chances.values[first_above(chances.rewards[state // n_tokens], (word >> _U11) * unit)]


def seen(walks: Walks, sampler: ChainPoint, reads: Iterable[str]) -> Batch:
    """Return what kernels that read these fields may read of groups that were drawn at a point; the parameters are empty."""
    reads, n_groups = set(reads), walks.prompts.size
    shape = n_groups, walks.lengths.size // n_groups
    norms, fields = np.full(shape, np.nan), [np.full(n_groups, np.nan) for _ in PROMPT_FIELDS]
    if "squared_score_norms" in reads:
        for b in range(n_groups):
            own, ones = walks.groups(b, b + 1), np.ones(shape[1])
            counts = np.zeros((shape[1], sampler.policy.n_logits))
            add_tabulated(own, ones, np.ones((2, counts.shape[1])), ones > 0.0, counts)
            norms[b] = np.maximum((sampler.tangent.vectors(sampler.centred(counts)) ** 2).sum(axis=-1), 0.0)
    if reads & set(PROMPT_FIELDS):
        fields = [known[walks.prompts] for known in sampler.moments.known_to_oracles]
    logs = np.full(shape, np.nan)
    if "log_probabilities" in reads:
        taken = np.arange(walks.edges.shape[1]) < walks.lengths[:, None]
        of_edge = np.log(sampler.state_probabilities).ravel()
        logs = np.where(taken, of_edge[np.where(taken, walks.edges, 0)], 0.0).sum(axis=1).reshape(shape)
    return Batch._make([walks.rewards.reshape(shape), norms, walks.lengths.reshape(shape), logs, *fields, np.empty(0)])


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
class ChainWeights:
    """The weights of an estimator's tokens at one point, for responses drawn at another; made by `chain_weights`.

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

    def logit_gradients(self, walks: Walks, advantages: Array, batch_size: int) -> Array:
        """Return the estimates of groups as logit gradients, shape (n, D), for advantages (n, G) and batches of some groups."""
        n_groups, group_size = advantages.shape
        weights = np.zeros((n_groups, self.current.policy.n_logits))
        # a(L)/G for each token; pooled, 1/(tokens of the group) or B/(tokens of the batch) (docs/derivations.md, section 16).
        scales = self.shares[walks.lengths] / group_size
        pool = {"": 0, "group": 1, "batch": batch_size}[self.estimator.aggregation.pool] * group_size
        if pool:
            scales = scales * np.repeat(pool / walks.lengths.reshape(-1, pool).sum(axis=1), pool)
        factors, positive = advantages.ravel() * scales, advantages.ravel() > 0.0
        if self.gains is not None:
            add_tabulated(walks, factors, self.gains, positive, weights)
        else:
            clip = self.estimator.clip
            add = adding_anew(compiled(self.estimator.ratio.function), compiled(clip.function))
            add(clip.widths, self.log_ratios, walks, factors, positive, weights)
        # sum_t w_t (e_(s,v) - p(.|s)) = E - P(E), with P(E) the sum of E in a state, times p (docs/derivations.md, section 15).
        return self.current.centred(weights)


def chain_weights(estimator: Estimator, current: ChainPoint, log_ratios: Array) -> ChainWeights:
    """Return what the tokens of an estimator weigh at a point, for the logs of their ratios (S, V) there.

    Raises
    ------
    ValueError
        If the estimator has a KL term in the loss.
    """
    check_penalty(current.kl, estimator)
    if estimator.credit.name != "none":
        raise ValueError(f"estimator {estimator.name!r} has credits of tokens, tables over responses: use problem.listed()")
    ratios = np.zeros(log_ratios.size) if estimator.ratio.constant else np.ascontiguousarray(log_ratios).ravel()
    gains = None
    if by_token(estimator):
        along, gains = np.empty((1, ratios.size)), np.empty((2, 1, ratios.size))
        compiled(estimator.ratio.function)(ratios.reshape(1, -1), 1, along)
        for sign in range(2):
            compiled(estimator.clip.function)(along, 1, sign == 0, estimator.clip.widths, gains[sign])
        gains = gains[:, 0]
    return ChainWeights(estimator, current, shares_by_length(estimator, current.policy), gains, ratios)


@kernel
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


@lru_cache
def adding_anew(fill_ratios: Callable, fill_weights: Callable) -> Callable:
    """Return what does what `add_tabulated` does where ratio and clip look at the tokens of a response together."""

    @kernel
    def add_anew(widths, log_ratios, walks, factors, positive, weights):
        horizon, together = walks.edges.shape[1], factors.shape[0] // weights.shape[0]
        along, ratios, own = np.empty((horizon, 1)), np.empty((horizon, 1)), np.empty((horizon, 1))
        for i in range(factors.shape[0]):
            factor, length, row = factors[i], walks.lengths[i], i // together
            if factor == 0.0:
                continue
            for t in range(length):
                along[t, 0] = log_ratios[walks.edges[i, t]]
            # r_t of all l_s of the response, exp(sum_s l_s) say, and what the clip makes of it (docs/derivations.md, section 16).
            fill_ratios(along, length, ratios)
            fill_weights(ratios, length, positive[i], widths, own)
            for t in range(length):
                weights[row, walks.edges[i, t]] += factor * own[t, 0]

    return add_anew
