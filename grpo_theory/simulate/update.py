"""Stage 3 of a training step, covectors: sums of advantages and the weights of tokens to the covector of a group's estimate.

The covector of a token is e_edge - (the probabilities at its prefix), so weights are first added up on edges, and then centred
at each prefix.
"""

import numpy as np

from grpo_theory.compilation import stage


@stage
def add_weights(sums, counts, edges, lengths, gains, drifts, n, covector):
    """Add up the weights of the tokens of a group's responses on the edges that they take, (D, N).

    sums (S, O, N) are those of `grpo_theory.simulate.sums`, counts (O, N) the numbers of responses with each outcome.  A token
    weighs A gain + drift: gains (K, 2, T, N or 1) are for positive and for other advantages, drifts (K, T, N) may be empty.
    What is not there weighs nothing, though its gain or drift be infinite.
    """
    n_values = counts.shape[0] // edges.shape[0]
    for d in range(covector.shape[0]):
        for i in range(n):
            covector[d, i] = 0.0
    for k in range(edges.shape[0]):
        for t in range(lengths[k]):
            edge = edges[k, t]
            for o in range(k * n_values, (k + 1) * n_values):
                for part in range(sums.shape[0]):
                    if gains.shape[3] > 1:
                        add_by_sign(sums[part, o], gains[k, 0, t], gains[k, 1, t], n, covector[edge])
                    else:
                        gain = gains[k, 0, t, 0]
                        for i in range(n):
                            covector[edge, i] += sums[part, o, i] * gain
                if drifts.shape[0] > 0:
                    for i in range(n):
                        count = counts[o, i]
                        covector[edge, i] += count * drifts[k, t, i] if count != 0 else 0.0


@stage
def add_by_sign(sums, positive, other, n, weights):
    """Add to weights (64,) the sums of advantages (64,), times one gain (64,) where they are positive and another where not."""
    for i in range(n):
        x = sums[i]
        weights[i] += x * (positive[i] if x > 0.0 else other[i]) if x != 0.0 else 0.0


@stage
def count_tokens(counts, lengths, n, tokens):
    """Add the number of tokens of a group's responses to `tokens` (64,)."""
    n_values = counts.shape[0] // lengths.shape[0]
    for o in range(counts.shape[0]):
        for i in range(n):
            tokens[i] += counts[o, i] * lengths[o // n_values]


@stage
def pool_covectors(counts, lengths, pool, group_size, n, covectors, tokens):
    """Scale the covectors (B, D, N) of groups that pool their tokens so that each token of the pool weighs the same.

    Counts are (B, O, N).  So many groups at a time are a pool, or there is none if `pool` is 0.  The factor is the number of
    the pool's responses over that of its tokens.
    """
    if pool == 0:
        return
    for first in range(0, covectors.shape[0], pool):
        for i in range(n):
            tokens[i] = 0.0
        for b in range(first, first + pool):
            count_tokens(counts[b], lengths, n, tokens)
        for i in range(n):
            tokens[i] = group_size * pool / tokens[i]
        for b in range(first, first + pool):
            for d in range(covectors.shape[1]):
                for i in range(n):
                    covectors[b, d, i] *= tokens[i]


@stage
def centre_covector(covector, token_probabilities, vocabulary_size, n, totals):
    """Turn weights of edges (D, N) into a covector: less, at each prefix, their sum times the probabilities (D, N) there."""
    for start in range(0, covector.shape[0], vocabulary_size):
        stop = start + vocabulary_size
        for i in range(n):
            totals[i] = 0.0
        for d in range(start, stop):
            for i in range(n):
                totals[i] += covector[d, i]
        for d in range(start, stop):
            for i in range(n):
                covector[d, i] -= totals[i] * token_probabilities[d, i]


@stage
def fill_rewards(values, penalties, n, rewards):
    """Fill the rewards of the outcomes (O, N), less the penalties (K, N) of the responses."""
    n_values = values.shape[0]
    for o in range(rewards.shape[0]):
        k, value = o // n_values, values[o % n_values]
        for i in range(n):
            rewards[o, i] = value - penalties[k, i]


@stage
def draw_prompts(words, first, threshold, choices, n, prompts):
    """Draw prompts (64,) from 64-bit words, those from the lane `first` on, by the alias table of their law."""
    n_prompts = threshold.shape[1]
    scale = n_prompts / 9007199254740992.0
    for i in range(n):
        x = (words[np.uintp(first + i)] >> np.uint64(11)) * scale
        j = np.uintp(x)
        prompts[i] = choices[0, np.uintp(2) * j + np.uintp(x - j >= threshold[0, j])]
