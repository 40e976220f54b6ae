"""Sums over all responses of a chain, by recursion over its tokens: a thousand tokens cost a thousand times what one costs.

A response is a walk s_0, v_0, s_1, ... through the states.  Each token has a weight k(s, v), its probability say, and adds F
vectors x_f(s, v).  A response of length L that ends in state s counts for `shares[L] * law[s, r]` towards reward value r.

Let X_f be the sum of the vectors that are still to come.  Three sums over all continuations are carried back from the end, from
state to state.  They are the sums of the weight, of the weight times X_f, and of the weight times <X_f, X_g>
(docs/derivations.md, section 15).
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from grpo_theory.validation import Array, Integers, check_room


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

    @property
    def goes_on(self) -> Array:
        """The weights of the tokens after which a response goes on, unless it has reached the horizon, (S, V); 0 of others."""
        return np.where(self.ends != 0, 0.0, self.weights)

    def after(self, t: int, mass: Array) -> Array:
        """Return what a response counts for after each token as its t-th, (S, V, R), for the sums from all tokens on."""
        now = (self.shares[t] * self.law)[self.nexts]
        return now if t == len(mass) else np.where((self.ends != 0)[..., None], now, mass[t][self.nexts])


class SuffixSums(NamedTuple):
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


def carry(walk: Walk, vectors: Array, offsets: Integers, width: int) -> SuffixSums:
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
    mass = chances_to_come(walk)
    with np.errstate(over="ignore", invalid="ignore"):
        for _, mean, product in suffix_sums_back(walk, mass, vectors, offsets, width):  # noqa: B007  # the last ones are kept
            pass
    return SuffixSums(mass, np.moveaxis(mean, 1, 3), product)


def suffix_sums_back(
    walk: Walk, mass: Array, vectors: Array, offsets: Integers, width: int
) -> Iterator[tuple[int, Array, Array]]:
    """Yield each token's number, from the last on, with the means (S, W, R, F) and products (S, R, F, F) from there on."""
    (n_states, n_rewards), (n_features, _, n_tokens, size) = walk.law.shape, vectors.shape
    goes_on, states = walk.goes_on, np.arange(n_states)[:, None]
    moves = np.zeros((n_states, n_states))  # the weights of the tokens that lead from one state to another
    np.add.at(moves, (states, walk.nexts), goes_on)
    own = offsets[:, None] + np.arange(size)  # the entries of a state's vectors, (S, w)
    inner = np.einsum("fsvi,gsvi->svfg", vectors, vectors)
    ahead = np.moveaxis(goes_on[..., None] * vectors, 0, 1).reshape(n_states, n_features, -1)
    mean = np.zeros((n_states, width, n_rewards, n_features))
    product = np.zeros((n_states, n_rewards, n_features, n_features))
    for t in range(len(mass), 0, -1):
        # Of the vector x of a token and the sum X of later ones: E[x + X] and, of each pair f and g,
        # <x_f + X_f, x_g + X_g> = <x_f, x_g> + <x_f, X_g> + <x_g, X_f> + <X_f, X_g>.
        weighted = walk.weights[..., None] * walk.after(t, mass)
        later = mean[walk.nexts[:, :, None], own[:, None, :]].reshape(n_states, n_tokens * size, -1)
        crossed = (ahead @ later).reshape(n_states, n_features, n_rewards, n_features).swapaxes(1, 2)
        alone = np.einsum("svr,svfg->srfg", weighted, inner)
        # Q_t = sum_v k [<x_f, x_g> H' + <x_f, M_g'> + <x_g, M_f'> + Q'], H', M' and Q' after the token (section 15.1).
        product = alone + crossed + crossed.swapaxes(2, 3) + np.tensordot(moves, product, 1)
        # M_t = sum_v k [x_f H' + M_f'] (docs/derivations.md, section 15.1).
        mean = np.tensordot(moves, mean, 1)
        mean[states, own] += np.einsum("svr,fsvi->sirf", weighted, vectors)
        yield t, mean, product


def chances_to_come(walk: Walk) -> Array:
    """Return the sums of the weights alone, shape (T, S, R): see `SuffixSums.mass`."""
    mass = np.zeros((walk.shares.size - 1, *walk.law.shape))
    with np.errstate(over="ignore", invalid="ignore"):
        for t in range(len(mass), 0, -1):
            # H_{t-1}(s, z) = sum_v k(s, v) H', with H' = a(t) P(Z = z | s') where the response ends with v, else H_t(s', z)
            # (docs/derivations.md, section 15.1).
            mass[t - 1] = (walk.weights[..., None] * walk.after(t, mass)).sum(axis=1)
    return mass


def edge_mass(walk: Walk, mass: Array, starts: Integers) -> Array:
    """Return the sum of the weights of the responses that take each token in each state, by start and reward, (M, R, S, V).

    A response that takes a token in a state twice is counted twice.
    """
    horizon, here = len(mass), visits(walk, starts)
    counts = np.zeros((starts.size, walk.law.shape[1], *walk.weights.shape))
    for t in range(horizon):
        # E[1(token t is v in s) share 1(Z = z)] = P(s_t = s) k(s, v) times what is still to come after it.
        to_come = walk.after(t + 1, mass)
        counts += (here[:, t, :, None] * walk.weights)[:, None] * np.moveaxis(to_come, -1, 0)
    return counts


def visits(walk: Walk, starts: Integers) -> Array:
    """Return the sums of the weights of the ways from each start to each state with t tokens drawn, shape (M, T, S)."""
    horizon, n_states = walk.shares.size - 1, len(walk.weights)
    here = np.zeros((starts.size, horizon, n_states))
    here[np.arange(starts.size), 0, starts] = 1.0
    goes_on = walk.goes_on
    for t in range(1, horizon):
        # A_t(s') = sum of A_{t-1}(s) k(s, v) over (s, v) that lead to s' and end no response (docs/derivations.md, section 15.1).
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
    own, later = np.arange(n_states * n_tokens).reshape(n_states, n_tokens), np.zeros((n_states, n_tokens, n_tokens, 1))
    pairs = np.zeros((starts.size, walk.law.shape[1], n_states, n_tokens, n_tokens))
    # SuffixSums are the tokens still to come, by edge: each of a token's own state makes a pair with it.
    edges = np.broadcast_to(np.eye(n_tokens), (1, n_states, n_tokens, n_tokens))
    for t, mean, _ in suffix_sums_back(walk, mass, edges, own[:, 0], own.size):
        # sum_t A_t(s) k(s, v) M', with M' how often w is taken in s later (docs/derivations.md, section 15.1, Matrices).
        pairs += np.einsum("msv,svwr->mrsvw", here[:, t - 1, :, None] * walk.goes_on, later)
        later = mean[walk.nexts[:, :, None], own[:, None, :], :, 0]
    return PairCounts(mass[0, starts], edge_mass(walk, mass, starts), pairs)
