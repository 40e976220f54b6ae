"""Stage 0 of a training step, the policy: logits to probabilities, and to all that draws and kernels need of them.

Arrays are (D, N), (K, N) or (O, N): edges, responses or outcomes of the prompts of N groups side by side.
"""

import numpy as np

from grpo_theory.compilation import stage


@stage
def fill_tokens(logits, vocabulary_size, tokens, log_tokens):
    """Fill the probabilities of tokens given their prefixes (D, N), and their logs if there is room for them."""
    n = logits.shape[1]
    highest = np.empty(n)
    totals = np.empty(n)
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
                tokens[d, i] = np.exp(logits[d, i] - highest[i])
        for d in range(start, stop):
            for i in range(n):
                totals[i] += tokens[d, i]
        for d in range(start, stop):
            for i in range(n):
                tokens[d, i] /= totals[i]
        if log_tokens.shape[0] > 0:
            for i in range(n):
                highest[i] += np.log(totals[i])
            for d in range(start, stop):
                for i in range(n):
                    log_tokens[d, i] = logits[d, i] - highest[i]


@stage
def fill_responses(tokens, edges, lengths, pi):
    """Fill the probabilities of the responses (K, N), products along their paths; with one token they are the tokens' own."""
    if edges.shape[1] == 1:
        return
    for k in range(pi.shape[0]):
        for i in range(pi.shape[1]):
            pi[k, i] = tokens[edges[k, 0], i]
        for t in range(1, lengths[k]):
            for i in range(pi.shape[1]):
                pi[k, i] *= tokens[edges[k, t], i]


@stage
def fill_thresholds(pi, laws, prompts, thresholds):
    """Fill the distribution function of the outcomes (O - 1, N) from that of rewards (M, K, L) given prompt and response."""
    n_values = laws.shape[2]
    below = np.zeros(pi.shape[1])
    for o in range(thresholds.shape[0]):
        k, value = o // n_values, o % n_values
        for i in range(pi.shape[1]):
            below[i] += pi[k, i] * laws[np.uintp(prompts[i]), k, value]
            thresholds[o, i] = below[i]


@stage
def fill_log_ratios(log_tokens, log_reference, prompts, log_ratios):
    """Fill the logs of pi/reference of the tokens (D, N); log_reference (D, M) is of all prompts."""
    for d in range(log_ratios.shape[0]):
        for i in range(log_ratios.shape[1]):
            log_ratios[d, i] = log_tokens[d, i] - log_reference[d, np.uintp(prompts[i])]


@stage
def fill_penalties(terms, edges, lengths, strength, penalties):
    """Fill the penalties of the responses (K, N), sums of terms (D, N) along their paths."""
    for k in range(penalties.shape[0]):
        for i in range(penalties.shape[1]):
            penalties[k, i] = 0.0
        for t in range(lengths[k]):
            for i in range(penalties.shape[1]):
                penalties[k, i] += strength * terms[edges[k, t], i]


@stage
def fill_rewards(values, penalties, rewards):
    """Fill the rewards of the outcomes (O, N), less the penalties."""
    n_values = values.shape[0]
    for o in range(rewards.shape[0]):
        k, value = o // n_values, o % n_values
        for i in range(rewards.shape[1]):
            rewards[o, i] = values[value] - penalties[k, i]


@stage
def fill_norms(tokens, gram, edges, lengths, vocabulary_size, prompts, norms):
    """Fill the squared score norms of the responses (K, N), if there is room for them; gram is (M, D, D)."""
    if norms.shape[0] == 0:
        return
    n_logits, n = tokens.shape
    n_prefixes = n_logits // vocabulary_size
    # With p the probabilities at a prefix, a token's covector is e - p: inner products of e with p, and of p with p.
    mixed = np.empty((n_logits, n_prefixes))
    expected = np.empty((n_prefixes, n_prefixes))
    for i in range(n):
        m = np.uintp(prompts[i])
        for d in range(n_logits):
            for q in range(n_prefixes):
                mixed[d, q] = 0.0
                for e in range(q * vocabulary_size, (q + 1) * vocabulary_size):
                    mixed[d, q] += gram[m, d, e] * tokens[e, i]
        for q in range(n_prefixes):
            for r in range(n_prefixes):
                expected[q, r] = 0.0
                for e in range(q * vocabulary_size, (q + 1) * vocabulary_size):
                    expected[q, r] += tokens[e, i] * mixed[e, r]
        for k in range(norms.shape[0]):
            total = 0.0
            for t in range(lengths[k]):
                for u in range(lengths[k]):
                    d, e = edges[k, t], edges[k, u]
                    q, r = d // vocabulary_size, e // vocabulary_size
                    total += gram[m, d, e] - mixed[d, r] - mixed[e, q] + expected[q, r]
            norms[k, i] = max(total, 0.0)


@stage
def fill_fields(pi, penalties, norms, mean_rewards, mean_squares, prompts, fields):
    """Fill values, standard deviations and optimal baselines of the prompts (3, N), if there is room for them.

    mean_rewards and mean_squares (K, M) are those of the reward before the penalty.
    """
    for i in range(pi.shape[1] if fields.shape[0] > 0 else 0):
        m = np.uintp(prompts[i])
        value = 0.0
        for k in range(pi.shape[0]):
            value += pi[k, i] * (mean_rewards[k, m] - penalties[k, i])
        variance = 0.0
        power = 0.0
        weighted = 0.0
        for k in range(pi.shape[0]):
            mean = mean_rewards[k, m] - penalties[k, i]
            spread = mean_squares[k, m] - mean_rewards[k, m] ** 2
            variance += pi[k, i] * (spread + (mean - value) ** 2)
            if norms.shape[0] > 0:
                power += pi[k, i] * norms[k, i]
                weighted += pi[k, i] * norms[k, i] * mean
        fields[0, i] = value
        fields[1, i] = np.sqrt(max(variance, 0.0))
        fields[2, i] = weighted / power if power > 0.0 else value


@stage
def fill_drifts(slopes, edges, lengths, strength, shares, drifts):
    """Fill what a KL term in the loss adds to the weights of tokens (K, T, N), from its slopes on the edges (D, N)."""
    for k in range(edges.shape[0]):
        for t in range(lengths[k]):
            for i in range(slopes.shape[1]):
                drifts[k, t, i] = -strength * shares[k] * slopes[edges[k, t], i]


@stage
def fill_drift(log_now, log_then, first, log_ratios):
    """Fill the logs of pi/pi_0 (D, n) from those of pi (D, n) and, from the lane `first` on, of pi_0 (D, N)."""
    for d in range(log_ratios.shape[0]):
        for i in range(log_ratios.shape[1]):
            log_ratios[d, i] = log_now[d, i] - log_then[d, first + i]
