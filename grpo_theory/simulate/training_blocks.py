"""Blocks of training runs: what they have in common, and how they go on from update to update."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from grpo_theory.compiler.lanes import WIDTH, zeros
from grpo_theory.estimation import Estimator
from grpo_theory.exact.score_moments import check_penalty
from grpo_theory.problem import Policy, Problem
from grpo_theory.simulate.advantage.call_room import fault_message
from grpo_theory.simulate.advantage.rollout import faulty_rewards
from grpo_theory.simulate.advantage.route import IN_ORDER, Route, route_in_training
from grpo_theory.simulate.draw.sizes import StepSizes, as_sizes
from grpo_theory.simulate.draw.streams import LANES, Streams
from grpo_theory.simulate.training_tables import (
    SAME_STEPS,
    advantage_functions,
    covector_functions,
    make_advantage_rule,
    make_groups,
    make_policy_room,
    make_rollout,
    make_source,
    make_state,
    make_token_room,
    make_token_rule,
    make_words,
    run_functions,
    step_functions,
    token_paths,
)
from grpo_theory.simulate.update.advance import Functions, Rules, StepRoom, Updates, advance
from grpo_theory.simulate.update.ascent import ascent
from grpo_theory.simulate.update.iterates import Ball
from grpo_theory.simulate.update.optimiser import Optimiser, check_optimiser, moments_kept
from grpo_theory.simulate.update.step_types import Ascent
from grpo_theory.simulate.update.trace import NO_TRACE, Trace
from grpo_theory.simulate.workers import borrowed, check_wanted
from grpo_theory.validation import Array, as_real_array, check_shape

BLOCK_RUNS = LANES
CALL_WORDS = 1 << 22
"""The words that a call of the driver uses at most: for tens of milliseconds, in which nobody can interrupt it."""
NEAR_NUMBERS = 1 << 13
"""Twice what a first level of cache holds: with fewer numbers in a step, 128 runs side by side were faster than 64."""
CALL_NUMBERS = 1 << 17
"""The numbers that the iterates of several blocks have at most, so that memory is flat."""
MOST_HELD = 1 << 29
"""The numbers of the iterates that the runs of a block may hold because of a lag: 4 GiB."""


def starting_points(policy: Policy, theta0: ArrayLike, replications: int) -> Array:
    """Return one start for each run, shape (R, d)."""
    if np.ndim(theta0) < 2:
        return np.tile(policy.check_theta(theta0, "theta0"), (replications, 1))
    starts = as_real_array("theta0", theta0, 2)
    check_shape("theta0", starts, (replications, policy.dimension), "(replications, d)")
    return starts


def checked_sizes(
    problem: Problem, estimator: Estimator, sizes: tuple[int, ...], optimiser: Optimiser, ball: Ball | None
) -> StepSizes:
    """Check what defines training runs; return the sizes: those that `StepSizes` has, in its order."""
    if ball is not None and not isinstance(ball, Ball):
        raise TypeError(f"ball must be a Ball(centre, radius) or None, got {ball!r}")
    (batch_size, group_size), (inner_steps, *lag) = as_sizes(*sizes[:2]), sizes[2:]
    estimator.check_defined(group_size, problem.bandit.values, problem.policy.lengths)
    check_optimiser(optimiser)
    if batch_size % inner_steps:
        raise ValueError(f"inner_steps must divide batch_size = {batch_size}, got {inner_steps}")
    if lag and lag[0] > (most := MOST_HELD // (BLOCK_RUNS * problem.policy.dimension)):
        raise ValueError(
            f"lag must be at most {most:,} for a policy of {problem.policy.dimension:,} parameters, because so many iterates of "
            f"each run are held in memory, got {lag[0]:,}"
        )
    check_penalty(problem.kl, estimator)
    return StepSizes(batch_size, group_size, inner_steps, *lag)


@dataclass(frozen=True, eq=False)
class TrainingBlocks:
    """What training runs have in common, tabulated and compiled before the first thread starts."""

    problem: Problem
    estimator: Estimator
    sizes: StepSizes
    updates: Updates
    route: Route
    ascent: Ascent
    optimiser: Optimiser
    functions: Functions
    rules: Rules
    _rooms: list[StepRoom] = field(default_factory=list)

    @classmethod
    def of(
        cls,
        problem: Problem,
        estimator: Estimator,
        step_sizes: Array,
        sizes: tuple[int, ...],
        *,
        optimiser: Optimiser,
        ball: Ball | None = None,
        keeps: bool = False,
        side_by_side: bool = False,
    ) -> "TrainingBlocks":
        """Check what defines training runs, and return it.

        sizes are what `StepSizes` has, in its order.  `keeps` says whether runs leave a trace, and `side_by_side` whether they
        are started at several step sizes side by side.
        """
        checked = checked_sizes(problem, estimator, sizes, optimiser, ball)
        batch_size, group_size = checked.batch_size, checked.group_size
        updates = Updates(step_sizes, 0, len(step_sizes), np.empty(0) if ball is None else ball.as_array(problem.policy))
        advance.compile()
        found, route = ascent(problem.policy, batch_size), route_in_training(problem, estimator, group_size)
        paths = token_paths(problem.policy.paths)
        rule = make_advantage_rule(problem, estimator, route, paths, keeps=keeps)
        token_rule = make_token_rule(problem, estimator, rule.rewards, checked)
        rules = Rules(make_source(problem, group_size, paths), rule, token_rule)
        functions = Functions(
            advantage_functions(problem, estimator, rule, route),
            covector_functions(estimator, rules.tokens),
            step_functions(found, optimiser),
            run_functions(updates, checked.lag, alone=found.alone, keeps=keeps, side_by_side=side_by_side),
        )
        return cls(problem, estimator, checked, updates, route, found, optimiser, functions, rules)

    @property
    def share_runs(self) -> int:
        """The number of runs that go on side by side; it divides a block.

        A separate function is called for all runs at once, because a call takes longer than its work for a few runs.  But a step
        of many runs, each with many numbers, does not fit into the nearest cache.
        """
        if self.ascent.alone:
            return 1
        paths, n_outcomes = self.problem.policy.paths, self.problem.bandit.n_responses * self.problem.bandit.values.size
        own = self.sizes.batch_size * (4 * paths.n_logits + 2 * n_outcomes)
        numbers = own + self.ascent.rows + 3 * self.problem.policy.dimension
        calls = self.rules.advantage.wants_rewards or self.rules.tokens.weighs_anew
        return LANES if calls or numbers * LANES <= NEAR_NUMBERS else 2 * WIDTH

    @property
    def blocks_at_once(self) -> int:
        """How many blocks can go from start to end in one call of the driver: many of short runs, one of long ones.

        A call takes a twentieth of a millisecond besides its work, and a block of short runs a whole one.
        """
        words = LANES * self.sizes.n_words * len(self.updates.step_sizes) // self.sizes.updates
        iterates = BLOCK_RUNS * self.problem.policy.dimension * (1 + self.sizes.lag)
        return max(1, min(CALL_WORDS // words, CALL_NUMBERS // iterates))

    @contextmanager
    def start(self, streams: Streams, starts: Array, trace: Trace = NO_TRACE) -> Iterator["Runs"]:
        """Give the runs of some blocks at their starts (R, d); what they were computed in is used again.

        To leave a trace, blocks must have been made with `keeps`.
        """
        with borrowed(self._rooms, lambda: make_step_room(self)) as room:
            yield Runs(self, room, streams, starts, trace)

    @contextmanager
    def start_side_by_side(self, factors: Array, streams: Streams, starts: Array, trace: Trace) -> Iterator["Runs"]:
        """Give runs whose steps have factors (S,), each that of R / S runs; all see the words of the first R / S.

        The blocks must have been made for runs that go on side by side.
        """
        with borrowed(self._rooms, lambda: make_step_room(self)) as room:
            yield Runs(self, room, streams, starts, trace, factors)


def make_step_room(blocks: TrainingBlocks) -> StepRoom:
    """Make room for the steps of runs."""
    problem, estimator, sizes, rules = blocks.problem, blocks.estimator, blocks.sizes, blocks.rules
    lanes, paths = max(blocks.share_runs, WIDTH), problem.policy.paths
    tables = rules.source.laws, rules.advantage.rewards.means, rules.tokens.log_reference
    facts = zeros(max(2, rules.advantage.tables.advantages.shape[1], *(table.rows.shape[1] for table in tables)), WIDTH)
    n_outcomes, in_order = problem.bandit.n_responses * problem.bandit.values.size, blocks.route.kind == IN_ORDER
    rows = zeros(blocks.ascent.rows, lanes)
    rollout = make_rollout(problem, estimator, blocks.route, sizes, facts, rows)
    wants_logs = rules.advantage.rewards.strength > 0.0 or rules.tokens.weighs_anew
    then = make_policy_room(paths, sizes.batch_size, lanes, wants_logs=wants_logs)
    now = make_policy_room(paths, sizes.n_updated, lanes, wants_logs=wants_logs) if sizes.moves else then
    return StepRoom(
        words=make_words(sizes),
        groups=make_groups(sizes.batch_size, n_outcomes, facts, lanes, in_order=in_order),
        policies=(then, now),
        rollout=rollout,
        tokens=make_token_room(problem, estimator, rules.tokens, sizes, rollout.rewards),
        rows=rows,
    )


class Runs:
    """The runs of some blocks on their way: side by side in shares or, where their parameters are many, one after another.

    Words are drawn for a whole block, and rollout by rollout.  So no number depends on how many runs are wanted, on their length
    or on the checkpoints.  All blocks but the last are whole.

    Attributes
    ----------
    count : int
        The number of updates made.
    """

    def __init__(
        self,
        blocks: TrainingBlocks,
        room: StepRoom,
        streams: Streams,
        starts: Array,
        trace: Trace,
        factors: Array = SAME_STEPS,
    ) -> None:
        self.blocks, self.room, self.streams, self.trace = blocks, room, streams, trace
        size = min(blocks.share_runs, -(-len(starts) // WIDTH) * WIDTH)
        self.state = make_state(starts, size, moments_kept(blocks.optimiser), blocks.sizes.lag, factors)
        self.count = 0

    @property
    def theta(self) -> Array:
        """The iterates, shape (R, d)."""
        return self._by_run(self.state.theta)

    @property
    def average(self) -> Array:
        """The averages of the iterates so far, shape (R, d)."""
        return self._by_run(self.state.average)

    @property
    def farthest(self) -> Array:
        """The largest distance of an iterate from the start, shape (R,)."""
        return np.sqrt(self.state.farthest.reshape(-1)[: self.state.wanted])

    def _by_run(self, columns: Array) -> Array:
        """Return columns of shares (shares, d, N) one after another, shape (R, d)."""
        return columns.transpose(0, 2, 1).reshape(-1, columns.shape[1])[: self.state.wanted]

    def advance(self, count: int) -> None:
        """Make updates until there have been so many."""
        blocks, room = self.blocks, self.room
        n_blocks, end = len(self.streams.lone) // 4, blocks.updates.stop
        if n_blocks > 1 and not {self.count, count} <= {0, end}:
            raise ValueError(f"count must be {end}, because {n_blocks} blocks go to their end at once, got {count}")
        at_once = blocks.sizes.updates * max(1, CALL_WORDS // (LANES * room.words.rows))
        while self.count < count:
            check_wanted()
            stop = min(self.count + at_once, count)
            updates = blocks.updates._replace(start=self.count, stop=stop)
            self.drive(updates)
            if room.rollout.fault[0]:
                rewards = faulty_rewards(room.groups, room.rollout)
                raise ValueError(fault_message(blocks.estimator.advantage, rewards))
            self.count = stop

    def drive(self, updates: Updates) -> None:
        """Advance the runs by the compiled driver, from the updates made to those wanted."""
        blocks = self.blocks
        advance.run(blocks.functions, blocks.rules, updates, self.streams, self.room, self.state, self.trace)
