"""Rollouts of a policy that moves: prompts, outcomes by how often they came or in which order, advantages, and logit gradients.

Each run has a lane.  A rollout has B groups of each of LANES runs, of which the first n are wanted.  The probability of an
outcome (response, reward) is off by 2^-31 at most, because even words of 32 bits are compared with the distribution function.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from grpo_theory.estimation import Estimator
from grpo_theory.estimation.advantage import affine_coefficients
from grpo_theory.estimation.kernel import Batch
from grpo_theory.exact.multisets import advantages_of, check_alone
from grpo_theory.jit import kernel
from grpo_theory.problem import Problem
from grpo_theory.simulate.draws import PromptLaw, choose_prompts, count_below, prompt_law
from grpo_theory.simulate.policies import LogitTables, Scratch, fill_logits, fill_probabilities, make_scratch
from grpo_theory.simulate.streams import LANES, fill_words
from grpo_theory.validation import Array, Integers

PAST = 2147483647
"""A word of 32 bits that is below no threshold."""
_EVEN = np.uint64(0xFFFFFFFEFFFFFFFE)


class World(NamedTuple):
    """What rollouts are drawn from, besides theta.

    Attributes
    ----------
    prompts : PromptLaw
    logits : LogitTables
    below : ndarray, shape (K L, M)
        The distribution function of the reward given prompt and response; its last value of a response is 1.
    n_values : int
        The number L of reward values.
    """

    prompts: PromptLaw
    logits: LogitTables
    below: Array
    n_values: int


def world_of(problem: Problem, logits: LogitTables) -> World:
    """Tabulate what rollouts on a problem are drawn from."""
    bandit = problem.bandit
    below = np.cumsum(bandit.probabilities, axis=2)
    below[:, :, -1] = 1.0
    table = np.ascontiguousarray(below.reshape(bandit.n_prompts, -1).T)
    return World(prompt_law(bandit.prompt_weights), logits, table, bandit.values.size)


class PolicyRoom(NamedTuple):
    """A policy at the prompts of B groups: logits, probabilities and logs (B, D, LANES), and of responses (B, K, LANES)."""

    logits: Array
    tokens: Array
    log_tokens: Array
    pi: Array


class Room(NamedTuple):
    """What a step of LANES runs is computed in; nothing that is in it before is read.

    Attributes
    ----------
    words, short : ndarray of uint64 and int32, shape (n, LANES) and (2 n, LANES)
        The words of a rollout, and their halves: the same memory.
    prompts : ndarray of int64, shape (B, LANES)
    counts : ndarray of int32, shape (B, O, LANES)
    ordered : ndarray of int32, shape (B, G, LANES) or (0, G, LANES)
        The outcome of each response, where they are wanted in the order drawn.
    thresholds, below : ndarray of int32, shape (O or O + 1, LANES)
    places : ndarray of int64, shape (LANES,)
    levels : ndarray of int64, shape (L, LANES)
        How many responses of a group got each reward.
    scratch : Scratch
    """

    words: NDArray[np.uint64]
    short: NDArray[np.int32]
    prompts: Integers
    counts: NDArray[np.int32]
    ordered: NDArray[np.int32]
    thresholds: NDArray[np.int32]
    below: NDArray[np.int32]
    places: Integers
    levels: Integers
    scratch: Scratch


def make_policy_room(n_groups: int, logits: LogitTables, n_logits: int, *, wants_logs: bool) -> PolicyRoom:
    """Make room for a policy at so many groups."""
    edges, responses = (n_groups, n_logits, LANES), (n_groups, len(logits.lengths), LANES)
    tokens = np.empty(edges)
    pi = tokens if logits.edges.shape[1] == 1 else np.empty(responses)
    return PolicyRoom(np.empty(edges), tokens, np.empty((n_groups, n_logits if wants_logs else 0, LANES)), pi)


def make_room(world: World, sizes: tuple[int, int], rows_needed: int, *, in_order: bool) -> Room:
    """Make room for rollouts of B prompts and G responses each, of a policy that needs so many rows."""
    batch_size, group_size = sizes
    n_outcomes = len(world.below)
    rows = batch_size * (1 + 2 * -(-group_size // 4))  # a word for each prompt, half of one for each response, rounded up
    words = np.empty((-(-rows // 4) * 4, LANES), dtype=np.uint64)
    counted = 2, n_outcomes + n_outcomes % 2, LANES
    thresholds, below = np.empty(counted, dtype=np.int32)
    return Room(
        words=words,
        short=words.view(np.int32).reshape(-1, LANES),
        prompts=np.empty((batch_size, LANES), dtype=np.int64),
        counts=np.empty((batch_size, n_outcomes, LANES), dtype=np.int32),
        ordered=np.empty((batch_size if in_order else 0, group_size, LANES), dtype=np.int32),
        thresholds=thresholds,
        below=below,
        places=np.empty(LANES, dtype=np.int64),
        levels=np.empty((world.n_values, LANES), dtype=np.int64),
        scratch=make_scratch(rows_needed),
    )


def fill_policy(world: World, theta: Array, prompts: Integers, n: int, room: Room, policy: PolicyRoom) -> None:
    """Fill in logits and probabilities of the runs' policies at prompts (B, LANES)."""
    fill_logits(world.logits, theta, prompts, n, room.scratch, policy.logits)
    fill_probabilities(world.logits, policy.logits, room.scratch, policy.tokens, policy.log_tokens, policy.pi)


@kernel
def fill_thresholds(world, prompts, pi, reached, thresholds):
    """Fill in thresholds (O, LANES) of words of 32 bits; none is below the one before, whatever theta has become."""
    n_values, last = world.n_values, thresholds.shape[0] - 1
    for j in range(LANES):
        reached[j] = -2147483648.0
    for k in range(pi.shape[0]):
        for o in range(k * n_values, (k + 1) * n_values):
            before = max(o - 1, 0)
            if o == (k + 1) * n_values - 1:
                for j in range(LANES):
                    reached[j] += 4294967296.0 * pi[k, j]
                    place = np.int32(min(reached[j], 2147483647.0) if reached[j] > -2147483648.0 else -2147483648.0)
                    thresholds[o, j] = max(place, thresholds[before, j]) if o > 0 else place
            else:
                for j in range(LANES):
                    place = reached[j] + 4294967296.0 * pi[k, j] * world.below[o, prompts[j]]
                    whole = np.int32(min(place, 2147483647.0) if place > -2147483648.0 else -2147483648.0)
                    thresholds[o, j] = max(whole, thresholds[before, j]) if o > 0 else whole
    for o in range(pi.shape[0] * n_values - 1, last + 1):
        for j in range(LANES):  # all words are below the last
            thresholds[o, j] = 2147483647


@kernel
def count_outcomes(room, first, group_size, counts):
    """Count the outcomes (O, LANES) of a group by its words, from the first on."""
    below, last = room.below, counts.shape[0] - 1
    count_below(room.short, first, first + (group_size + 3) // 4 * 4, room.thresholds, below)
    for j in range(LANES):
        counts[0, j] = below[0, j]
    for o in range(1, last + 1):
        for j in range(LANES):
            counts[o, j] = below[o, j] - below[o - 1, j]


@kernel
def draw_prompts(world, group_size, streams, period, room):
    """Draw the words of a rollout and its prompts; lanes a period apart have the same words."""
    batch_size, padded = room.prompts.shape[0], (group_size + 3) // 4 * 4
    fill_words(streams.lanes, room.words)
    for row in range(batch_size, room.words.shape[0]):
        for j in range(LANES):
            room.words[row, j] &= _EVEN  # both halves: none is `PAST`, and all are below the last threshold
    if period < LANES:
        for row in range(batch_size):
            for j in range(period, LANES):
                room.words[row, j] = room.words[row, j - period]
        for row in range(2 * batch_size, room.short.shape[0]):
            for j in range(period, LANES):
                room.short[row, j] = room.short[row, j - period]
    for b in range(batch_size):
        choose_prompts(room.words, b, world.prompts, room.prompts[b])
        for row in range(2 * batch_size + b * padded + group_size, 2 * batch_size + (b + 1) * padded):
            for j in range(LANES):
                room.short[row, j] = PAST


@kernel
def close_groups(sizes, group_size, room):
    """Leave out what is drawn beyond the sizes (B, LANES) of groups that have room for `group_size` responses."""
    batch_size, padded = room.prompts.shape[0], (group_size + 3) // 4 * 4
    for b in range(batch_size):
        for g in range(group_size):
            for j in range(LANES):
                if g >= sizes[b, j]:
                    room.short[2 * batch_size + b * padded + g, j] = PAST


@kernel
def draw_outcomes(world, group_size, room, policy):
    """Draw the outcomes of a rollout by how often each came."""
    batch_size, padded = room.prompts.shape[0], (group_size + 3) // 4 * 4
    for b in range(batch_size):
        fill_thresholds(world, room.prompts[b], policy.pi[b], room.scratch.rows[1], room.thresholds)
        count_outcomes(room, 2 * batch_size + b * padded, group_size, room.counts[b])


@kernel
def draw_in_order(world, group_size, room, policy):
    """Draw the outcomes of a rollout one by one: that of a response is how many thresholds its word has reached."""
    batch_size, padded = room.prompts.shape[0], (group_size + 3) // 4 * 4
    for b in range(batch_size):
        fill_thresholds(world, room.prompts[b], policy.pi[b], room.scratch.rows[1], room.thresholds)
        counts, ordered = room.counts[b], room.ordered[b]
        for o in range(counts.shape[0]):
            for j in range(LANES):
                counts[o, j] = 0
        for g in range(group_size):
            for j in range(LANES):
                reached = 0
                for o in range(counts.shape[0] - 1):
                    reached += int(room.short[2 * batch_size + b * padded + g, j] >= room.thresholds[o, j])
                ordered[g, j] = reached
            for j in range(LANES):
                counts[ordered[g, j], j] += 1


@kernel
def sum_tabulated(table, sizes, by_sign, room, sums):
    """Add up the advantages (B, F, K, LANES) of each response by a table, whose looks are the groups' sizes where they differ."""
    n_values, looks = table.steps.shape[0], sizes.shape[0] > 0
    places, levels, advantages = room.places, room.levels, room.scratch.rows
    for b in range(room.prompts.shape[0]):
        for j in range(LANES):
            places[j] = 0
        for value in range(n_values):
            for j in range(LANES):
                levels[value, j] = room.counts[b, value, j]
            for o in range(value + n_values, room.counts.shape[1], n_values):
                for j in range(LANES):
                    levels[value, j] += room.counts[b, o, j]
            for j in range(LANES):
                places[j] += table.steps[value] * levels[value, j]
        for value in range(n_values):
            for j in range(LANES):
                found = table.advantages[0, table.looks[sizes[b, j]] if looks else 0, places[j], value]
                # The table has nothing for a reward that nobody got.
                advantages[1, j] = found if levels[value, j] > 0 else 0.0
            if by_sign:
                for j in range(LANES):
                    advantages[2, j] = min(advantages[1, j], 0.0)
                    advantages[1, j] = max(advantages[1, j], 0.0)
            for feature in range(sums.shape[1]):
                for k in range(sums.shape[2]):
                    if value == 0:
                        for j in range(LANES):
                            sums[b, feature, k, j] = room.counts[b, k * n_values, j] * advantages[1 + feature, j]
                    else:
                        for j in range(LANES):
                            sums[b, feature, k, j] += room.counts[b, k * n_values + value, j] * advantages[1 + feature, j]


class Affine(NamedTuple):
    """Advantages a r_i + b sum_j r_j + g V(x) + c of rewards r = Z - strength log(pi/reference).

    Attributes
    ----------
    coefficients : ndarray, shape (4,)
        a, b, g and c; (0,) where there is a table.
    values : ndarray, shape (L,)
    means : ndarray, shape (K, M)
        The mean of Z given response and prompt.
    log_reference : ndarray, shape (D, M)
    strength : float
        0 if there is no penalty.
    """

    coefficients: Array
    values: Array
    means: Array
    log_reference: Array
    strength: float


def affine_of(problem: Problem, estimator: Estimator, group_size: int) -> Affine | None:
    """Return how the advantages of groups depend on rewards, or None if the kernel or the penalty is of another kind."""
    kind, strength, reference = estimator.advantage, 0.0, np.zeros((problem.policy.n_logits, problem.policy.n_prompts))
    if problem.kl is not None and estimator.kl.place == "reward":
        strength, reference = problem.kl.strength, np.array(problem.log_reference, dtype=np.float64).T.copy()
    if strength and estimator.kl.name != "k1 in reward":
        return None
    found = affine_coefficients(kind, group_size)
    if found is None or found[3:5].any():
        return None
    # Symbols show one group: several tell whether a kernel couples them unannounced.
    rng = np.random.default_rng(0)
    rewards, lengths = rng.random((64, group_size)), np.ones((64, group_size), dtype=np.int64)
    batch = Batch._make([rewards, np.full(rewards.shape, np.nan), lengths, *rng.random((3, 64)), kind.parameter_array])
    check_alone(kind, batch, advantages_of(kind, batch))
    coefficients = found[[0, 1, 2, 5]]  # those of the standard deviation and of the optimal baseline are 0
    means = np.ascontiguousarray(problem.bandit.mean_reward.T)
    return Affine(coefficients, problem.bandit.values, means, reference, strength)


@kernel
def sum_affine(tables, affine, room, policy, sums):
    """Add up the advantages (B, 1, K, LANES) of each response of a kernel that is affine."""
    (own, shared, of_value, constant), n_values = affine.coefficients, affine.values.shape[0]
    total, value, penalties = room.scratch.rows[1], room.scratch.rows[2], np.empty((sums.shape[2], LANES))
    for b in range(room.prompts.shape[0]):
        prompts, counts = room.prompts[b], room.counts[b]
        for j in range(LANES):
            total[j] = 0.0
            value[j] = 0.0
        for k in range(sums.shape[2]):
            for j in range(LANES):
                penalties[k, j] = 0.0
            if affine.strength != 0.0:
                for t in range(tables.lengths[k]):
                    edge = tables.edges[k, t]
                    for j in range(LANES):
                        away = policy.log_tokens[b, edge, j] - affine.log_reference[edge, prompts[j]]
                        penalties[k, j] += affine.strength * away
            for j in range(LANES):
                value[j] += policy.pi[b, k, j] * (affine.means[k, prompts[j]] - penalties[k, j])
            for o in range(n_values):
                for j in range(LANES):
                    total[j] += counts[k * n_values + o, j] * (affine.values[o] - penalties[k, j])
        for j in range(LANES):
            total[j] = shared * total[j] + of_value * value[j] + constant
        for k in range(sums.shape[2]):
            for j in range(LANES):
                sums[b, 0, k, j] = 0.0
            for o in range(n_values):
                for j in range(LANES):
                    advantage = own * (affine.values[o] - penalties[k, j]) + total[j]
                    sums[b, 0, k, j] += counts[k * n_values + o, j] * advantage


@kernel
def sum_called(advantages, n_values, by_sign, room, sums):
    """Add up advantages (LANES, B, G) of responses in the order drawn."""
    sums[:] = 0.0
    for b in range(sums.shape[0]):
        for g in range(advantages.shape[2]):
            for j in range(LANES):
                advantage = advantages[j, b, g]
                sums[b, 1 if by_sign and not advantage > 0.0 else 0, room.ordered[b, g, j] // n_values, j] += advantage


@kernel
def add_weights(tables, first, sums, gains, covectors):
    """Fill covectors (B', D, LANES) with what advantages weigh on edges: of groups from the first on, sums (B, F, K, LANES).

    The gains of tokens are (F, K, T, 1), the same for all, or (F, K, T, B' LANES) of each group and run.
    """
    alike = gains.shape[3] == 1
    for b in range(covectors.shape[0]):
        for d in range(covectors.shape[1]):
            for j in range(LANES):
                covectors[b, d, j] = 0.0
        for feature in range(sums.shape[1]):
            for k in range(sums.shape[2]):
                for t in range(tables.lengths[k]):
                    edge = tables.edges[k, t]
                    for j in range(LANES):
                        gain = gains[feature, k, t, 0 if alike else b * LANES + j]
                        covectors[b, edge, j] += gain * sums[first + b, feature, k, j]


@kernel
def add_drift(tables, first, counts, n_values, shares, slopes, covectors):
    """Add what a KL term in the loss weighs: the slopes (B', D, LANES) of the edges taken, times the shares (K,) of responses."""
    for b in range(covectors.shape[0]):
        for k in range(shares.shape[0]):
            for value in range(n_values):
                for t in range(tables.lengths[k]):
                    edge = tables.edges[k, t]
                    for j in range(LANES):
                        covectors[b, edge, j] += shares[k] * counts[first + b, k * n_values + value, j] * slopes[b, edge, j]


@kernel
def centre(tables, tokens, scale, total, covectors):
    """Turn weights of edges (B', D, LANES) into covectors: what a prefix got in all, times its probabilities, comes off."""
    for b in range(covectors.shape[0]):
        for first in range(0, covectors.shape[1], tables.size):
            for j in range(LANES):
                total[j] = 0.0
            for d in range(first, first + tables.size):
                for j in range(LANES):
                    total[j] += covectors[b, d, j]
            for d in range(first, first + tables.size):
                for j in range(LANES):
                    covectors[b, d, j] = scale * (covectors[b, d, j] - total[j] * tokens[b, d, j])
