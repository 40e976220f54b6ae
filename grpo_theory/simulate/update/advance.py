"""The compiled driver of training runs: words to iterates, many runs side by side: draw, advantage, covector, update.

A run is a lane.  A share of the runs makes many steps before the next one does, so that a step's numbers stay in the first
level of cache.  A rollout serves M updates, each on the groups of B/M of its prompts.  Where rollouts lag, the policy that
draws is that of some rollouts ago, and the iterates in between wait in a ring.  What only some estimators or runs need is a
function of its own: score norms, ratios, balls, records, the kernel itself.  It is compiled when it is first wanted.
"""

from typing import Any, NamedTuple

import numba
from numba import types

from grpo_theory.compiler import F1, F2, F3, F4, FirstClassType, driver, function_value, record_type, stage
from grpo_theory.compiler.lanes import WIDTH
from grpo_theory.simulate.advantage.rollout import (
    ADVANTAGE_FUNCTIONS,
    ADVANTAGE_RULE,
    ROLLOUT,
    AdvantageFunctions,
    AdvantageRule,
    Rollout,
    find_advantages,
)
from grpo_theory.simulate.covector.ratios import (
    COVECTOR_FUNCTIONS,
    TOKEN_ROOM,
    TOKEN_RULE,
    CovectorFunctions,
    TokenRoom,
    TokenRule,
    fill_covectors_of_update,
)
from grpo_theory.simulate.draw.policy_draw import (
    GROUPS,
    OUTCOME_SOURCE,
    POLICY_ROOM,
    REPEAT_WORDS,
    WORDS,
    Groups,
    OutcomeSource,
    PolicyRoom,
    Words,
    draw_outcomes,
    draw_prompts_of,
    fill_chunk,
    response_row,
)
from grpo_theory.simulate.draw.streams import LANES, STREAMS
from grpo_theory.simulate.update.iterates import FOLLOW_ALONE, PROJECT, clear_gradient, follow
from grpo_theory.simulate.update.optimiser import MOVE
from grpo_theory.simulate.update.step_types import FILL_LOGITS, TAKE_STEP
from grpo_theory.simulate.update.trace import KEEP_ITERATES, KEEP_ROLLOUT, TRACE
from grpo_theory.validation import Array


class StepFunctions(NamedTuple):
    """Functions that differ between policies and optimisers, and the arrays that these read.

    An optimiser's move is there only where it is called (see `value_or_null`).
    """

    fill_logits: Any
    take_step: Any
    array: Array
    move: Any
    settings: Array


class RunFunctions(NamedTuple):
    """What is called only where runs are one at a time, have a ball, differ by their steps' lengths, lag, or leave a trace."""

    follow_alone: Any
    project: Any
    repeat_words: Any
    copy_iterates: Any
    stretch_step: Any
    keep_rollout: Any
    keep_iterates: Any


class Functions(NamedTuple):
    """The functions of all that a driver does besides the draw."""

    advantage: AdvantageFunctions
    covector: CovectorFunctions
    step: StepFunctions
    run: RunFunctions


class Rules(NamedTuple):
    """What is drawn, how rewards become advantages, and what tokens weigh."""

    source: OutcomeSource
    advantage: AdvantageRule
    tokens: TokenRule


class Updates(NamedTuple):
    """Which updates are made.

    Attributes
    ----------
    step_sizes : ndarray, shape (n,)
        Of all updates of a run.
    start, stop : int
        The numbers of updates made before and after.
    ball : ndarray, shape (d + 1,)
        The centre followed by the radius of the ball onto which iterates are projected, or empty.
    """

    step_sizes: Array
    start: int
    stop: int
    ball: Array


class StepRoom(NamedTuple):
    """What a step is computed in: nothing that is in it before the first one is read.

    Attributes
    ----------
    words : Words
    groups : Groups
    policies : two PolicyRooms
        The policy that draws, at the B prompts, and the policy that is updated, at B/M of them.  They are the same if M is 1 and
        there is no lag.
    rollout : Rollout
    tokens : TokenRoom
    rows : ndarray, shape (rows, N)
        For the logits and the step of the policy.
    """

    words: Words
    groups: Groups
    policies: tuple[PolicyRoom, PolicyRoom]
    rollout: Rollout
    tokens: TokenRoom
    rows: Array


class Sweep(NamedTuple):
    """Runs on the same draws that differ by the lengths of their steps.

    Attributes
    ----------
    period : int
        Runs whose numbers in a block differ by a multiple of it see the same words; 0 if all runs see their own.
    factors : ndarray, shape (shares, N)
        What multiplies each run's steps; (shares, 0) where all make the same steps.
    before : ndarray, shape (d, N)
        Room for the iterates before a step, or (0, 0).
    """

    period: int
    factors: Array
    before: Array


class State(NamedTuple):
    """The state of the runs of some blocks, advanced in place.

    The runs are kept in shares of N.  Of the last share, not all runs may be wanted.

    Attributes
    ----------
    wanted : int
        The number of runs R.
    theta, average, start : ndarray, shape (shares, d, N)
        The iterates, their averages so far, and where they began.
    past : ndarray, shape (shares, S, d, N)
        The iterates before each of the last S rollouts, where rollouts are drawn from the policy of S rollouts ago.  The iterates
        before rollout t are at index t modulo S, until rollout t + S has been drawn from them.
    farthest : ndarray, shape (shares, N)
        The largest squared distance of an iterate from the start.
    moments : ndarray, shape (shares, P, d, N), or (shares, 0, 0, 0)
        What the optimiser remembers.
    gradient : ndarray, shape (d, N), or (0, 0)
        Room for an estimate, where the optimiser needs it.
    distances : ndarray, shape (N,)
        Room for a distance.
    sweep : Sweep
    """

    wanted: int
    theta: Array
    average: Array
    start: Array
    past: Array
    farthest: Array
    moments: Array
    gradient: Array
    distances: Array
    sweep: Sweep


STEP_FUNCTIONS = record_type(
    StepFunctions,
    FirstClassType(FILL_LOGITS),
    FirstClassType(TAKE_STEP),
    F3,
    FirstClassType(MOVE),
    F1,
)
COPY_ITERATES, STRETCH_STEP = numba.void(F2, F2), numba.void(F2, F2, F1)
RUN_FUNCTIONS = record_type(
    RunFunctions,
    *map(FirstClassType, (FOLLOW_ALONE, PROJECT, REPEAT_WORDS, COPY_ITERATES, STRETCH_STEP, KEEP_ROLLOUT, KEEP_ITERATES)),
)
FUNCTIONS = record_type(Functions, ADVANTAGE_FUNCTIONS, COVECTOR_FUNCTIONS, STEP_FUNCTIONS, RUN_FUNCTIONS)
RULES = record_type(Rules, OUTCOME_SOURCE, ADVANTAGE_RULE, TOKEN_RULE)
UPDATES = record_type(Updates, F1, numba.int64, numba.int64, F1)
STEP_ROOM = record_type(StepRoom, WORDS, GROUPS, types.UniTuple(POLICY_ROOM, 2), ROLLOUT, TOKEN_ROOM, F2)
SWEEP = record_type(Sweep, numba.int64, F2, F2)
STATE = record_type(State, numba.int64, F3, F3, F3, F4, F2, F4, F2, F1, SWEEP)


@function_value(COPY_ITERATES)
def copy_iterates(theta, before):
    """Keep the iterates (d, N): those before a step, or in the place of those from which a rollout has been drawn."""
    for j in range(theta.shape[0]):
        for i in range(theta.shape[1]):
            before[j, i] = theta[j, i]


@function_value(STRETCH_STEP)
def stretch_step(theta, before, factors):
    """Multiply the step that led from one iterate (d, N) to the next by each run's factor (N,)."""
    for j in range(theta.shape[0]):
        for i in range(theta.shape[1]):
            theta[j, i] = before[j, i] + factors[i] * (theta[j, i] - before[j, i])


@stage
def make_update(functions, updates, prompts, room, state, share, count, weight):
    """Make the `count`-th update of a share of runs, along a weight times the covectors at the prompts, and take note of it."""
    step, run = functions.step, functions.run
    theta, covectors, step_size = state.theta[share], room.tokens.covectors, updates.step_sizes[count - 1]
    before, factors = state.sweep.before, state.sweep.factors[share]
    if factors.shape[0] > 0:
        run.copy_iterates(theta, before)
    if state.moments.shape[1] == 0:
        step.take_step(theta, prompts, step.array, room.rows, covectors, step_size * weight)
    else:
        clear_gradient(state.gradient)
        step.take_step(state.gradient, prompts, step.array, room.rows, covectors, weight)
        step.move(theta, state.gradient, state.moments[share], step.settings, step_size, count)
    if factors.shape[0] > 0:
        run.stretch_step(theta, before, factors)
    if updates.ball.shape[0] > 0:
        run.project(theta, updates.ball, state.distances)
    if theta.shape[1] < WIDTH:
        run.follow_alone(theta, share, count, state.start, state.average, state.farthest)
    else:
        follow(theta, share, count, state.start, state.average, state.farthest)


@driver(numba.void(FUNCTIONS, RULES, UPDATES, STREAMS, STEP_ROOM, STATE, TRACE))
def advance(functions, rules, updates, streams, room, state, trace):
    """Advance R runs from one number of updates to another: block by block, chunk of rollouts by chunk, and share by share.

    Several blocks go from the first update to the last at once, because the words are those of the last block's last chunk.
    The streams, the words and the state are advanced in place, and the trace is filled.  A kernel's fault ends it, and is noted
    in the rollout.
    """
    step, token_rule, words, groups, rollout = functions.step, rules.tokens, room.words, room.groups, room.rollout
    per_rollout, size, keeps = token_rule.updates, state.theta.shape[2], trace.path.shape[0] > 0
    policy, now = room.policies
    lag = state.past.shape[1]
    chunk, n_shares, batch_size = words.dithers.shape[0], LANES // size, groups.prompts.shape[0]
    n_updated = batch_size // per_rollout
    share_of_all = 1.0 / (n_updated * token_rule.group_size)
    for block in range(streams.lone.shape[0] // 4):
        before, rows = updates.start, slice(4 * block, 4 * block + 4)
        runs = min(LANES, state.wanted - block * LANES)
        while before < updates.stop:
            place = before // per_rollout % chunk
            if place == 0:
                left = (updates.step_sizes.shape[0] - before) // per_rollout
                fill_chunk(streams.lanes[rows], streams.lone[rows], runs, min(chunk, left), words)
                if state.sweep.period > 0:
                    functions.run.repeat_words(words, min(chunk, left), batch_size, state.sweep.period, runs)
            rollouts = min(chunk - place, (updates.stop - before) // per_rollout)
            for share in range(block * n_shares, min((block + 1) * n_shares, state.theta.shape[0])):
                run, theta = share * size, state.theta[share]
                n, lane = min(size, state.wanted - run), run % LANES
                for s in range(place, place + rollouts):
                    made = before + (s - place) * per_rollout
                    draw_prompts_of(words, s, lane, n, rules.source, groups)
                    if lag > 0:
                        past = state.past[share, made // per_rollout % lag]
                        step.fill_logits(past, groups.prompts, step.array, room.rows, policy.logits)
                        functions.run.copy_iterates(theta, past)
                    else:
                        step.fill_logits(theta, groups.prompts, step.array, room.rows, policy.logits)
                    for b in range(batch_size):
                        draw_outcomes(words, s, lane, b, n, rules.source, policy, groups)
                    find_advantages(functions.advantage, rules.advantage, policy, n, groups, rollout)
                    if rules.advantage.is_called:
                        drawn = words.responses[response_row(words, s, batch_size) :]
                        kernel = rules.advantage.kernel
                        functions.advantage.sum_called(kernel, drawn, lane, n, groups, rollout, policy.logits)
                        if rollout.fault[0] > 0:
                            return
                    if keeps:
                        rewards = rollout.rewards.seen.rewards
                        functions.run.keep_rollout(made // per_rollout, groups, rewards, policy.tokens, trace, run, size)
                    for j in range(per_rollout):
                        count, first = made + j + 1, j * n_updated
                        prompts = groups.prompts[first : first + n_updated]
                        if token_rule.moves:
                            step.fill_logits(theta, prompts, step.array, room.rows, now.logits)
                        fill_covectors_of_update(
                            functions.covector, token_rule, groups, rollout.sums, room.policies, first, n, room.tokens
                        )
                        make_update(functions, updates, prompts, room, state, share, count, share_of_all)
                        if keeps:
                            functions.run.keep_iterates(count, theta, trace, run)
            before += rollouts * per_rollout
