"""Stage 0 of a training step, the policy: logits to probabilities, and to all that draws and kernels need of them.

Arrays are (D, N), (K, N) or (O, N): edges, responses or outcomes of the prompts of one group of each of n runs, of which
the first n are wanted.
"""

from grpo_theory.compilation import stage
from grpo_theory.simulate.elementary import exponential, logarithm


@stage
def fill_tokens(logits, vocabulary_size, n, tokens, log_tokens, scratch):
    """Fill the probabilities of tokens given their prefixes (D, N), and their logs if there is room for them."""
    highest, totals = scratch[0], scratch[1]
    for start in range(0, logits.shape[0], vocabulary_size):
        stop = start + vocabulary_size
        for i in range(n):
            highest[i] = logits[start, i]
            totals[i] = 0.0
        for d in range(start + 1, stop):
            for i in range(n):
                highest[i] = max(highest[i], logits[d, i])
        for d in range(start, stop):
            for i in range(n):
                x = exponential(logits[d, i] - highest[i])
                tokens[d, i] = x
                totals[i] += x
        if log_tokens.shape[0] > 0:
            for i in range(n):
                highest[i] += logarithm(totals[i])
            for d in range(start, stop):
                for i in range(n):
                    log_tokens[d, i] = logits[d, i] - highest[i]
        for i in range(n):
            totals[i] = 1.0 / totals[i]
        for d in range(start, stop):
            for i in range(n):
                tokens[d, i] *= totals[i]


@stage
def fill_responses(tokens, edges, lengths, n, pi):
    """Fill the probabilities of the responses (K, N), products along their paths; with one token they are the tokens' own."""
    if edges.shape[1] == 1:
        return
    for k in range(pi.shape[0]):
        for i in range(n):
            pi[k, i] = tokens[edges[k, 0], i]
        for t in range(1, lengths[k]):
            for i in range(n):
                pi[k, i] *= tokens[edges[k, t], i]
