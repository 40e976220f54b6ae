"""Stage 0 of a training step, the policy: logits to probabilities, and to all that draws and kernels need of them.

Arrays are (B, D, N) or (B, K, N), edges or responses of the prompts of B groups of each run; a stage is for one group of the
`WIDTH` runs from lane i on.
"""

from grpo_theory.compiler.compilation import stage
from grpo_theory.compiler.lanes import load, reals, store, where
from grpo_theory.simulate.draw.elementary import exponential, logarithm


@stage
def fill_tokens(logits, b, i, vocabulary_size, tokens, log_tokens):
    """Fill the probabilities of tokens given their prefixes, and their logs if there is room for them."""
    for start in range(0, logits.shape[1], vocabulary_size):
        stop = start + vocabulary_size
        highest = load(logits, b, start, i)
        for d in range(start + 1, stop):
            x = load(logits, b, d, i)
            highest = where(x > highest, x, highest)
        total = reals(0.0)
        for d in range(start, stop):
            x = exponential(load(logits, b, d, i) - highest)
            store(x, tokens, b, d, i)
            total = total + x
        if log_tokens.shape[1] > 0:
            log_total = highest + logarithm(total)
            for d in range(start, stop):
                store(load(logits, b, d, i) - log_total, log_tokens, b, d, i)
        share = 1.0 / total
        for d in range(start, stop):
            store(load(tokens, b, d, i) * share, tokens, b, d, i)


@stage
def fill_responses(tokens, b, i, edges, lengths, pi):
    """Fill the probabilities of the responses, products along their paths; with one token they are the tokens' own."""
    if edges.shape[1] == 1:
        return
    for k in range(pi.shape[1]):
        x = load(tokens, b, edges[k, 0], i)
        for t in range(1, lengths[k]):
            x = x * load(tokens, b, edges[k, t], i)
        store(x, pi, b, k, i)
