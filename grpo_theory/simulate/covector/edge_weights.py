"""Stage 3 of a training step, covectors: sums of advantages and the weights of tokens to the covector of a group's estimate.

The covector of a token is e_edge - (the probabilities at its prefix), so weights are first added up on edges, and then centred
at each prefix.  Arrays are (B, rows, N); a stage is for one group of the `WIDTH` runs from lane i on.
"""

import numba

from grpo_theory.compiler.compilation import F1, F3, I1, stage
from grpo_theory.compiler.first_class import function_value
from grpo_theory.compiler.lanes import WIDTH, as_real, load, reals, store, where
from grpo_theory.simulate.advantage.sums import T3

FILL_REWARDS = numba.void(F1, F3, numba.int64, numba.int64, F3)
POOL_COVECTORS = numba.void(T3, numba.int64, numba.int64, I1, numba.int64, numba.int64, F3)


@stage
def add_weights(sums, counts, here, i, edges, lengths, gains, drifts, covectors, b):
    """Add up the weights of the tokens of the responses of group `here` on the edges that they take, in covectors (B, D, N).

    sums (B, S, O, N) are those of `grpo_theory.simulate.advantage.sums`, counts (B, O, N) the numbers of responses with each
    outcome.  A token weighs A gain + drift: gains (K, 2, T, N or 1) are for positive and for other advantages, drifts
    (K, T, N) may be empty.  What is not there weighs nothing, though its gain or drift be infinite.
    """
    n_values = counts.shape[1] // edges.shape[0]
    for d in range(covectors.shape[1]):
        store(reals(0.0), covectors, b, d, i)
    for k in range(edges.shape[0]):
        for t in range(lengths[k]):
            edge = edges[k, t]
            weight = load(covectors, b, edge, i)
            for o in range(k * n_values, (k + 1) * n_values):
                for part in range(sums.shape[1]):
                    x = load(sums, here, part, o, i)
                    if gains.shape[3] > 1:
                        gain = where(x > 0.0, load(gains, k, 0, t, i), load(gains, k, 1, t, i))
                        weight = weight + x * where(x == 0.0, 0.0, gain)
                    else:
                        weight = weight + x * gains[k, 0, t, 0]
                if drifts.shape[0] > 0:
                    count = as_real(load(counts, here, o, i))
                    weight = weight + count * where(count == 0.0, 0.0, load(drifts, k, t, i))
            store(weight, covectors, b, edge, i)


@function_value(POOL_COVECTORS)
def pool_covectors(counts, here, n, lengths, pool, group_size, covectors):
    """Scale the covectors (B/M, D, N) of groups that pool their tokens so that each token of the pool weighs the same.

    Counts (B, O, N) are those of the groups from `here` on, of n runs.  So many groups at a time are a pool.  The factor is the
    number of the pool's responses over that of its tokens.
    """
    n_values = counts.shape[1] // lengths.shape[0]
    for i in range(0, n, WIDTH):
        for first in range(0, covectors.shape[0], pool):
            tokens = reals(0.0)
            for b in range(first, first + pool):
                for o in range(counts.shape[1]):
                    tokens = tokens + as_real(load(counts, here + b, o, i) * lengths[o // n_values])
            factor = (group_size * pool) / tokens
            for b in range(first, first + pool):
                for d in range(covectors.shape[1]):
                    store(load(covectors, b, d, i) * factor, covectors, b, d, i)


@stage
def centre_covector(covectors, b, tokens, here, i, vocabulary_size):
    """Turn weights of edges into a covector: less, at each prefix, their sum times the probabilities (B, D, N) there."""
    for start in range(0, covectors.shape[1], vocabulary_size):
        total = reals(0.0)
        for d in range(start, start + vocabulary_size):
            total = total + load(covectors, b, d, i)
        for d in range(start, start + vocabulary_size):
            store(load(covectors, b, d, i) - total * load(tokens, here, d, i), covectors, b, d, i)


@function_value(FILL_REWARDS)
def fill_rewards(values, penalties, b, n, rewards):
    """Fill the rewards of the outcomes (B, O, N) of n runs, less the penalties (B, K, N) of the responses."""
    n_values = values.shape[0]
    for i in range(0, n, WIDTH):
        for k in range(penalties.shape[1]):
            penalty = load(penalties, b, k, i)
            for value in range(n_values):
                store(values[value] - penalty, rewards, b, k * n_values + value, i)
