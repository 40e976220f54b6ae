"""Sums over all responses of a chain, by recursion over its tokens: a thousand tokens cost a thousand times what one costs.

A response is a walk s_0, v_0, s_1, ... through the states.  Each token has a weight k(s, v), its probability say, and adds F
vectors x_f(s, v).  A response of length L that ends in state s counts for `shares[L] * law[s, r]` towards reward value r.

Let X_f be the sum of the vectors that are still to come.  Three sums over all continuations are carried back from the end, from
state to state.  They are the sums of the weight, of the weight times X_f, and of the weight times <X_f, X_g>
(docs/derivations.md, section 15).
"""

from typing import NamedTuple

import numba
import numpy as np

from grpo_theory.arrays import Array, Integers
from grpo_theory.compiler import (
    F3,
    F4,
    F5,
    READONLY_F1,
    READONLY_F2,
    READONLY_F3,
    READONLY_I1,
    READONLY_I2,
    function_value,
    record_type,
)
from grpo_theory.validation import check_room


class Walk(NamedTuple):
    """Where tokens lead, and what a response counts for.

    Attributes
    ----------
    nexts, ends : ndarray of int64, shape (S, V)
        The state after each token, and whether a response ends with it.
    weights : ndarray, shape (S, V)
        k.
    shares : ndarray, shape (T + 1,)
        By the response's length.
    law : ndarray, shape (S, R)
        By the state in which it ends.
    """

    nexts: Integers
    ends: Integers
    weights: Array
    shares: Array
    law: Array


BLOCK = 256
"""Entries of a vector that are carried together: those of some thirty states fit into the nearest cache or the next."""
WALK = record_type(Walk, READONLY_I2, READONLY_I2, READONLY_F2, READONLY_F1, READONLY_F2)


class Carried(NamedTuple):
    """Sums over the continuations of all responses.

    Attributes
    ----------
    mass : ndarray, shape (T, S, R)
        Sums of the weights, when t tokens have been drawn and the state is s.
    mean : ndarray, shape (S, R, F, W)
        Sums of the weight times X_f, from the first token on.
    product : ndarray, shape (S, R, F, F)
        Sums of the weight times <X_f, X_g>, from the first token on.
    """

    mass: Array
    mean: Array
    product: Array


def carry(walk: Walk, vectors: Array, offsets: Integers, width: int) -> Carried:
    """Carry the sums back from the last token to the first.

    Parameters
    ----------
    walk : Walk
    vectors : ndarray, shape (F, S, V, w)
        The entries of x_f that are not 0, which lie side by side.
    offsets : ndarray of int64, shape (S,)
        Where they begin, by state.
    width : int
        The number of all entries W.
    """
    horizon, (n_states, n_rewards), n_features = walk.shares.size - 1, walk.law.shape, len(vectors)
    for what, shape in (
        ("the chances of rewards from each state and token on", (horizon, n_states, n_rewards)),
        ("the mean scores from each state on", (2, n_states, n_rewards, n_features, width)),
    ):
        check_room(what, shape, "take a shorter horizon, fewer states, or features in place of free logits")
    mass = np.zeros((horizon, n_states, n_rewards))
    mean = np.zeros((n_states, n_rewards, n_features, width))
    product = np.zeros((n_states, n_rewards, n_features, n_features))
    with np.errstate(over="ignore", invalid="ignore"):
        carry_back(walk, np.ascontiguousarray(vectors), offsets, spans_of(walk, offsets, vectors.shape[3]), mass, mean, product)
    return Carried(mass, mean, product)


def chances_to_come(walk: Walk) -> Array:
    """Return the sums of the weights alone, shape (T, S, R): see `Carried.mass`."""
    n_states, n_tokens = walk.weights.shape
    return carry(walk, np.zeros((1, n_states, n_tokens, 0)), np.zeros(n_states, dtype=np.int64), 0).mass


def spans_of(walk: Walk, offsets: Integers, width: int) -> Integers:
    """Return between which entries those of X_f lie that may not be 0, from each state on, (S, 2): prompts may share none."""
    spans = np.stack([offsets, offsets + width], axis=1)
    goes_on = (walk.weights != 0.0) & (walk.ends == 0)
    for _ in range(len(spans)):
        lows = np.where(goes_on, spans[walk.nexts, 0], spans[:, :1]).min(axis=1)
        highs = np.where(goes_on, spans[walk.nexts, 1], spans[:, 1:]).max(axis=1)
        wider = np.stack([np.minimum(lows, spans[:, 0]), np.maximum(highs, spans[:, 1])], axis=1)
        if np.array_equal(wider, spans):
            break
        spans = wider
    return spans


@function_value(numba.void(WALK, F4, READONLY_I1, READONLY_I2, F3, F4, F4))
def carry_back(walk, vectors, offsets, spans, mass, mean, product):
    """Fill in the sums, see `Carried`, token by token from the last one."""
    nexts, ends, weights, shares, law = walk
    horizon, n_states, n_rewards = mass.shape
    n_features, _, n_tokens, width = vectors.shape
    later, later_product = np.zeros_like(mean), np.zeros_like(product)
    # The tokens after which a response may go on, by state.
    n_on, on_nexts, on_weights = np.zeros(n_states, dtype=np.int64), np.zeros_like(nexts), np.zeros_like(weights)
    for s in range(n_states):
        for v in range(n_tokens):
            if weights[s, v] != 0.0 and ends[s, v] == 0:
                on_nexts[s, n_on[s]], on_weights[s, n_on[s]] = nexts[s, v], weights[s, v]
                n_on[s] += 1
    for back in range(horizon):
        t = horizon - 1 - back
        for s in range(n_states):
            later[s] = mean[s]
            later_product[s] = product[s]
        for s in range(n_states):
            mean[s] = 0.0
            product[s] = 0.0
            first = offsets[s]
            for v in range(n_tokens):
                weight, after = weights[s, v], nexts[s, v]
                if weight == 0.0:
                    continue
                ended = back == 0 or ends[s, v] != 0
                for r in range(n_rewards):
                    to_come = shares[t + 1] * law[after, r] if ended else mass[t + 1, after, r]
                    mass[t, s, r] += weight * to_come
                    for f in range(n_features):
                        for i in range(width):
                            mean[s, r, f, first + i] += weight * to_come * vectors[f, s, v, i]
                        if not ended:
                            for i in range(first, first + width):
                                mean[s, r, f, i] += weight * later[after, r, f, i]
                        for g in range(n_features):
                            # <x_f + X_f, x_g + X_g> = <x_f, x_g> + <x_f, X_g> + <x_g, X_f> + <X_f, X_g>.
                            inner, crossed = 0.0, 0.0
                            for i in range(width):
                                inner += vectors[f, s, v, i] * vectors[g, s, v, i]
                                crossed += vectors[f, s, v, i] * later[after, r, g, first + i]
                                crossed += vectors[g, s, v, i] * later[after, r, f, first + i]
                            product[s, r, f, g] += weight * inner * to_come
                            if not ended:
                                product[s, r, f, g] += weight * (crossed + later_product[after, r, f, g])
        if back == 0:
            continue
        # Entries that are not the state's own, most of all.  In blocks that stay in the nearest cache, and four tokens at a time,
        # which add up in the order of tokens: four times fewer of the sums are read and written.
        for r in range(n_rewards):
            for f in range(n_features):
                for block in range(0, mean.shape[3], BLOCK):
                    for s in range(n_states):
                        low, high = max(block, spans[s, 0]), min(block + BLOCK, spans[s, 1])
                        own, others = min(high, offsets[s]), max(low, offsets[s] + width)
                        sums, fours = mean[s, r, f], n_on[s] - n_on[s] % 4
                        for j in range(0, fours, 4):
                            wa, wb, wc, wd = on_weights[s, j], on_weights[s, j + 1], on_weights[s, j + 2], on_weights[s, j + 3]
                            xa, xb = later[on_nexts[s, j], r, f], later[on_nexts[s, j + 1], r, f]
                            xc, xd = later[on_nexts[s, j + 2], r, f], later[on_nexts[s, j + 3], r, f]
                            for i in range(low, own):
                                sums[i] = sums[i] + wa * xa[i] + wb * xb[i] + wc * xc[i] + wd * xd[i]
                            for i in range(others, high):
                                sums[i] = sums[i] + wa * xa[i] + wb * xb[i] + wc * xc[i] + wd * xd[i]
                        for j in range(fours, n_on[s]):
                            wa, xa = on_weights[s, j], later[on_nexts[s, j], r, f]
                            for i in range(low, own):
                                sums[i] += wa * xa[i]
                            for i in range(others, high):
                                sums[i] += wa * xa[i]


def edge_mass(walk: Walk, mass: Array, starts: Integers) -> Array:
    """Return the sum of the weights of the responses that take each token in each state, by start and reward, (M, R, S, V).

    A response that takes a token in a state twice is counted twice.
    """
    horizon, here = len(mass), visits(walk, starts)
    counts = np.zeros((starts.size, walk.law.shape[1], *walk.weights.shape))
    for t in range(horizon):
        # E[1(token t is v in s) share 1(Z = z)] = P(s_t = s) k(s, v) times what is still to come after it.
        ended = (walk.ends != 0) | (t == horizon - 1)
        to_come = np.where(ended[..., None], walk.shares[t + 1] * walk.law[walk.nexts], mass[min(t + 1, horizon - 1), walk.nexts])
        counts += (here[:, t, :, None] * walk.weights)[:, None] * np.moveaxis(to_come, -1, 0)
    return counts


def visits(walk: Walk, starts: Integers) -> Array:
    """Return the sums of the weights of the ways from each start to each state with t tokens drawn, shape (M, T, S)."""
    horizon, n_states = walk.shares.size - 1, len(walk.weights)
    here = np.zeros((starts.size, horizon, n_states))
    here[np.arange(starts.size), 0, starts] = 1.0
    goes_on = np.where(walk.ends != 0, 0.0, walk.weights)
    for t in range(1, horizon):
        np.add.at(here[:, t].T, walk.nexts, np.moveaxis(here[:, t - 1, :, None] * goes_on, 0, -1))
    return here


class PairCounts(NamedTuple):
    """Sums over responses, weighted by their probabilities, by start and reward.

    Attributes
    ----------
    mass : ndarray, shape (M, R)
        P(Z = z).
    edges : ndarray, shape (M, R, S, V)
        How often a token is taken in a state.
    pairs : ndarray, shape (M, R, S, V, V)
        How often a token is taken in a state and, later, another one in the same state.
    """

    mass: Array
    edges: Array
    pairs: Array

    def products(self, gains: Array, grams: Array) -> Array:
        """Return E[<sum_t gain_f w_t, sum_t gain_g w_t> 1(Z = z)], shape (M, R, F, F).

        gains are (F, S, V), and grams (S, V, V) the inner products of the scores of a state's tokens.
        """
        # sum_t <w_t, w_t> + sum_{t<u} (<w_t, w_u> + <w_u, w_t>): scores in different states are orthogonal where logits are free.
        alone = np.einsum("mrsv,fsv,gsv,svv->mrfg", self.edges, gains, gains, grams, optimize=True)
        crossed = np.einsum("mrsvw,svw,fsv,gsw->mrfg", self.pairs, grams, gains, gains, optimize=True)
        return alone + crossed + crossed.swapaxes(2, 3)


def pair_counts(walk: Walk, starts: Integers) -> PairCounts:
    """Count tokens and pairs of tokens in one state, of the responses from each start."""
    mass, here = chances_to_come(walk), visits(walk, starts)
    n_states, n_tokens = walk.weights.shape
    pairs = np.zeros((starts.size, walk.law.shape[1], n_states, n_tokens, n_tokens))
    count_pairs(walk, spans_of(walk, np.arange(n_states) * n_tokens, n_tokens), mass, here, pairs)
    return PairCounts(mass[0, starts], edge_mass(walk, mass, starts), pairs)


@function_value(numba.void(WALK, READONLY_I2, READONLY_F3, READONLY_F3, F5))
def count_pairs(walk, spans, mass, here, pairs):
    """Add up the pairs, see `PairCounts`, token by token from the last one: carried are the tokens still to come, by edge."""
    nexts, ends, weights, shares, law = walk
    horizon, n_states, n_rewards = mass.shape
    n_tokens = weights.shape[1]
    to_come, later = np.zeros((n_states, n_rewards, weights.size)), np.zeros((n_states, n_rewards, weights.size))
    for back in range(horizon):
        t = horizon - 1 - back
        if back > 0:
            for m in range(here.shape[0]):
                for s in range(n_states):
                    for v in range(n_tokens):
                        taken = here[m, t, s] * weights[s, v]
                        if taken == 0.0 or ends[s, v] != 0:
                            continue
                        for r in range(n_rewards):
                            for w in range(n_tokens):
                                pairs[m, r, s, v, w] += taken * to_come[nexts[s, v], r, s * n_tokens + w]
        later, to_come = to_come, later
        for s in range(n_states):
            to_come[s] = 0.0
            for v in range(n_tokens):
                weight, after = weights[s, v], nexts[s, v]
                if weight == 0.0:
                    continue
                ended = back == 0 or ends[s, v] != 0
                for r in range(n_rewards):
                    if ended:
                        to_come[s, r, s * n_tokens + v] += weight * shares[t + 1] * law[after, r]
                        continue
                    to_come[s, r, s * n_tokens + v] += weight * mass[t + 1, after, r]
                    sums, others = to_come[s, r], later[after, r]
                    for i in range(spans[s, 0], spans[s, 1]):
                        sums[i] += weight * others[i]
