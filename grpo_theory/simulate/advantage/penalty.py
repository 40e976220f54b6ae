"""Stage 0 of a training step, what only some estimators need: penalties in the reward, score norms, oracles' fields."""

import numba
import numpy as np

from grpo_theory.compiler.compilation import F2, F3, I1, I2, allocating_stage, stage
from grpo_theory.compiler.first_class import FirstClassType, function_value
from grpo_theory.compiler.lanes import WIDTH, load, reals, root, store, where
from grpo_theory.estimation import kl_term
from grpo_theory.simulate.advantage.sums import ROLLOUT
from grpo_theory.simulate.draw.prompt_tables import LOOKUP, at_places, read_rows
from grpo_theory.simulate.draw.setting import ROOM, WORLD

FILL_SEEN = numba.void(WORLD, numba.int64, numba.int64, ROLLOUT, ROOM)
TERMS = FirstClassType(kl_term.SIGNATURE)
PENALISE = numba.void(TERMS, F3, I2, numba.int64, numba.int64, LOOKUP, I2, I1, numba.float64, F2, F2, F2, F3)


@stage
def fill_log_ratios(log_tokens, b, i, log_reference, prompts, c, facts, log_ratios):
    """Fill the logs of pi/reference of tokens (D, N) from those of pi at b (B, D, N) and the reference (M, D) at prompts[c].

    Facts (at least D, WIDTH) are room.
    """
    own = load(prompts, c, i)
    read_rows(log_reference, own, facts)
    for d in range(log_ratios.shape[0]):
        store(load(log_tokens, b, d, i) - at_places(log_reference, d, own, facts), log_ratios, d, i)


@stage
def add_up_penalties(terms, i, edges, lengths, strength, penalties, b):
    """Fill the penalties of the responses (B, K, N), sums of terms (D, N) along their paths.

    An infinite one is made 0: it is of a response with a token whose probability is below exp(-709), which is never drawn.
    """
    for k in range(penalties.shape[1]):
        penalty = strength * load(terms, edges[k, 0], i)
        for t in range(1, lengths[k]):
            penalty = penalty + strength * load(terms, edges[k, t], i)
        store(where(penalty == np.inf, 0.0, penalty), penalties, b, k, i)


@function_value(PENALISE)
def penalise(fill_terms, log_tokens, prompts, b, n, log_reference, edges, lengths, strength, facts, log_ratios, terms, penalties):
    """Fill the penalties (B, K, N) of the responses to prompt number b of n runs; facts, log_ratios and terms are room."""
    for i in range(0, n, WIDTH):
        fill_log_ratios(log_tokens, b, i, log_reference, prompts, b, facts, log_ratios)
    fill_terms(log_ratios, terms)
    for i in range(0, n, WIDTH):
        add_up_penalties(terms, i, edges, lengths, strength, penalties, b)


@allocating_stage
def fill_norms(tokens, gram, edges, lengths, vocabulary_size, prompts, n, norms):
    """Fill the squared score norms of the responses (K, N); gram is (M, D, D)."""
    n_logits = tokens.shape[0]
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
def fill_fields(pi, penalties, norms, rewards, prompts, b, i, facts, fields):
    """Fill values, standard deviations and optimal baselines of the prompts (B, 3, N).

    rewards (M, 2 K) are the means of the reward before the penalty, and then of its square; norms (B, K, N), or
    (B, 0, N); facts (at least 2 K, WIDTH) are room.
    """
    own, value, n_responses = load(prompts, b, i), reals(0.0), pi.shape[1]
    read_rows(rewards, own, facts)
    for k in range(n_responses):
        value = value + load(pi, b, k, i) * (at_places(rewards, k, own, facts) - load(penalties, b, k, i))
    variance, power, weighted = reals(0.0), reals(0.0), reals(0.0)
    for k in range(n_responses):
        chance, reward = load(pi, b, k, i), at_places(rewards, k, own, facts)
        mean = reward - load(penalties, b, k, i)
        away, within = mean - value, at_places(rewards, n_responses + k, own, facts) - reward * reward
        variance = variance + chance * (within + away * away)
        if norms.shape[1] > 0:
            weight = chance * load(norms, b, k, i)
            power, weighted = power + weight, weighted + weight * mean
    store(value, fields, b, 0, i)
    store(root(where(variance < 0.0, 0.0, variance)), fields, b, 1, i)
    store(where(power > 0.0, weighted / where(power > 0.0, power, 1.0), value), fields, b, 2, i)


@function_value(FILL_SEEN)
def see_fields(world, b, n, rollout, room):
    """Fill the score norms and the oracles' fields of prompt number b of the rollout, as far as there is room for them."""
    prompts = rollout.prompts[b]
    if rollout.norms.shape[1] > 0:
        fill_norms(room.tokens[b], world.gram, world.edges, world.lengths, world.vocabulary_size, prompts, n, rollout.norms[b])
    if rollout.fields.shape[1] > 0:
        for i in range(0, n, WIDTH):
            fill_fields(room.pi, room.penalties, rollout.norms, world.rewards, rollout.prompts, b, i, room.facts, rollout.fields)
