"""How often a chain's responses take two tokens in one state: one recursion that serves all weights of tokens by themselves.

With free logits the scores of tokens in different states are orthogonal.  The second moment of a sum of scores times gains is
then a sum over pairs of tokens in one state.  How often a pair is drawn depends neither on the gains nor on the policy at which
scores are taken (docs/derivations.md, section 15).
"""

from typing import NamedTuple

import numba
import numpy as np

from grpo_theory.arrays import Array, Integers
from grpo_theory.compiler import F5, READONLY_F3, READONLY_I2, function_value
from grpo_theory.problem.recursion import WALK, Walk, chances_to_come, edge_mass, spans_of, visits


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
