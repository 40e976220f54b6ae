"""Blocks of training runs: what they have in common, and how they go on from update to update."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from grpo_theory.arrays import Array
from grpo_theory.estimation import Batch, Estimator
from grpo_theory.exact.weights import check_penalty
from grpo_theory.problem import Policy, Problem
from grpo_theory.simulate.advance import Parts, Recipe, Room, State, World, compiled_advance
from grpo_theory.simulate.record import NO_TRACE, Trace
from grpo_theory.simulate.world import Layout, make_batch, make_parts, make_recipe, make_room, make_world
from grpo_theory.validation import as_count, as_positive, as_real_array, check_shape

BLOCK_RUNS = 64
SIDE_BY_SIDE = 1 << 14
"""Numbers that the runs which lie side by side may have: they stay in a second-level cache."""
CHUNK_UNIFORMS = 1 << 17


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


def runs_side_by_side(policy: Policy, batch_size: int, group_size: int) -> int:
    """Return the number of runs of a block that advance together."""
    numbers = max(policy.dimension, batch_size * (group_size + policy.n_logits))
    return max(1, min(BLOCK_RUNS, SIDE_BY_SIDE // numbers))


def starting_points(policy: Policy, theta0: ArrayLike, replications: int) -> Array:
    """Return one start for each run, shape (R, d)."""
    if np.ndim(theta0) < 2:
        return np.tile(policy.check_theta(theta0, "theta0"), (replications, 1))
    starts = as_real_array("theta0", theta0, 2)
    check_shape("theta0", starts, (replications, policy.dimension), "(replications, d)")
    return starts


@dataclass(frozen=True)
class Course:
    """What training runs have in common, tabulated and compiled before the first thread starts.

    The layout is that of the runs which advance together.
    """

    problem: Problem
    estimator: Estimator
    step_sizes: Array
    layout: Layout
    ball: Array
    parts: Parts
    world: World

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
        ball: Ball | None,
    ) -> "Course":
        """Check what defines training runs, and return it."""
        if ball is not None and not isinstance(ball, Ball):
            raise TypeError(f"ball must be a Ball(centre, radius) or None, got {ball!r}")
        batch_size, group_size = as_count("batch_size", batch_size), as_count("group_size", group_size)
        estimator.check_group_size(group_size)
        if batch_size % inner_steps:
            raise ValueError(f"inner_steps must divide batch_size = {batch_size}, got {inner_steps}")
        layout = Layout(runs_side_by_side(problem.policy, batch_size, group_size), batch_size, group_size, inner_steps)
        check_penalty(problem.kl, estimator)
        projected = np.empty(0) if ball is None else ball.as_array(problem.policy)
        compiled_advance()
        parts, world = make_parts(problem, estimator), make_world(problem, estimator)
        return cls(problem, estimator, step_sizes, layout, projected, parts, world)

    def start(self, generator: np.random.Generator, starts: Array, trace: Trace = NO_TRACE) -> "Runs":
        """Return a block of runs at their starts (R, d), R at most a block's number."""
        return Runs(self, generator, starts, trace)


class Runs:
    """A block of runs on their way, some of them side by side at a time.

    Uniforms are drawn for a whole block, and rollout by rollout, so that no number depends on how many runs are wanted, how long
    they are or where they are looked at.

    Attributes
    ----------
    count : int
        The number of updates made.
    state : State
        The runs' iterates (R, d), their averages, and their largest squared distances from the start.
    """

    def __init__(self, course: Course, generator: np.random.Generator, starts: Array, trace: Trace) -> None:
        self.course = course
        self.generator = generator
        self.state = State(starts.copy(), np.zeros_like(starts), starts.copy(), np.zeros(len(starts)))
        self.trace = trace
        self.lanes = {count: Lanes.of(course, count) for count in {part.stop - part.start for part in self.shares}}
        layout = course.layout
        self.chunk = max(1, CHUNK_UNIFORMS // (BLOCK_RUNS * layout.batch_size * (1 + layout.group_size)))
        self.uniforms = np.empty((0, 0, 0, 0, 0))
        self.count = 0

    @property
    def shares(self) -> list[slice]:
        """The runs that advance together, as slices of the block."""
        size, runs = self.course.layout.runs, len(self.state.theta)
        return [slice(first, min(first + size, runs)) for first in range(0, runs, size)]

    def advance(self, count: int) -> None:
        """Make updates until there have been so many."""
        updates, steps = self.course.layout.updates, self.course.step_sizes
        while self.count < count:
            done = self.count // updates
            place = done % self.chunk
            if place == 0:
                self.uniforms = self._draw(min(self.chunk, len(steps) // updates - done))
            rollouts = min(self.chunk - place, count // updates - done)
            stop = self.count + rollouts * updates
            for number, share in enumerate(self.shares):
                runs = share.stop - share.start
                uniforms = self.uniforms[place : place + rollouts, number, ..., :runs]
                self._advance(self.lanes[runs], uniforms, steps[self.count : stop], share)
            self.count = stop

    def _advance(self, lanes: "Lanes", uniforms: Array, steps: Array, share: slice) -> None:
        """Advance some of the runs by the rollouts of their uniforms (S, 1 + G, B, R)."""
        compiled_advance()(
            self.course.parts,
            self.course.world,
            lanes.recipe,
            np.ascontiguousarray(uniforms).reshape(*uniforms.shape[:2], -1),
            steps,
            self.count,
            self.course.ball,
            lanes.batch,
            lanes.room,
            State(*(part[share] for part in self.state)),
            self.trace.of(share),
        )

    def _draw(self, rollouts: int) -> Array:
        """Draw the uniforms of so many rollouts of a whole block, shape (S, shares, 1 + G, B, runs of a share)."""
        layout = self.course.layout
        shares = -(-BLOCK_RUNS // layout.runs)
        return self.generator.random((rollouts, shares, 1 + layout.group_size, layout.batch_size, layout.runs))


@dataclass(frozen=True)
class Lanes:
    """What a number of runs that advance together are computed in."""

    recipe: Recipe
    batch: Batch
    room: Room

    @classmethod
    def of(cls, course: Course, count: int) -> "Lanes":
        """Make room for so many runs."""
        layout = replace(course.layout, runs=count)
        recipe = make_recipe(course.problem, course.estimator, layout)
        room = make_room(course.problem, course.estimator, course.world, recipe, layout)
        return cls(recipe, make_batch(course.estimator, layout), room)
