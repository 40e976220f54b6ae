"""Blocks of training runs: what they have in common, and how they go on from update to update."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from grpo_theory.arrays import Array, read_only
from grpo_theory.compiler.lanes import WIDTH
from grpo_theory.estimation import Estimator
from grpo_theory.estimation.kernel import Batch
from grpo_theory.exact.weights import check_penalty
from grpo_theory.problem import Policy, Problem
from grpo_theory.simulate.advantage.kernel_call import fault_message, make_batch, spare_rows
from grpo_theory.simulate.advantage.route import Path, find_path
from grpo_theory.simulate.advantage.sums import Rollout, Rule
from grpo_theory.simulate.draw.generator import LANES, Streams
from grpo_theory.simulate.draw.setting import Recipe, Room, Words, World
from grpo_theory.simulate.draw.sizes import as_sizes
from grpo_theory.simulate.update.advance import Parts, compiled_advance
from grpo_theory.simulate.update.ascent import Ascent, ascent
from grpo_theory.simulate.update.optimiser import Optimiser, check_optimiser
from grpo_theory.simulate.update.trace import NO_TRACE, Trace
from grpo_theory.simulate.update.world import (
    Layout,
    make_parts,
    make_recipe,
    make_rollout,
    make_room,
    make_rule,
    make_state,
    make_words,
    make_world,
    words_rows,
)
from grpo_theory.simulate.workers import borrowed, check_wanted
from grpo_theory.validation import as_positive, as_real_array, check_shape

BLOCK_RUNS = LANES
CALL_WORDS = 1 << 22
"""The words that a call of the driver uses at most: for tens of milliseconds, in which nobody can interrupt it."""
NEAR_NUMBERS = 1 << 13
"""Twice what a first level of cache holds: with fewer numbers in a step, 128 runs side by side were faster than 64."""
CALL_NUMBERS = 1 << 17
"""The numbers that the iterates of several blocks have at most, so that memory is flat."""


@dataclass(frozen=True, eq=False)
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
        object.__setattr__(self, "centre", read_only(as_real_array("centre", self.centre, 1)))
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


def share_of(problem: Problem, layout: Layout, found: Ascent, recipe: Recipe, calls: bool) -> int:
    """Return how many runs go on side by side, which divides a block; `calls`: a kernel is called, or a trace kept.

    What is a function of its own is called for all runs at once, because a call takes longer than its work for a few; but a step
    of many runs, each of many numbers, leaves the nearest cache.
    """
    if found.alone:
        return 1
    paths, n_outcomes = problem.policy.paths, problem.bandit.n_responses * problem.bandit.values.size
    numbers = layout.batch_size * (4 * paths.n_logits + 2 * n_outcomes) + found.rows + 3 * problem.policy.dimension
    return LANES if calls or recipe.weighs_anew or numbers * LANES <= NEAR_NUMBERS else 2 * WIDTH


@dataclass(frozen=True, eq=False)
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
    share_runs: int
    _places: list["Workplace"] = field(default_factory=list)

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
        batch_size, group_size = as_sizes(batch_size, group_size)
        estimator.check_defined(group_size, problem.bandit.values, problem.policy.paths.lengths)
        check_optimiser(optimiser)
        if batch_size % inner_steps:
            raise ValueError(f"inner_steps must divide batch_size = {batch_size}, got {inner_steps}")
        layout = Layout(batch_size, group_size, inner_steps)
        check_penalty(problem.kl, estimator)
        projected = np.empty(0) if ball is None else ball.as_array(problem.policy)
        compiled_advance()
        found, path = ascent(problem.policy, batch_size), find_path(problem, estimator, group_size)
        world = make_world(problem, estimator)
        recipe = make_recipe(problem, estimator, layout, keeps or path.is_called)
        parts = make_parts(estimator, recipe, path, found, optimiser, projects=ball is not None, keeps=keeps)
        share = share_of(problem, layout, found, recipe, path.is_called or keeps)
        return cls(problem, estimator, step_sizes, layout, projected, found, optimiser, path, world, recipe, parts, share)

    @property
    def blocks_at_once(self) -> int:
        """How many blocks can go from start to end in one call of the driver: many of short runs, one of long ones.

        A call takes a twentieth of a millisecond besides its work, and a block of short runs a whole one.
        """
        words = LANES * words_rows(self.layout) * len(self.step_sizes) // self.layout.updates
        return max(1, min(CALL_WORDS // words, CALL_NUMBERS // (BLOCK_RUNS * self.problem.policy.dimension)))

    @contextmanager
    def start(self, streams: Streams, starts: Array, trace: Trace = NO_TRACE) -> Iterator["Runs"]:
        """Give the runs of some blocks at their starts (R, d); what they were computed in is used again."""
        with borrowed(self._places, lambda: make_workplace(self)) as place:
            yield Runs(self, place, streams, starts, trace)


class Workplace(NamedTuple):
    """What the runs of some blocks are computed in: nothing that is in it before the first begins is read."""

    rule: Rule
    words: Words
    batch: Batch
    rollout: Rollout
    room: Room


def make_workplace(course: Course) -> Workplace:
    """Make room for the runs of a course."""
    problem, estimator, layout = course.problem, course.estimator, course.layout
    lanes = max(course.share_runs, WIDTH)
    shown = course.share_runs * layout.batch_size + spare_rows(layout.group_size) if course.path.is_called else 0
    world, rule = course.world, make_rule(estimator, layout, course.path)
    facts = max(table.rows.shape[1] for table in (world.laws, world.rewards, world.log_reference, rule.advantages))
    return Workplace(
        rule,
        make_words(layout),
        make_batch(shown, layout.group_size, estimator.advantage.parameter_array),
        make_rollout(problem, estimator, layout, course.path, lanes),
        make_room(problem, estimator, course.recipe, layout, course.ascent.rows, facts, lanes),
    )


class Runs:
    """The runs of some blocks on their way: side by side in shares or, where their parameters are many, one after another.

    Words are drawn for a whole block, and rollout by rollout, so that no number depends on how many runs are wanted, how long
    they are or where they are looked at.  All blocks but the last are whole.

    Attributes
    ----------
    count : int
        The number of updates made.
    """

    def __init__(self, course: Course, place: Workplace, streams: Streams, starts: Array, trace: Trace) -> None:
        self.course, self.place, self.streams, self.trace = course, place, streams, trace
        size = min(course.share_runs, -(-len(starts) // WIDTH) * WIDTH)
        self.state = make_state(starts, size, course.optimiser.n_moments)
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
        course, place = self.course, self.place
        n_blocks, end = len(self.streams.lone) // 4, len(course.step_sizes)
        if n_blocks > 1 and not {self.count, count} <= {0, end}:
            raise ValueError(f"count must be {end}, because {n_blocks} blocks go to their end at once, got {count}")
        at_once = course.layout.updates * max(1, CALL_WORDS // (LANES * place.words.rows))
        while self.count < count:
            check_wanted()
            stop = min(self.count + at_once, count)
            compiled_advance()(
                course.parts,
                course.world,
                course.recipe,
                place.rule,
                self.streams,
                place.words,
                course.step_sizes,
                self.count,
                stop,
                course.ball,
                place.batch,
                place.rollout,
                place.room,
                self.state,
                self.trace,
            )
            if place.rollout.fault[0] > 0.0:
                raise ValueError(fault_message(course.estimator.advantage, place.rollout.fault[1:]))
            self.count = stop
