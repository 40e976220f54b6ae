"""Blocks of training runs: what they have in common, and how they go on from update to update."""

from dataclasses import dataclass
from functools import cache
from typing import Any

import numba
import numpy as np
from numpy.typing import ArrayLike

from grpo_theory.arrays import Array
from grpo_theory.compilation import F1, compile_function
from grpo_theory.estimation import Estimator
from grpo_theory.exact.weights import check_penalty
from grpo_theory.problem import Policy, Problem
from grpo_theory.simulate.advance import Parts, compiled_advance
from grpo_theory.simulate.ascent import Ascent, ascent
from grpo_theory.simulate.blocks import check_wanted
from grpo_theory.simulate.generator import LANES, STREAMS, Streams, fill_words, next_uniform
from grpo_theory.simulate.optimiser import Optimiser, check_optimiser
from grpo_theory.simulate.path import NO_TABLE, Path, find_path
from grpo_theory.simulate.record import NO_TRACE, Trace
from grpo_theory.simulate.setting import Recipe, State, Words, World
from grpo_theory.simulate.show import fault_message, make_batch
from grpo_theory.simulate.world import (
    Layout,
    make_parts,
    make_recipe,
    make_rollout,
    make_room,
    make_rule,
    make_world,
)
from grpo_theory.validation import as_count, as_positive, as_real_array, check_shape

BLOCK_RUNS = LANES
CHUNK_WORDS = 1 << 17
"""The words that are drawn at a time: they stay in a second-level cache."""


@dataclass(frozen=True)
class Ball:
    """The ball onto which iterates are projected.

    Parameters
    ----------
    centre : array_like, shape (d,)
    radius : float
    """

    centre: ArrayLike
    radius: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "centre", as_real_array("centre", self.centre, 1))
        as_positive("radius", self.radius)

    def as_array(self, policy: Policy) -> Array:
        """Return the centre followed by the radius, shape (d + 1,)."""
        centre = np.asarray(self.centre)
        check_shape("centre", centre, (policy.dimension,), "(d,), the policy's parameters")
        return np.append(centre, self.radius)


def starting_points(policy: Policy, theta0: ArrayLike, replications: int) -> Array:
    """Return one start for each run, shape (R, d)."""
    if np.ndim(theta0) < 2:
        return np.tile(policy.check_theta(theta0, "theta0"), (replications, 1))
    starts = as_real_array("theta0", theta0, 2)
    check_shape("theta0", starts, (replications, policy.dimension), "(replications, d)")
    return starts


@dataclass(frozen=True)
class Course:
    """What training runs have in common, tabulated and compiled before the first thread starts."""

    problem: Problem
    estimator: Estimator
    step_sizes: Array
    layout: Layout
    ball: Array
    ascent: Ascent
    optimiser: Optimiser
    path: Path
    world: World
    recipe: Recipe
    parts: Parts

    @classmethod
    def of(
        cls,
        problem: Problem,
        estimator: Estimator,
        step_sizes: Array,
        *,
        batch_size: int,
        group_size: int,
        inner_steps: int,
        optimiser: Optimiser,
        ball: Ball | None,
        keeps: bool = False,
    ) -> "Course":
        """Check what defines training runs, and return it; `keeps` says whether they leave a trace."""
        if ball is not None and not isinstance(ball, Ball):
            raise TypeError(f"ball must be a Ball(centre, radius) or None, got {ball!r}")
        batch_size, group_size = as_count("batch_size", batch_size), as_count("group_size", group_size)
        estimator.check_group_size(group_size)
        check_optimiser(optimiser)
        if batch_size % inner_steps:
            raise ValueError(f"inner_steps must divide batch_size = {batch_size}, got {inner_steps}")
        layout = Layout(batch_size, group_size, inner_steps)
        check_penalty(problem.kl, estimator)
        projected = np.empty(0) if ball is None else ball.as_array(problem.policy)
        compiled_advance()
        compiled_fill_block()
        found, path = ascent(problem.policy, batch_size), find_path(problem, estimator, group_size)
        world = make_world(problem, estimator)
        recipe = make_recipe(problem, estimator, layout, keeps or path.table is NO_TABLE)
        parts = make_parts(estimator, recipe, path, found, optimiser, keeps)
        return cls(problem, estimator, step_sizes, layout, projected, found, optimiser, path, world, recipe, parts)

    def start(self, streams: Streams, starts: Array, trace: Trace = NO_TRACE) -> "Runs":
        """Return a block of runs at their starts (R, d), R at most a block's number."""
        return Runs(self, streams, starts, trace)


class Runs:
    """A block of runs on their way, side by side or, where their parameters are many, one after another.

    Words are drawn for a whole block, and rollout by rollout, so that no number depends on how many runs are wanted, how long
    they are or where they are looked at.

    Attributes
    ----------
    count : int
        The number of updates made.
    """

    def __init__(self, course: Course, streams: Streams, starts: Array, trace: Trace) -> None:
        self.course, self.streams, self.trace = course, streams, trace
        layout, size = course.layout, course.ascent.side_by_side
        self.shares = [slice(first, min(first + size, len(starts))) for first in range(0, len(starts), size)]
        self.states = [_state(starts[share], course.optimiser.n_moments) for share in self.shares]
        shown = LANES * layout.batch_size if course.path.is_called else 0
        self.rule = make_rule(course.estimator, layout, course.path)
        self.batch = make_batch(shown, layout.group_size, course.estimator.advantage.parameter_array)
        self.rollout = make_rollout(course.problem, course.estimator, layout, course.path)
        self.room = make_room(course.problem, course.estimator, course.recipe, layout, course.ascent.rows)
        self.rows = layout.batch_size + -(-layout.batch_size * layout.group_size // 2)
        self.chunk = max(1, CHUNK_WORDS // (LANES * self.rows))
        self.words = np.empty((-(-self.chunk * self.rows // 8) * 8, LANES), dtype=np.uint64)
        self.dithers = np.empty(self.chunk)
        self.count = 0

    @property
    def theta(self) -> Array:
        """The iterates, shape (R, d)."""
        return np.concatenate([state.theta.T for state in self.states])

    @property
    def average(self) -> Array:
        """The averages of the iterates so far, shape (R, d)."""
        return np.concatenate([state.average.T for state in self.states])

    @property
    def farthest(self) -> Array:
        """The largest distance of an iterate from the start, shape (R,)."""
        return np.sqrt(np.concatenate([state.farthest for state in self.states]))

    def advance(self, count: int) -> None:
        """Make updates until there have been so many."""
        updates, steps = self.course.layout.updates, self.course.step_sizes
        while self.count < count:
            check_wanted()
            place = self.count // updates % self.chunk
            if place == 0:
                compiled_fill_block()(self.streams, self.words, self.dithers)
            rollouts = min(self.chunk - place, (count - self.count) // updates)
            stop = self.count + rollouts * updates
            for share, state in zip(self.shares, self.states, strict=True):
                self._advance(self._words(place, rollouts, share.start), steps[self.count : stop], state, share)
            self.count = stop

    def _advance(self, words: Words, steps: Array, state: State, share: slice) -> None:
        """Advance the runs of one share."""
        compiled_advance()(
            self.course.parts,
            self.course.world,
            self.course.recipe,
            self.rule,
            words,
            steps,
            self.count,
            self.course.ball,
            self.batch,
            self.rollout,
            self.room,
            state,
            self.trace.of(share),
        )
        if self.rollout.fault[0] > 0.0:
            raise ValueError(fault_message(self.course.estimator.advantage, self.rollout.fault[1:]))

    def _words(self, place: int, rollouts: int, first: int) -> Words:
        """Return the words of some rollouts of the chunk, for the runs from the lane `first` on."""
        words = self.words[place * self.rows : (place + rollouts) * self.rows]
        halves = words.view(np.int32).reshape(rollouts, 2 * self.rows, LANES)
        return Words(words.reshape(rollouts, self.rows, LANES), halves, self.dithers[place : place + rollouts], first)


def _state(starts: Array, n_moments: int) -> State:
    """Return the state of runs that are about to start, (R, d)."""
    columns = np.ascontiguousarray(starts.T)
    moments = np.zeros((n_moments, *columns.shape)) if n_moments else np.empty((0, 0, 0))
    gradient = np.zeros_like(columns) if n_moments else np.empty((0, 0))
    return State(columns, np.zeros_like(columns), columns.copy(), np.zeros(len(starts)), gradient, moments)


def fill_block(streams, words, dithers):
    """Fill the words (n, 128) of a chunk of rollouts, and their dithers (S,)."""
    fill_words(streams.lanes, words)
    for s in range(dithers.shape[0]):
        dithers[s] = next_uniform(streams.lone)


@cache
def compiled_fill_block() -> Any:
    """Compile `fill_block`, or read it from the cache."""
    return compile_function(fill_block, numba.void(STREAMS, numba.uint64[:, ::1], F1))
