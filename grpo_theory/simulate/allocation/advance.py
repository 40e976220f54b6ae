"""The compiled driver of training runs in which each group has a size of its own: one update a rollout, advantages by tables."""

from typing import Any, NamedTuple

import numba
import numpy as np

from grpo_theory.compiler import F4, I1, FirstClassType, driver, record_type, stage
from grpo_theory.compiler.lanes import WIDTH, as_integer, as_short, load, reals, shorts, spread, store, take, where
from grpo_theory.simulate.advantage.rollout import sum_looked_up
from grpo_theory.simulate.advantage.tables import multiset_numbers
from grpo_theory.simulate.allocation.group_sizes import ALLOT, ALLOTMENT, Allotment
from grpo_theory.simulate.covector.ratios import add_weights, centre_covector
from grpo_theory.simulate.draw.policy_draw import (
    MASK,
    ONE,
    draw_prompts_of,
    fill_chunk,
    fill_responses,
    fill_tokens,
    response_row,
)
from grpo_theory.simulate.draw.prompt_tables import at_places, read_rows
from grpo_theory.simulate.draw.streams import LANES, STREAMS
from grpo_theory.simulate.update.advance import FUNCTIONS, RULES, STATE, STEP_ROOM, UPDATES, make_update
from grpo_theory.validation import Array, Integers


class Plan(NamedTuple):
    """How many responses prompts get, and where the advantages of groups of each size stand in the tables.

    Attributes
    ----------
    allot : compiled function
    allotment : Allotment
    starts : ndarray of int64, shape (high + 1,)
    seen : ndarray, shape (shares, 3, M, N)
        For each run and prompt: the sum and the number of the rewards seen, as far as they still count.  Then the prompt's value
        when the run began.
    """

    allot: Any
    allotment: Allotment
    starts: Integers
    seen: Array


PLAN = record_type(Plan, FirstClassType(ALLOT), ALLOTMENT, I1, F4)


@stage
def remember(groups, b, n, values, sizes, memory, seen):
    """Add the rewards of group b of n runs to what these have seen (3, M, N), of which a share has been forgotten."""
    n_values = values.shape[0]
    for i in range(n):
        m, total = np.uintp(groups.prompts[b, i]), 0.0
        for o in range(groups.counts.shape[1]):
            total += groups.counts[b, o, i] * values[o % n_values]
        seen[0, m, i] = memory * seen[0, m, i] + total
        seen[1, m, i] = memory * seen[1, m, i] + sizes[b, i]


@stage
def count_words_of(words, first, most, sizes, threshold):
    """Count the 30-bit words (at least `most`, 128) below a threshold, of each lane the first so many as its size says."""
    found = shorts(0)
    for g in range(most):
        found = found + as_short((load(words, g, first) & MASK) < where(sizes > g, threshold, 0))
    return found


@stage
def count_outcomes_of(words, at, source, dither, pi, b, sizes, groups):
    """Count the outcomes of group b as `count_outcomes` does, of each run as many responses as its size (B, N) says.

    `at` is where the lanes begin among the words, and among the runs.
    """
    first, i = at
    counts, n_values, own_sizes = groups.counts, source.n_values, load(sizes, b, i)
    last, own_prompts, reached = counts.shape[1] - 1, load(groups.prompts, b, i), reals(0.0)
    before, below, most = shorts(0), shorts(0), 0
    for lane in range(WIDTH):
        most = max(most, sizes[b, i + lane])
    read_rows(source.laws, own_prompts, groups.facts)
    for o in range(last):
        k, value = o // n_values, o % n_values
        own = load(pi, b, k, i)
        if value < n_values - 1:
            share = at_places(source.laws, k * (n_values - 1) + value, own_prompts, groups.facts)
            threshold = as_short((reached + own * share) * ONE + dither)
        else:
            reached = reached + own
            threshold = as_short(reached * ONE + dither)
        below = where(threshold > below, threshold, below)
        found = count_words_of(words, first, most, own_sizes, below)
        store(found - before, counts, b, o, i)
        before = found
    store(own_sizes - before, counts, b, last, i)


@stage
def sum_by_size(tables, starts, groups, b, i, sizes, sums):
    """Sum the advantages of group b, in sums (O, N), by the table of each run's size."""
    lines = multiset_numbers(groups.counts, b, i, tables.ranks) + take(starts, as_integer(load(sizes, b, i)))
    spread(tables.advantages, lines, groups.facts)
    sum_looked_up(groups, b, i, tables.ranks.shape[0] + 1, sums)


@driver(numba.void(PLAN, FUNCTIONS, RULES, UPDATES, STREAMS, STEP_ROOM, STATE))
def advance_allotted(plan, functions, rules, updates, streams, room, state):
    """Advance R runs from one number of updates to another, as `advance` does; a rule's fault ends it."""
    step, source, words, groups, rollout = functions.step, rules.source, room.words, room.groups, room.rollout
    size, policy, tokens, sizes = state.theta.shape[2], room.policies[0], room.tokens, plan.allotment.sizes
    values, memory = rules.advantage.rewards.values, plan.allotment.memory
    chunk, n_shares, batch_size = words.dithers.shape[0], LANES // size, groups.prompts.shape[0]
    for block in range(streams.lone.shape[0] // 4):
        before, rows = updates.start, slice(4 * block, 4 * block + 4)
        runs = min(LANES, state.wanted - block * LANES)
        while before < updates.stop:
            place = before % chunk
            if place == 0:
                left = updates.step_sizes.shape[0] - before
                fill_chunk(streams.lanes[rows], streams.lone[rows], runs, min(chunk, left), words)
                if state.sweep.period > 0:
                    functions.run.repeat_words(words, min(chunk, left), batch_size, state.sweep.period, runs)
            rollouts = min(chunk - place, updates.stop - before)
            for share in range(block * n_shares, min((block + 1) * n_shares, state.theta.shape[0])):
                run, theta = share * size, state.theta[share]
                n, lane = min(size, state.wanted - run), run % LANES
                for s in range(place, place + rollouts):
                    count = before + s - place + 1
                    draw_prompts_of(words, s, lane, n, source, groups)
                    step.fill_logits(theta, groups.prompts, step.array, room.rows, policy.logits)
                    for b in range(batch_size):
                        for i in range(0, n, WIDTH):
                            fill_tokens(policy, b, i, source.paths.vocabulary_size)
                            fill_responses(policy, b, i, source.paths)
                    plan.allot(plan.allotment, policy.tokens, policy.pi, groups.prompts, n, plan.seen[share])
                    if plan.allotment.fault[0] > 0.0:
                        return
                    for b in range(batch_size):
                        own = words.responses[response_row(words, s, batch_size) + b * source.group_size :]
                        sums, covector = rollout.sums[b], tokens.covectors[b]
                        for i in range(0, n, WIDTH):
                            dither = words.dithers[s]
                            count_outcomes_of(own, (lane + i, i), source, dither, policy.pi, b, sizes, groups)
                            sum_by_size(rules.advantage.tables, plan.starts, groups, b, i, sizes, sums[0])
                            counts = groups.counts[b]
                            add_weights(sums, counts, i, rules.tokens.paths, tokens.gains, tokens.drifts, covector)
                            centre_covector(covector, policy.tokens[b], i, rules.tokens.paths.vocabulary_size)
                        remember(groups, b, n, values, sizes, memory, plan.seen[share])
                    # The tables hold advantages over the group's size, so that a batch's estimate is the mean over its groups.
                    make_update(functions, updates, groups.prompts, room, state, share, count, 1.0 / batch_size)
            before += rollouts
