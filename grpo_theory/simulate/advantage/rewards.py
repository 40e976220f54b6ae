"""What a kernel sees of a rollout of a policy that moves: rewards less penalties, score norms, and what oracles know."""

from typing import NamedTuple

import numba
import numpy as np

from grpo_theory.compiler import F1, F2, F3, I2, FirstClassType, allocating_stage, function_value, record_type, stage
from grpo_theory.compiler.lanes import WIDTH, load, reals, root, store, where
from grpo_theory.estimation.parts import KL_SIGNATURE
from grpo_theory.problem.logits import SURE
from grpo_theory.simulate.advantage.call_room import KERNEL_VIEW, KernelView
from grpo_theory.simulate.draw.policy_draw import POLICY_ROOM, TOKEN_PATHS, TokenPaths
from grpo_theory.simulate.draw.prompt_tables import LOOKUP, Lookup, at_places, read_rows
from grpo_theory.validation import Array


class RewardTables(NamedTuple):
    """The rewards of a problem.

    Attributes
    ----------
    values : ndarray, shape (L,)
        The reward values.
    means : Lookup
        E[Z | m, k], and then Var(Z | m, k), (M, 2 K), where the kernel reads what oracles know.
    log_reference : Lookup
        Log probabilities (M, D) of tokens given their prefixes under the penalty's reference, if there is one.
    strength : float
        Of the penalty, if it is in the reward; 0 if not.
    gram : ndarray, shape (M, D, D)
        Phi Phi' of the policy, or of shape (0, 0, 0) where the kernel reads no score norm; see `norm_table` for learned features.
    paths : TokenPaths
    """

    values: Array
    means: Lookup
    log_reference: Lookup
    strength: float
    gram: Array
    paths: TokenPaths


class RewardRoom(NamedTuple):
    """What is made of the rewards of a rollout.

    Attributes
    ----------
    seen : KernelView
        By group and lane.
    penalties : ndarray, shape (B, K, N)
    log_ratios, terms : ndarray, shape (D, N)
        Logs of pi/reference, and the penalty's terms.
    facts : ndarray, shape (rows, WIDTH)
        Room for a row of a table at each lane's prompt.
    rows : ndarray, shape (rows, N)
        What the policy's logits have left.
    """

    seen: KernelView
    penalties: Array
    log_ratios: Array
    terms: Array
    facts: Array
    rows: Array


REWARD_TABLES = record_type(RewardTables, F1, LOOKUP, LOOKUP, numba.float64, F3, TOKEN_PATHS)
REWARD_ROOM = record_type(RewardRoom, KERNEL_VIEW, F3, F2, F2, F2, F2)
TERMS = FirstClassType(KL_SIGNATURE)
PENALISE = numba.void(TERMS, REWARD_TABLES, F3, I2, numba.int64, REWARD_ROOM)
FILL_REWARDS = numba.void(F1, F3, numba.int64, F3)
FILL_SEEN = numba.void(REWARD_TABLES, POLICY_ROOM, I2, numba.int64, REWARD_ROOM)


@stage
def fill_log_ratios(log_tokens, i, log_reference, prompts, b, facts, log_ratios):
    """Fill the logs of pi/reference of tokens (D, N) from those of pi (D, N) and of the reference (M, D) at the prompts[b].

    Facts (at least D, WIDTH) are room.
    """
    own = load(prompts, b, i)
    read_rows(log_reference, own, facts)
    for d in range(log_ratios.shape[0]):
        store(load(log_tokens, d, i) - at_places(log_reference, d, own, facts), log_ratios, d, i)


@stage
def add_up_penalties(terms, i, paths, strength, penalties, b):
    """Fill the penalties of the responses (B, K, N), sums of terms (D, N) along their paths.

    An infinite one is made 0: it is of a response with a token whose probability is below exp(-709), which is never drawn.
    """
    edges = paths.edges
    for k in range(penalties.shape[1]):
        penalty = strength * load(terms, edges[k, 0], i)
        for t in range(1, paths.lengths[k]):
            penalty = penalty + strength * load(terms, edges[k, t], i)
        store(where(penalty == np.inf, 0.0, penalty), penalties, b, k, i)


@function_value(PENALISE)
def penalise(fill_terms, tables, log_tokens, prompts, n, room):
    """Fill the penalties of the responses to the prompts of n runs, from the logs of tokens' probabilities (B, D, N)."""
    for b in range(log_tokens.shape[0]):
        own = log_tokens[b]
        for i in range(0, n, WIDTH):
            fill_log_ratios(own, i, tables.log_reference, prompts, b, room.facts, room.log_ratios)
        fill_terms(room.log_ratios, room.terms)
        for i in range(0, n, WIDTH):
            add_up_penalties(room.terms, i, tables.paths, tables.strength, room.penalties, b)


@function_value(FILL_REWARDS)
def fill_rewards(values, penalties, n, rewards):
    """Fill the rewards of the outcomes (B, O, N) of n runs, less the penalties (B, K, N) of the responses."""
    n_values = values.shape[0]
    for b in range(penalties.shape[0]):
        for i in range(0, n, WIDTH):
            for k in range(penalties.shape[1]):
                penalty = load(penalties, b, k, i)
                for value in range(n_values):
                    store(values[value] - penalty, rewards, b, k * n_values + value, i)


@stage
def fill_sure_norms(tokens, gram, paths, i, covector, norms):
    """Fill the squared score norms (K, N) in one lane of the responses that take sure tokens; covector (D,) is room.

    Inner products of e and p cancel there, and the covector e - p need not: see `closed`.
    """
    size, edges = paths.vocabulary_size, paths.edges
    for k in range(norms.shape[0]):
        takes_sure = False
        for t in range(paths.lengths[k]):
            takes_sure = takes_sure or tokens[edges[k, t], i] > SURE
        if not takes_sure:
            continue
        for t in range(paths.lengths[k]):
            start, others = edges[k, t] // size * size, 0.0
            for d in range(start, start + size):
                if d != edges[k, t]:
                    covector[d] = -tokens[d, i]
                    others += tokens[d, i]
            covector[edges[k, t]] = others
        total = 0.0
        for t in range(paths.lengths[k]):
            for u in range(paths.lengths[k]):
                first, second = edges[k, t] // size * size, edges[k, u] // size * size
                for d in range(first, first + size):
                    for e in range(second, second + size):
                        total += covector[d] * gram[d, e] * covector[e]
        norms[k, i] = max(total, 0.0)


@allocating_stage
def fill_norms(tokens, gram, paths, prompts, n, norms):
    """Fill the squared score norms of the responses (K, N); gram is (M, D, D)."""
    n_logits, size = tokens.shape[0], paths.vocabulary_size
    n_prefixes, edges = n_logits // size, paths.edges
    # With p the probabilities at a prefix, a token's covector is e - p: inner products of e with p, and of p with p.
    mixed = np.empty((n_logits, n_prefixes))
    expected, covector = np.empty((n_prefixes, n_prefixes)), np.empty(n_logits)
    for i in range(n):
        m, most = np.uintp(prompts[i]), 0.0
        for d in range(n_logits):
            most = max(most, tokens[d, i])
            for q in range(n_prefixes):
                mixed[d, q] = 0.0
                for e in range(q * size, (q + 1) * size):
                    mixed[d, q] += gram[m, d, e] * tokens[e, i]
        for q in range(n_prefixes):
            for r in range(n_prefixes):
                expected[q, r] = 0.0
                for e in range(q * size, (q + 1) * size):
                    expected[q, r] += tokens[e, i] * mixed[e, r]
        for k in range(norms.shape[0]):
            total = 0.0
            for t in range(paths.lengths[k]):
                for u in range(paths.lengths[k]):
                    d, e = edges[k, t], edges[k, u]
                    q, r = d // size, e // size
                    total += gram[m, d, e] - mixed[d, r] - mixed[e, q] + expected[q, r]
            norms[k, i] = max(total, 0.0)
        if most > SURE:
            fill_sure_norms(tokens, gram[m], paths, i, covector, norms)


@stage
def fill_fields(pi, means, prompts, b, i, room):
    """Fill values, standard deviations and optimal baselines of the prompts, from the probabilities of responses (B, K, N).

    means (M, 2 K) are those of the reward before the penalty, and then its variances.
    """
    penalties, norms, facts = room.penalties, room.seen.norms, room.facts
    own, value, n_responses = load(prompts, b, i), reals(0.0), pi.shape[1]
    read_rows(means, own, facts)
    for k in range(n_responses):
        value = value + load(pi, b, k, i) * (at_places(means, k, own, facts) - load(penalties, b, k, i))
    variance, power, weighted = reals(0.0), reals(0.0), reals(0.0)
    for k in range(n_responses):
        chance, mean = load(pi, b, k, i), at_places(means, k, own, facts) - load(penalties, b, k, i)
        away, within = mean - value, at_places(means, n_responses + k, own, facts)
        variance = variance + chance * (within + away * away)
        if norms.shape[1] > 0:
            weight = chance * load(norms, b, k, i)
            power, weighted = power + weight, weighted + weight * mean
    store(value, room.seen.fields, b, 0, i)
    store(root(where(variance < 0.0, 0.0, variance)), room.seen.fields, b, 1, i)
    store(where(power > 0.0, weighted / where(power > 0.0, power, 1.0), value), room.seen.fields, b, 2, i)


@function_value(FILL_SEEN)
def see_fields(tables, policy, prompts, n, room):
    """Fill the score norms and the oracles' fields of the prompts of a rollout, as far as there is room for them."""
    for b in range(prompts.shape[0]):
        if room.seen.norms.shape[1] > 0:
            fill_norms(policy.tokens[b], tables.gram, tables.paths, prompts[b], n, room.seen.norms[b])
        if room.seen.fields.shape[1] > 0:
            for i in range(0, n, WIDTH):
                fill_fields(policy.pi, tables.means, prompts, b, i, room)
