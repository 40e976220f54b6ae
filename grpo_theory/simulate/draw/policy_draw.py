"""Rollouts of a policy that moves: random words to prompts, logits to probabilities, and words to counts of outcomes.

Each run has a lane.  Arrays are (B, rows, N), for B groups of each of N runs, of which the first n are wanted.  An estimate only
needs the number of times that each outcome (response, reward) occurred in a group.  Integer comparisons and sums count these
without finding out which response had which outcome.
"""

from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from grpo_theory.compiler import F1, F2, F3, I1, I2, function_value, record_type, stage
from grpo_theory.compiler.lanes import WIDTH, as_short, load, reals, shorts, store, where
from grpo_theory.simulate.draw.elementary import exponential, logarithm
from grpo_theory.simulate.draw.prompt_tables import LOOKUP, Lookup, at_places, choose_prompts, read_rows
from grpo_theory.simulate.draw.streams import fill_words, next_uniform
from grpo_theory.validation import Array, Integers

ONE = 1 << 30
"""A probability of 1 in the units of the thresholds."""
MASK = np.int32(ONE - 1)
CHUNK_WORDS = 1 << 17
"""The words that are drawn at a time: they stay in a second-level cache."""


class TokenPaths(NamedTuple):
    """The edges (K, T) that responses take, their lengths (K,), and how many tokens there are at a prefix."""

    edges: Integers
    lengths: Integers
    vocabulary_size: int


class OutcomeSource(NamedTuple):
    """What rollouts are drawn from, besides the policy's logits.

    Attributes
    ----------
    prompts : Lookup
        The prompts' alias table (M, 2), see `alias_rows`.
    laws : Lookup
        The distribution functions (M, K (L - 1)) of the L reward values given prompt and response, without their last values,
        which are 1.  The values of a response stand one after another.
    n_values, group_size : int
        L and G.
    paths : TokenPaths
    """

    prompts: Lookup
    laws: Lookup
    n_values: int
    group_size: int
    paths: TokenPaths


class Words(NamedTuple):
    """The random words of a chunk of C rollouts, P rows of 128 words each, and more rows, as lanes may reach beyond the last.

    Attributes
    ----------
    rows : int
        P.
    prompts : ndarray of uint64, shape (at least C P + 1, 128)
        The first B rows of a rollout are for the prompts.
    responses : ndarray of int32, shape (at least 2 (C P + 1), 128)
        The same words in halves; of a rollout's, those from row 2 B on are for the responses, group by group.
    dithers : ndarray, shape (C,)
    """

    rows: int
    prompts: NDArray[np.uint64]
    responses: NDArray[np.int32]
    dithers: Array


class PolicyRoom(NamedTuple):
    """A policy at the prompts of B groups.

    Attributes
    ----------
    logits, tokens, log_tokens : ndarray, shape (B, D, N)
        Logits of the edges, probabilities of tokens given their prefixes, and their logs: (B, 0, N) where nothing wants them.
    pi : ndarray, shape (B, K, N)
        Probabilities of the responses: the tokens' own where responses have one token.
    """

    logits: Array
    tokens: Array
    log_tokens: Array
    pi: Array


class Groups(NamedTuple):
    """The groups of a rollout.

    Attributes
    ----------
    prompts : ndarray of int64, shape (B, N)
    counts : ndarray of int32, shape (B, O, N)
        The number of the group's responses with each outcome.
    thresholds : ndarray of int32, shape (B, O - 1, N)
        Where responses are wanted in the order drawn; (B, 0, N) where they are not.
    facts : ndarray, shape (rows, WIDTH)
        Room for a row of a table at each lane's prompt.
    """

    prompts: Integers
    counts: NDArray[np.int32]
    thresholds: NDArray[np.int32]
    facts: Array


T2, T3 = numba.int32[:, ::1], numba.int32[:, :, ::1]
TOKEN_PATHS = record_type(TokenPaths, I2, I1, numba.int64)
OUTCOME_SOURCE = record_type(OutcomeSource, LOOKUP, LOOKUP, numba.int64, numba.int64, TOKEN_PATHS)
WORDS = record_type(Words, numba.int64, numba.uint64[:, ::1], T2, F1)
REPEAT_WORDS = numba.void(WORDS, *[numba.int64] * 4)
POLICY_ROOM = record_type(PolicyRoom, F3, F3, F3, F3)
GROUPS = record_type(Groups, I2, T3, T3, F2)


@stage
def fill_chunk(lanes, lone, runs, rollouts, words):
    """Fill the words of so many rollouts of a chunk, from streams that stand at its beginning; they go on by whole eights.

    Lanes that none of so many runs uses may be left where they are.
    """
    fill_words(lanes, runs, words.prompts[: (rollouts * words.rows + 7) // 8 * 8])
    for s in range(rollouts):
        words.dithers[s] = next_uniform(lone)


@function_value(REPEAT_WORDS)
def repeat_words(words, rollouts, batch_size, period, runs):
    """Give runs the words of the run that is a period before them, in so many rollouts of a chunk."""
    for s in range(rollouts):
        for row in range(s * words.rows, s * words.rows + batch_size):
            for j in range(period, runs):
                words.prompts[row, j] = words.prompts[row, j - period]
        for row in range(response_row(words, s, batch_size), 2 * (s + 1) * words.rows):
            for j in range(period, runs):
                words.responses[row, j] = words.responses[row, j - period]


@stage
def response_row(words, s, batch_size):
    """Return the row where the words of the responses of the chunk's s-th rollout begin, group by group."""
    return 2 * (s * words.rows + batch_size)


@stage
def draw_prompts_of(words, s, first, n, source, groups):
    """Draw the prompts of the chunk's s-th rollout, for the n runs from the first on."""
    for b in range(groups.prompts.shape[0]):
        for i in range(0, n, WIDTH):
            drawn = load(words.prompts, s * words.rows + b, first + i)
            store(choose_prompts(drawn, source.prompts, groups.facts), groups.prompts, b, i)


@stage
def fill_tokens(policy, b, i, vocabulary_size):
    """Fill the probabilities of tokens given their prefixes, and their logs if there is room for them, from the logits."""
    logits, tokens, log_tokens = policy.logits, policy.tokens, policy.log_tokens
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
def fill_responses(policy, b, i, paths):
    """Fill the probabilities of the responses, products along their paths; with one token they are the tokens' own."""
    edges, pi = paths.edges, policy.pi
    if edges.shape[1] == 1:
        return
    for k in range(pi.shape[1]):
        x = load(policy.tokens, b, edges[k, 0], i)
        for t in range(1, paths.lengths[k]):
            x = x * load(policy.tokens, b, edges[k, t], i)
        store(x, pi, b, k, i)


@stage
def count_words(words, first, group_size, threshold):
    """Count the 30-bit words (at least G, 128) below a threshold, in the lanes from the first on."""
    found = shorts(0)
    for g in range(group_size):
        found = found + as_short((load(words, g, first) & MASK) < threshold)
    return found


@stage
def count_outcomes(words, first, source, dither, pi, b, i, groups):
    """Count the outcomes of group b of the runs from i on, by words (at least G, 128) in the lanes from `first` on.

    A word leads to the first outcome whose threshold is above it.  With F the distribution function of the outcomes, thresholds
    are the whole parts of 2^30 F + dither.  They are kept if there is room.  The dither is uniform on [0, 1) and shared by all
    draws of one rollout.  A response's law is exact, and the joint law of several responses is exact to 2^-60.

    Thresholds never fall, even where a run has overflowed and they mean nothing.  So counts always add up to G, and never lead
    outside a table.
    """
    counts, thresholds, n_values, group_size = groups.counts, groups.thresholds, source.n_values, source.group_size
    last, own_prompts, reached = counts.shape[1] - 1, load(groups.prompts, b, i), reals(0.0)
    before, below = shorts(0), shorts(0)
    read_rows(source.laws, own_prompts, groups.facts)
    for k in range(pi.shape[1]):
        own = load(pi, b, k, i)
        for value in range(n_values):
            o = k * n_values + value
            if o == last:
                store(group_size - before, counts, b, last, i)
                return
            if value < n_values - 1:
                share = at_places(source.laws, k * (n_values - 1) + value, own_prompts, groups.facts)
                threshold = as_short((reached + own * share) * ONE + dither)
            else:
                reached = reached + own
                threshold = as_short(reached * ONE + dither)
            below = where(threshold > below, threshold, below)
            if thresholds.shape[1] > 0:
                store(below, thresholds, b, o, i)
            found = count_words(words, first, group_size, below)
            store(found - before, counts, b, o, i)
            before = found


@stage
def draw_outcomes(words, s, first, b, n, source, policy, groups):
    """Fill the probabilities of the b-th prompts of the chunk's s-th rollout, and draw and count the outcomes of their groups."""
    own = words.responses[response_row(words, s, groups.prompts.shape[0]) + b * source.group_size :]
    for i in range(0, n, WIDTH):
        fill_tokens(policy, b, i, source.paths.vocabulary_size)
        fill_responses(policy, b, i, source.paths)
        count_outcomes(own, first + i, source, words.dithers[s], policy.pi, b, i, groups)


@stage
def find_outcomes(words, first, thresholds, n, ordered):
    """Find the outcomes (G, n) of one group of each run in the order in which they were drawn."""
    for g in range(ordered.shape[0]):
        for i in range(n):
            ordered[g, i] = 0
        for o in range(thresholds.shape[0]):
            for i in range(n):
                ordered[g, i] += (words[g, np.uintp(first + i)] & MASK) >= thresholds[o, i]
