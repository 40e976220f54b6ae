"""Rollouts of a policy that moves: prompts, outcomes by how often they came or in which order, logit gradients, and steps.

Each run has a lane.  A rollout has B groups of each of some runs, LANES in shapes, of which the first n are wanted.  Words are
drawn for all lanes that there can be, so that runs see the same ones whatever the number beside them.  The probability of an
outcome (response, reward) is off by 2^-31 at most, because even words of 32 bits are compared with the distribution function.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from grpo_theory.jit import inlined, kernel
from grpo_theory.problem import Problem
from grpo_theory.simulate.advantages import AdvantageTable, Spare, sum_tabulated, weigh_edges
from grpo_theory.simulate.affine import sum_affine
from grpo_theory.simulate.draws import (
    LANES,
    PromptLaw,
    Streams,
    choose_prompts,
    count_classes,
    fill_lanes,
    find_in_order,
    pool_tokens,
    prompt_law,
    tally,
)
from grpo_theory.simulate.optimisers import ascend, ascend_adaptively, follow, sampling_iterate
from grpo_theory.simulate.policies import (
    LogitRule,
    Scratch,
    add_gradient,
    add_unit_gradient,
    fill_logits,
    fill_probabilities,
    fill_unit_logits,
    gather,
    make_scratch,
    place,
)
from grpo_theory.simulate.score_hessian import keep_rollout
from grpo_theory.validation import Array, Integers

PAST = 2147483647
"""A word of 32 bits that is below no threshold."""
PLAIN, ADAPTIVE, OWN = range(3)
"""Steps of SGD, of Adam, and of a user's own optimiser."""


@dataclass(frozen=True)
class StepSizes:
    """B prompts and G responses each, in rollouts that serve M updates and were drawn some rollouts ago: `lag` of them."""

    batch_size: int
    group_size: int
    updates: int = 1
    lag: int = 0

    @property
    def moves(self) -> bool:
        """Whether there are updates of a policy that is no longer the one that drew the rollout."""
        return self.updates > 1 or self.lag > 0

    @property
    def n_updated(self) -> int:
        """The prompts of an update, B/M."""
        return self.batch_size // self.updates


class World(NamedTuple):
    """What rollouts are drawn from, besides theta.

    Attributes
    ----------
    prompts : PromptLaw
    logits : LogitRule
    below : ndarray, shape (K L, M)
        The distribution function of the reward given prompt and response; its last value of a response is 1.
    n_values : int
        The number L of reward values.
    """

    prompts: PromptLaw
    logits: LogitRule
    below: Array
    n_values: int


def world_of(problem: Problem, logits: LogitRule) -> World:
    """Tabulate what rollouts on a problem are drawn from."""
    bandit = problem.bandit
    below = np.cumsum(bandit.probabilities, axis=2)
    below[:, :, -1] = 1.0
    table = np.ascontiguousarray(below.reshape(bandit.n_prompts, -1).T)
    return World(prompt_law(bandit.prompt_weights), logits, table, bandit.values.size)


class PolicyRoom(NamedTuple):
    """A policy at the prompts of B groups: probabilities of tokens and logs (B, D, LANES), and of responses (B, K, LANES).

    Attributes
    ----------
    tokens, log_tokens, pi : ndarray
    every : ndarray of int64, shape (M, LANES) or (0, LANES)
        All prompts, if they are fewer than groups: then the policy is computed at these, and groups take what they need.
    logits : ndarray, shape (M or B, D, LANES)
    computed : tuple of ndarray
        The first three where they are computed: the same arrays, or those of all prompts.
    by_prompt : ndarray, shape (M or 0, D, LANES)
        Sums of logit gradients by prompt.
    """

    tokens: Array
    log_tokens: Array
    pi: Array
    every: Integers
    logits: Array
    computed: tuple[Array, Array, Array]
    by_prompt: Array


class Room(NamedTuple):
    """What a step of LANES runs is computed in; nothing that is in it before is read.

    Attributes
    ----------
    words, short : ndarray of uint64 and int32, shape (n, LANES) and (2 n, LANES)
        The words of a rollout, of all lanes that there can be, and their halves: the same memory.
    prompts : ndarray of int64, shape (B, LANES)
    counts : ndarray of int32, shape (B, O, LANES)
    ordered : ndarray of int32, shape (B, G, LANES) or (0, G, LANES)
        The outcome of each response, where they are wanted in the order drawn.
    thresholds, below : ndarray of int32, shape (O or O + 1, LANES)
    scratch : Scratch
    """

    words: NDArray[np.uint64]
    short: NDArray[np.int32]
    prompts: Integers
    counts: NDArray[np.int32]
    ordered: NDArray[np.int32]
    thresholds: NDArray[np.int32]
    below: NDArray[np.int32]
    scratch: Scratch


def make_policy_room(
    shape: tuple[int, int], world: World, n_logits: int, *, wants_logs: bool, samples: bool = True
) -> PolicyRoom:
    """Make room for a policy at groups of lanes, (B, LANES); only one that samples needs what is of responses."""
    (n_groups, lanes), n_prompts, paths = shape, world.below.shape[1], world.logits

    def made(n: int) -> tuple[Array, Array, Array]:
        tokens, logs = np.empty((n, n_logits, lanes)), np.empty((n, n_logits if wants_logs else 0, lanes))
        return tokens, logs, tokens if paths.edges.shape[1] == 1 else np.empty((n, len(paths.lengths) if samples else 0, lanes))

    own, n_every = made(n_groups), n_prompts if n_prompts < n_groups else 0
    every = np.repeat(np.arange(n_every)[:, None], lanes, axis=1)
    computed = made(n_every) if n_every else own
    return PolicyRoom(*own, every, np.empty_like(computed[0]), computed, np.empty((n_every, n_logits, lanes)))


def make_room(world: World, sizes: tuple[int, int], rows_needed: int, lanes: int, *, in_order: bool) -> Room:
    """Make room for rollouts of B prompts and G responses each, of a policy that needs so many rows."""
    (batch_size, group_size), n_outcomes = sizes, len(world.below)
    rows = batch_size * (1 + 2 * -(-group_size // 4))  # a word for each prompt, half of one for each response, rounded up
    words = np.empty((-(-rows // 4) * 4, LANES), dtype=np.uint64)
    counted = 2, n_outcomes + n_outcomes % 2, lanes
    thresholds, below = np.empty(counted, dtype=np.int32)
    return Room(
        words=words,
        short=words.view(np.int32).reshape(-1, LANES),
        prompts=np.empty((batch_size, lanes), dtype=np.int64),
        counts=np.empty((batch_size, n_outcomes, lanes), dtype=np.int32),
        ordered=np.empty((batch_size if in_order else 0, group_size, lanes), dtype=np.int32),
        thresholds=thresholds,
        below=below,
        scratch=make_scratch(rows_needed, lanes),
    )


@inlined
def fill_policy(logits, hidden, theta, prompts, n, scratch, policy):
    """Fill in logits and probabilities of the runs' policies at prompts (B, LANES); see `train`."""
    # Logits s at theta, p the softmax of s at each prefix, and pi_k = prod_t p_edge(k,t) (docs/derivations.md, section 15).
    asked = policy.every if policy.every.shape[0] > 0 else prompts
    if hidden is None:
        fill_logits(logits, theta, asked, scratch, policy.logits)
    else:
        fill_unit_logits(hidden, theta, asked, n, scratch, policy.logits)
    tokens, log_tokens, pi = policy.computed
    fill_probabilities(logits, policy.logits, scratch, tokens, log_tokens, pi)
    if policy.every.shape[0] > 0:
        place(prompts, tokens, policy.tokens)
        place(prompts, log_tokens, policy.log_tokens)
        if logits.edges.shape[1] > 1:
            place(prompts, pi, policy.pi)


@kernel
def fill_thresholds(of_rewards, n_values, prompts, pi, reached, thresholds):
    """Fill in thresholds (O, LANES) of words of 32 bits; none is below the one before, whatever theta has become."""
    lanes, last = reached.shape[0], thresholds.shape[0] - 1
    for j in range(lanes):
        reached[j] = -2147483648.0
    # thresholds[o] is the whole part of 2^32 F_o - 2^31, with F_o = pi_0 + ... + pi_{k-1} + pi_k of_rewards[o]
    # (docs/derivations.md, section 17).
    for k in range(pi.shape[0]):
        for o in range(k * n_values, (k + 1) * n_values):
            before = max(o - 1, 0)
            if o == (k + 1) * n_values - 1:
                for j in range(lanes):
                    reached[j] += 4294967296.0 * pi[k, j]
                    place = np.int32(min(reached[j], 2147483647.0) if reached[j] > -2147483648.0 else -2147483648.0)
                    thresholds[o, j] = max(place, thresholds[before, j]) if o > 0 else place
            else:
                for j in range(lanes):
                    place = reached[j] + 4294967296.0 * pi[k, j] * of_rewards[o, prompts[j]]
                    whole = np.int32(min(place, 2147483647.0) if place > -2147483648.0 else -2147483648.0)
                    thresholds[o, j] = max(whole, thresholds[before, j]) if o > 0 else whole
    for o in range(pi.shape[0] * n_values - 1, last + 1):
        for j in range(lanes):  # all words are below the last
            thresholds[o, j] = 2147483647


@kernel
def draw_prompts(law, group_size, streams, period, room):
    """Draw the words of a rollout and its prompts; lanes a period apart have the same words."""
    (batch_size, lanes), padded = room.prompts.shape, (group_size + 3) // 4 * 4
    # Lane j has its own words for prompts, and for responses halves of those of the lanes j/2 and (LANES + j)/2.
    wanted = (min(period, lanes) + 7) // 8 * 8  # as vectors have them
    for begin, end in ((0, wanted), (max(wanted, LANES // 2), (LANES + wanted) // 2)):
        fill_lanes(streams.lanes, room.words, begin, end)
    for row in range(2 * batch_size, room.short.shape[0]):
        for j in range(lanes):
            room.short[row, j] &= np.int32(-2)  # none is `PAST`, and all are below the last threshold
    if period < lanes:
        for row in range(batch_size):
            for j in range(period, lanes):
                room.words[row, j] = room.words[row, j - period]
        for row in range(2 * batch_size, room.short.shape[0]):
            for j in range(period, lanes):
                room.short[row, j] = room.short[row, j - period]
    for b in range(batch_size):
        choose_prompts(room.words, b, law, room.prompts[b])
        for row in range(2 * batch_size + b * padded + group_size, 2 * batch_size + (b + 1) * padded):
            for j in range(lanes):
                room.short[row, j] = PAST


@kernel
def close_groups(sizes, group_size, room):
    """Leave out what is drawn beyond the sizes (B, LANES) of groups that have room for `group_size` responses."""
    (batch_size, lanes), padded = sizes.shape, (group_size + 3) // 4 * 4
    for b in range(batch_size):
        for g in range(group_size):
            for j in range(lanes):
                if g >= sizes[b, j]:
                    room.short[2 * batch_size + b * padded + g, j] = PAST


@kernel
def count_outcomes(short, first, group_size, thresholds, below, counts):
    """Count how often each outcome (O, LANES) came, as `count_classes`, which is compiled here once for all that call it."""
    count_classes(short, first, group_size, thresholds, below, counts)


@inlined
def draw_outcomes(world, group_size, room, policy):
    """Draw the outcomes of a rollout by how often each came, or one by one where there is room for them in order."""
    thresholds, reached = room.thresholds, room.scratch.rows[1]
    for b in range(room.prompts.shape[0]):
        fill_thresholds(world.below, world.n_values, room.prompts[b], policy.pi[b], reached, thresholds)
        first = 2 * room.prompts.shape[0] + b * ((group_size + 3) // 4 * 4)
        if room.ordered.shape[0] > 0:  # the outcome of a response is how many thresholds its word has reached
            find_in_order(room.short, first, thresholds, room.counts.shape[1], room.ordered[b])
            tally(room.ordered[b], room.counts[b])
        else:
            count_outcomes(room.short, first, group_size, thresholds, room.below, room.counts[b])


class Weighing(NamedTuple):
    """How advantages become weights of tokens.

    Attributes
    ----------
    moved, by_ratio : bool
        Whether the policy that is updated is another than the one that sampled, and whether its ratios to that are weights.
    gains : ndarray, shape (F, K, T, 1)
        What tokens weigh on policy.
    shares : ndarray, shape (K,)
        Of each token of a response.
    drifts, log_reference : ndarray, shape (K,) or (0,), and (M, D)
        What a KL term in the loss weighs in responses, and the logs of its reference.
    pool : int
        The groups whose tokens share the weight 1, or 0.
    scale : float
        What multiplies the sums over an update's responses.
    """

    moved: bool
    by_ratio: bool
    gains: Array
    shares: Array
    drifts: Array
    log_reference: Array
    pool: int
    scale: float


@kernel
def fill_gains(tables, shares, parts, now, then, gains):
    """Fill the gains of tokens (F, K, T, LANES) in a group, from the logs (D, LANES) of its policy now and when it sampled."""
    longest, lanes, (widths, ratio, clip, _) = tables.edges.shape[1], now.shape[1], parts
    log_ratios, ratios, weights = np.empty((longest, lanes)), np.zeros((longest, lanes)), np.empty((longest, lanes))
    for k in range(gains.shape[1]):
        length = tables.lengths[k]
        for t in range(length):
            for j in range(lanes):
                log_ratios[t, j] = now[tables.edges[k, t], j] - then[tables.edges[k, t], j]
        ratio(log_ratios[:length], length, ratios[:length])
        for sign in range(gains.shape[0]):
            # w_t = share_t clip(r_t, sign A) (docs/derivations.md, section 16).
            weights[:] = 0.0
            clip(ratios[:length], length, sign == 0, widths, weights[:length])
            for t in range(length):
                for j in range(lanes):
                    gains[sign, k, t, j] = weights[t, j] * shares[k]


@kernel
def add_drift(tables, weighing, slope, prompts, counts, log_tokens, logit_gradients):
    """Add what a KL term in the loss weighs at the prompts (LANES,) of a group to the rows (D, LANES) of the edges taken."""
    away, n_values = np.empty(log_tokens.shape), counts.shape[0] // weighing.drifts.shape[0]
    for d in range(away.shape[0]):
        for j in range(away.shape[1]):
            away[d, j] = log_tokens[d, j] - weighing.log_reference[prompts[j], d]
    slopes = np.empty_like(away)
    slope(away, slopes)
    # sum_i v(k_i) = -strength sum_k n_k share_k sum_t slope_t c_t, before it is centred (docs/derivations.md, section 16).
    for k in range(weighing.drifts.shape[0]):
        for value in range(n_values):
            for t in range(tables.lengths[k]):
                edge = tables.edges[k, t]
                for j in range(away.shape[1]):
                    logit_gradients[edge, j] += weighing.drifts[k] * counts[k * n_values + value, j] * slopes[edge, j]


@kernel
def add_credits(tables, gains, credits, prompts, counts, logit_gradients):
    """Add what tokens' credits (n, M, K, T) weigh at the prompts (LANES,) of a group to the rows (D, LANES) of edges taken."""
    n_values = counts.shape[0] // credits.shape[2]
    # sum_k n_k sum_t w_kt a_kt c_kt, with the w of the credit's own sign (docs/derivations.md, section 39).
    for k in range(credits.shape[2]):
        for t in range(tables.lengths[k]):
            for j in range(credits.shape[0]):
                drawn, credit = counts[k * n_values : (k + 1) * n_values, j].sum(), credits[j, prompts[j], k, t]
                gain = gains[0 if credit > 0.0 else gains.shape[0] - 1, k, t, min(j, gains.shape[3] - 1)]
                logit_gradients[tables.edges[k, t], j] += drawn * gain * credit


@inlined
def centre_edges(tables, tokens, scale, total, logit_gradients):
    """Turn weights of edges (B', D, LANES) into logit gradients: what a prefix got in all, times its probabilities, comes off."""
    for b in range(logit_gradients.shape[0]):
        # sum_t w_t (e_edge - p_prefix) = E - P(E), with P(E) the sum of E at a prefix, times p (docs/derivations.md, section 15).
        for prefix in range(logit_gradients.shape[1] // tables.size):
            first = prefix * tables.size
            for j in range(total.shape[0]):
                total[j] = 0.0
            for d in range(first, first + tables.size):
                for j in range(total.shape[0]):
                    total[j] += logit_gradients[b, d, j]
            for d in range(first, first + tables.size):
                for j in range(total.shape[0]):
                    logit_gradients[b, d, j] = scale * (logit_gradients[b, d, j] - total[j] * tokens[b, d, j])


class Moves(NamedTuple):
    """How estimates become steps: the kind, its settings, the step sizes (n,), a ball or nothing; see `State`."""

    kind: int
    settings: Array
    step_sizes: Array
    ball: Array
    alone: bool


class Rule(NamedTuple):
    """How groups of a size become steps: the world, the kernel's table, if signs are apart, what tokens weigh, and moves."""

    world: World
    group_size: int
    table: AdvantageTable
    by_sign: bool
    weighing: Weighing
    moves: Moves


class Lanes(NamedTuple):
    """The runs of a block: how many are wanted, how far apart those lie that see the same words, the streams, and 0 to LANES."""

    n: int
    period: int
    streams: Streams
    places: Integers


class Work(NamedTuple):
    """Whose updates are made, and in what: sums of advantages (B, F, K, LANES), and logit gradients (B', D, LANES).

    The policy is the one that sampled, and `now` the one that is updated, at the prompts of an update: the same memory on policy.
    """

    lanes: Lanes
    room: Room
    policy: PolicyRoom
    now: PolicyRoom
    sums: Array
    logit_gradients: Array
    spare: Spare


@kernel
def weigh_on_policy(tables, weighing, places, tokens, sums, total, logit_gradients):
    """Fill logit gradients (B, D, LANES) with what the groups' sums weigh in the one update of the policy that sampled."""
    # scale sum_b Phi_b' sum_k S_bk sum_t gain_kt c_kt, with S the sums of advantages and c the tokens' logit gradients.
    for b in range(logit_gradients.shape[0]):
        weigh_edges(tables.edges, tables.lengths, weighing.gains, places, 1.0, sums[b], logit_gradients[b])
    centre_edges(tables, tokens, weighing.scale, total, logit_gradients)


@kernel
def weigh(tables, hidden, weighing, parts, credits, first, theta, work):
    """Fill logit gradients (B', D, LANES) with what the sums of the groups from one on weigh under the runs' policies.

    The parts are the widths of a clip, and functions of a ratio, a clip and a KL term in the loss.  Credits of tokens are
    (n, M, K, T) of n runs, or None.
    """
    room, now, logit_gradients, lanes = work.room, work.now, work.logit_gradients, work.policy.tokens.shape[2]
    prompts = room.prompts[first : first + logit_gradients.shape[0]]
    if weighing.moved:
        fill_policy(tables, hidden, theta, prompts, work.lanes.n, room.scratch, now)
    gains = np.empty((*work.sums.shape[1:3], tables.edges.shape[1], lanes)) if weighing.by_ratio else weighing.gains
    for b in range(logit_gradients.shape[0]):
        if weighing.by_ratio:
            fill_gains(tables, weighing.shares, parts, now.log_tokens[b], work.policy.log_tokens[first + b], gains)
        weigh_edges(tables.edges, tables.lengths, gains, work.lanes.places, 1.0, work.sums[first + b], logit_gradients[b])
        counts = room.counts[first + b]
        if credits is not None:
            add_credits(tables, gains, credits, prompts[b], counts, logit_gradients[b])
        if weighing.drifts.shape[0] > 0:
            add_drift(tables, weighing, parts[3], prompts[b], counts, now.log_tokens[b], logit_gradients[b])
    if weighing.pool > 0:
        drawn = room.counts[first : first + logit_gradients.shape[0]]
        pool_tokens(tables.lengths, weighing.pool, drawn, logit_gradients)
    centre_edges(tables, now.tokens, weighing.scale, room.scratch.rows[2], logit_gradients)


@inlined
def update(rule, hidden, parts, credits, first, count, work, state):
    """Make the update at a rollout's groups from one on; for an optimiser of a user's own, only find the gradient."""
    room, now, rows, moves = work.room, work.now, work.logit_gradients, rule.moves
    prompts, logits = room.prompts[first : first + rows.shape[0]], rule.world.logits
    if parts is None:
        weigh_on_policy(logits, rule.weighing, work.lanes.places, now.tokens, work.sums, room.scratch.rows[2], rows)
    else:
        weigh(logits, hidden, rule.weighing, parts, credits, first, state.theta, work)
    if now.every.shape[0] > 0:  # sum_b Phi_b' c_b = sum_m Phi_m' c_m, with c_m the sum of m's groups (section 5.1)
        gather(prompts, rows, now.by_prompt)
        prompts, rows = now.every, now.by_prompt
    if hidden is None:
        add_gradient(logits, prompts, rows, room.scratch, state.gradient)
    else:
        add_unit_gradient(hidden, state.theta, prompts, work.lanes.n, rows, room.scratch, state.gradient)
    # theta_i = theta_{i-1} + eta_i ghat (Algorithms 1 and 2 of arXiv 2603.01162), or a step of Adam.
    if moves.kind == PLAIN:
        ascend(state.theta, state.gradient, state.moments, moves.settings, moves.step_sizes[count - 1], count)
    elif moves.kind == ADAPTIVE:
        ascend_adaptively(state.theta, state.gradient, state.moments, moves.settings, moves.step_sizes[count - 1], count)
    if moves.kind != OWN:
        follow(state, moves.ball, moves.alone, count, room.scratch.rows[3, : state.farthest.shape[0]])


@kernel
def train(rule, hidden, affine, parts, record, span, work, state):
    """Make the updates of a span, rollout by rollout.

    What only arguments need that are None is not compiled.  The logits of heads and networks have a rule for `hidden` units.
    Advantages are tabulated, or `affine`.  Weights that are not those of one update on policy have `parts`.  A `record` is kept,
    or not.
    """
    count, stop = span
    world, lanes, room, policy, prompts, sums = rule.world, work.lanes, work.room, work.policy, work.room.prompts, work.sums
    one_size, n_updated = np.zeros_like(prompts), work.logit_gradients.shape[0]
    while count < stop:
        sampler = sampling_iterate(state.theta, state.past, count * n_updated // prompts.shape[0])
        draw_prompts(world.prompts, rule.group_size, lanes.streams, lanes.period, room)
        fill_policy(world.logits, hidden, sampler, prompts, lanes.n, room.scratch, policy)
        draw_outcomes(world, rule.group_size, room, policy)
        if record is not None:
            keep_rollout(world.logits, record, count, room, policy)
        # S_bk = sum over i with k_i = k of A_bi, by affine form or table (docs/derivations.md, section 17.1).
        if affine is None:
            sum_tabulated(rule.table, one_size, room.counts, rule.by_sign, work.spare, sums)
        else:
            sum_affine(world.logits, affine, room, policy, sums)
        for first in range(0, prompts.shape[0], n_updated):
            count += 1
            update(rule, hidden, parts, None, first, count, work, state)
    return count
