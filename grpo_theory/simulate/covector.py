"""Stage 3, covectors: advantages and the weights of tokens to the covector of each group's estimate.

The covector of a token is e_edge - (the probabilities at its prefix), so weights are first added up on edges, and then centred
at each prefix.
"""

import numpy as np

from grpo_theory.compilation import stage


@stage
def add_tokens(outcomes, first, places, advantages, responses, edges, lengths, gains, drifts, rows, weights):
    """Add up the weights of the tokens of each group on the edges that they take, (D, n), for n lanes from the first.

    A token weighs A gain + drift: gains (K, 2, T, rows) are for positive and for other advantages, drifts (K, T, rows) may be
    empty, and rows (n,) says whose.
    """
    weights[:, :] = 0.0
    for i in range(weights.shape[1]):
        lane, row = np.uintp(first + i), np.uintp(rows[i])
        place = np.uintp(places[lane])
        for g in range(outcomes.shape[0]):
            k = np.uintp(responses[np.uintp(outcomes[g, lane])])
            advantage = advantages[place, g]
            sign = np.uintp(0) if advantage > 0.0 else np.uintp(1)
            for t in range(lengths[k]):
                weight = advantage * gains[k, sign, np.uintp(t), row]
                if drifts.shape[0] > 0:
                    weight += drifts[k, np.uintp(t), row]
                weights[np.uintp(edges[k, np.uintp(t)]), i] += weight


@stage
def pool_tokens(outcomes, first, pools, responses, lengths, weights):
    """Scale the weights (D, n) of lanes that pool their tokens so that each token of the pool weighs the same.

    Lane i belongs to pool i modulo the number of pools: one for each run if a batch pools its tokens, one for each lane if a
    group does; 0 for no pooling.  The factor is the number of the pool's responses over that of its tokens.
    """
    if pools == 0:
        return
    group_size, n = outcomes.shape[0], weights.shape[1]
    tokens = np.zeros(pools)
    for i in range(n):
        for g in range(group_size):
            tokens[i % pools] += lengths[responses[outcomes[g, first + i]]]
    for i in range(n):
        factor = group_size * (n // pools) / tokens[i % pools]
        for d in range(weights.shape[0]):
            weights[d, i] *= factor


@stage
def centre(weights, token_probabilities, vocabulary_size):
    """Turn weights of edges (D, n) into covectors: less, at each prefix, their sum times the probabilities (D, n) there."""
    n = weights.shape[1]
    totals = np.empty(n)
    for start in range(0, weights.shape[0], vocabulary_size):
        for i in range(n):
            totals[i] = weights[start, i]
        for d in range(start + 1, start + vocabulary_size):
            for i in range(n):
                totals[i] += weights[d, i]
        for d in range(start, start + vocabulary_size):
            for i in range(n):
                weights[d, i] -= totals[i] * token_probabilities[d, i]
