"""What ratio and clip make of the responses that a group has drawn: weights of the other responses are never read."""

import numpy as np

from grpo_theory.compiler import allocating_stage


@allocating_stage
def fill_drawn_gains(functions, rule, log_ratios, counts, n, gains):
    """Fill gains (K, 2, T, N) where one of n runs has drawn a response, from the logs of pi/pi_0 on the edges (D, N).

    counts (O, N) are the numbers of responses with each outcome.  The gains of others stay what they were.  Drawn responses of
    one length lie side by side: one call of the ratio and two of the clip serve them all.
    """
    edges, lengths = rule.paths.edges, rule.paths.lengths
    n_responses, horizon = edges.shape
    n_values, n_drawn, drawn = counts.shape[0] // n_responses, 0, np.empty(n, dtype=np.int64)
    responses, lanes = np.empty(n_responses * n, dtype=np.int64), np.empty(n_responses * n, dtype=np.int64)
    for k in range(n_responses):
        drawn[:] = 0
        for o in range(k * n_values, (k + 1) * n_values):
            for i in range(n):
                drawn[i] += counts[o, i]
        for i in range(n):
            if drawn[i] > 0:
                responses[n_drawn], lanes[n_drawn] = k, i
                n_drawn += 1
    along_all, ratios_all, weights_all = np.empty(horizon * n_drawn), np.empty(horizon * n_drawn), np.empty(horizon * n_drawn)
    first = 0
    while first < n_drawn:
        length, last = lengths[responses[first]], first + 1
        while last < n_drawn and lengths[responses[last]] == length:
            last += 1
        shape = length, last - first
        along, ratios = along_all[: shape[0] * shape[1]].reshape(shape), ratios_all[: shape[0] * shape[1]].reshape(shape)
        weights = weights_all[: shape[0] * shape[1]].reshape(shape)
        for j in range(shape[1]):
            k, i = responses[first + j], lanes[first + j]
            for t in range(length):
                along[t, j] = log_ratios[edges[k, t], i]
        functions.fill_ratios(along, length, ratios)
        for sign in range(2):
            functions.fill_weights(ratios, length, sign == 0, rule.widths, weights)
            for j in range(shape[1]):
                k, i = responses[first + j], lanes[first + j]
                for t in range(length):
                    gains[k, sign, t, i] = weights[t, j] * rule.shares[k]
        first = last
