"""Advantages of a rollout to covectors, where the policy moves on: importance ratios, clips, KL terms in the loss, and pools.

The covector of a token is e_edge minus the probabilities at its prefix.  So weights are first added up on edges, and then centred
at each prefix.
"""

from typing import Any, NamedTuple

import numba

from grpo_theory.compiler import F1, F2, F3, F4, I1, FirstClassType, function_value, record_type, stage
from grpo_theory.compiler.lanes import WIDTH, as_real, load, reals, shorts, some, store, where
from grpo_theory.estimation.parts import CLIP_SIGNATURE as CLIP
from grpo_theory.estimation.parts import KL_SIGNATURE as KL
from grpo_theory.estimation.parts import RATIO_SIGNATURE as RATIO
from grpo_theory.problem.logits import SURE
from grpo_theory.simulate.advantage.rewards import fill_log_ratios
from grpo_theory.simulate.covector.drawn_gains import fill_drawn_gains
from grpo_theory.simulate.covector.tabulated import close_covector
from grpo_theory.simulate.covector.token_weights import pool_factor, scale
from grpo_theory.simulate.draw.policy_draw import GROUPS, T3, TOKEN_PATHS, TokenPaths, fill_tokens
from grpo_theory.simulate.draw.prompt_tables import LOOKUP, Lookup
from grpo_theory.validation import Array


class TokenRule(NamedTuple):
    """What the tokens of responses weigh.

    Attributes
    ----------
    paths : TokenPaths
    shares : ndarray, shape (K,)
        The weight of each token of a response.
    widths : ndarray, shape (2,)
        Of the clip.
    log_reference : Lookup
        Log probabilities (M, D) of tokens given their prefixes under the penalty's reference.
    in_loss : float
        The strength of the penalty if it is in the loss, and 0 if not.
    moves : bool
        Whether there are updates of a policy that is no longer the one that drew.
    drifts_away : bool
        Whether importance ratios change between the updates.
    pool : int
        How many groups pool their tokens; 0 for no pooling.
    group_size, updates : int
        The responses of a group, and how many updates a rollout serves.
    """

    paths: TokenPaths
    shares: Array
    widths: Array
    log_reference: Lookup
    in_loss: float
    moves: bool
    drifts_away: bool
    pool: int
    group_size: int
    updates: int

    @property
    def weighs_anew(self) -> bool:
        """Whether the weights of tokens change from update to update."""
        return self.drifts_away or self.in_loss > 0.0


class TokenRoom(NamedTuple):
    """What weights and covectors are computed in.

    Attributes
    ----------
    gains : ndarray, shape (K, 2, T, 1 or N)
        What advantages above 0, and others, are multiplied with.
    drifts : ndarray, shape (K, T, N), or (0, 0, 0)
        What is added for each response, whatever its advantage.
    log_ratios, terms : ndarray, shape (D, N)
    facts : ndarray, shape (rows, WIDTH)
        For a row of a table at each lane's prompt.
    covectors : ndarray, shape (B/M, D, N)
    """

    gains: Array
    drifts: Array
    log_ratios: Array
    terms: Array
    facts: Array
    covectors: Array


class RatioFunctions(NamedTuple):
    """The functions of an estimator's importance ratio, clip and KL term."""

    fill_ratios: Any
    fill_weights: Any
    fill_terms: Any


class CovectorFunctions(NamedTuple):
    """What is called only where an estimator needs it (see `value_or_null`)."""

    weigh_tokens: Any
    ratio: RatioFunctions
    pool_covectors: Any


TOKEN_RULE = record_type(
    TokenRule,
    TOKEN_PATHS,
    F1,
    F1,
    LOOKUP,
    numba.float64,
    numba.boolean,
    numba.boolean,
    numba.int64,
    numba.int64,
    numba.int64,
)
TOKEN_ROOM = record_type(TokenRoom, F4, F3, F2, F2, F2, F3)
RATIO_FUNCTIONS = record_type(RatioFunctions, *map(FirstClassType, (RATIO, CLIP, KL)))
WEIGH_TOKENS = numba.void(RATIO_FUNCTIONS, TOKEN_RULE, GROUPS, numba.int64, F2, F2, numba.int64, TOKEN_ROOM)
POOL_COVECTORS = numba.void(T3, numba.int64, numba.int64, I1, numba.int64, numba.int64, F3)
COVECTOR_FUNCTIONS = record_type(CovectorFunctions, FirstClassType(WEIGH_TOKENS), RATIO_FUNCTIONS, FirstClassType(POOL_COVECTORS))


@stage
def fill_drifts(slopes, i, paths, strength, shares, drifts):
    """Fill what a KL term in the loss adds to the weights of tokens (K, T, N), from its slopes on the edges (D, N)."""
    for k in range(paths.edges.shape[0]):
        for t in range(paths.lengths[k]):
            store(-strength * shares[k] * load(slopes, paths.edges[k, t], i), drifts, k, t, i)


@stage
def fill_drift(log_now, log_then, i, log_ratios):
    """Fill the logs of pi/pi_0 (D, N) from those of pi and of pi_0."""
    for d in range(log_ratios.shape[0]):
        store(load(log_now, d, i) - load(log_then, d, i), log_ratios, d, i)


@function_value(WEIGH_TOKENS)
def weigh_tokens_anew(functions, rule, groups, here, log_then, log_now, n, room):
    """Fill gains and drifts of group `here` of the rollout, from the log probabilities (D, N) as it was drawn, and now.

    The counts say which responses have been drawn: the gains of the others stay what they were, and are not read.
    """
    paths = rule.paths
    if rule.drifts_away:
        for i in range(0, n, WIDTH):
            fill_drift(log_now, log_then, i, room.log_ratios)
        fill_drawn_gains(functions, rule, room.log_ratios, groups.counts[here], n, room.gains)
    if rule.in_loss > 0.0:
        for i in range(0, n, WIDTH):
            fill_log_ratios(log_now, i, rule.log_reference, groups.prompts, here, room.facts, room.log_ratios)
        functions.fill_terms(room.log_ratios, room.terms)
        for i in range(0, n, WIDTH):
            fill_drifts(room.terms, i, paths, rule.in_loss, rule.shares, room.drifts)


@stage
def add_weights(sums, counts, i, paths, gains, drifts, covector):
    """Add up the weights of the tokens of the responses of a group on the edges that they take, in its covector (D, N).

    The sums (S, O, N) are those of a `Rollout`, and counts (O, N) the numbers of responses with each outcome.  The weight of a
    token is A gain + drift.  The gains (K, 2, T, N or 1) are for positive and for other advantages; the drifts (K, T, N) may be
    empty.  Where the sum or the count is 0 the term is 0, even if the gain or drift is infinite.  A response that no lane has
    drawn is passed over.
    """
    edges, n_values = paths.edges, counts.shape[0] // paths.edges.shape[0]
    for d in range(covector.shape[0]):
        store(reals(0.0), covector, d, i)
    for k in range(edges.shape[0]):
        drawn = shorts(0)
        for o in range(k * n_values, (k + 1) * n_values):
            drawn = drawn + load(counts, o, i)
        if not some(drawn > shorts(0)):
            continue
        for t in range(paths.lengths[k]):
            edge = edges[k, t]
            weight = load(covector, edge, i)
            for o in range(k * n_values, (k + 1) * n_values):
                for part in range(sums.shape[0]):
                    x = load(sums, part, o, i)
                    if gains.shape[3] > 1:
                        gain = where(x > 0.0, load(gains, k, 0, t, i), load(gains, k, 1, t, i))
                        weight = weight + x * where(x == 0.0, 0.0, gain)
                    else:
                        weight = weight + x * gains[k, 0, t, 0]
                if drifts.shape[0] > 0:
                    count = as_real(load(counts, o, i))
                    weight = weight + count * where(count == 0.0, 0.0, load(drifts, k, t, i))
            store(weight, covector, edge, i)


@function_value(POOL_COVECTORS)
def pool_covectors(counts, here, n, lengths, pool, group_size, covectors):
    """Scale the covectors (B/M, D, N) of groups that pool their tokens so that each token of the pool weighs the same.

    Counts (B, O, N) are those of the groups from `here` on, of n runs.  So many groups at a time are a pool.
    """
    for i in range(0, n, WIDTH):
        for first in range(0, covectors.shape[0], pool):
            factor = pool_factor(counts, here + first, pool, i, lengths, group_size)
            for b in range(first, first + pool):
                scale(covectors[b], i, factor)


@stage
def centre_covector(covector, tokens, i, vocabulary_size):
    """Turn weights of edges into a covector: less, at each prefix, their sum times the probabilities (D, N) there."""
    for start in range(0, covector.shape[0], vocabulary_size):
        total, most = reals(0.0), reals(0.0)
        for d in range(start, start + vocabulary_size):
            total = total + load(covector, d, i)
        for d in range(start, start + vocabulary_size):
            p = load(tokens, d, i)
            most = where(p > most, p, most)
            store(load(covector, d, i) - total * p, covector, d, i)
        if some(most > SURE):
            close_covector(covector, start, start + vocabulary_size, tokens, i, SURE)


@stage
def fill_covectors_of_update(functions, rule, groups, all_sums, policies, first, n, room):
    """Fill the covectors of the groups of an update, which are the rollout's from number `first` on.

    all_sums (B, S, O, N) are those of a `Rollout`.  The policies are the one that drew the rollout, at the rollout's groups, and
    the one that is updated, at the update's.
    """
    then, now = policies
    for b in range(room.covectors.shape[0]):
        here, place, tokens, log_tokens = first + b, first + b, then.tokens, then.log_tokens
        if rule.moves:
            place, tokens, log_tokens = b, now.tokens, now.log_tokens
            for i in range(0, n, WIDTH):
                fill_tokens(now, b, i, rule.paths.vocabulary_size)
        sums, counts, covector, own = all_sums[here], groups.counts[here], room.covectors[b], tokens[place]
        if rule.drifts_away or rule.in_loss > 0.0:
            logs = then.log_tokens[here], log_tokens[place]
            functions.weigh_tokens(functions.ratio, rule, groups, here, logs[0], logs[1], n, room)
        for i in range(0, n, WIDTH):
            add_weights(sums, counts, i, rule.paths, room.gains, room.drifts, covector)
            centre_covector(covector, own, i, rule.paths.vocabulary_size)
    if rule.pool > 0:
        functions.pool_covectors(groups.counts, first, n, rule.paths.lengths, rule.pool, rule.group_size, room.covectors)
