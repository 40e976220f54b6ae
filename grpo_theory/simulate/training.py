"""The training simulator: stochastic gradient ascent with any registered estimator, one or several updates a rollout.

Where runs are few, those at several step sizes of a grid go side by side, on the same draws.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from grpo_theory.estimation import Estimator, find
from grpo_theory.estimation.allocation import AllocationRule
from grpo_theory.estimation.kernel import PROMPT_FIELDS
from grpo_theory.exact import Observable, objective
from grpo_theory.exact.derivatives import check_observable, warn_if_unstable
from grpo_theory.problem import Problem, TokenChain
from grpo_theory.schedule import Schedule, step_sizes
from grpo_theory.simulate.advantages import warn_of_tables
from grpo_theory.simulate.allocation import make_allocated
from grpo_theory.simulate.ascents import Runs, Training, checked_sizes, make_training, starting_points
from grpo_theory.simulate.chains import ChainRun
from grpo_theory.simulate.draws import LANES, Rng, as_seed_sequence, map_in_order
from grpo_theory.simulate.optimisers import SGD, Ball, Optimiser
from grpo_theory.validation import Array, Flags, Integers, as_count, as_flag, as_real_array, shown

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class TrainingRuns:
    """R independent training runs.

    Attributes
    ----------
    estimator : str
    checkpoints : ndarray of int, shape (C,)
        Numbers of updates made.
    objectives : ndarray, shape (R, C)
        Exact J(theta_n) at the checkpoints; NaN from where a run diverged.
    average_objectives : ndarray, shape (R, C)
        Exact J at the average of the iterates so far (Polyak and Ruppert).
    theta, average : ndarray, shape (R, d)
        The last iterates and the averages.
    farthest : ndarray, shape (R,)
        The largest distance of an iterate from the start.
    observed : dict of str to ndarray, shape (R, C)
        What else was asked for at the checkpoints, by the observables' names.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem, sizes = gt.gallery.problem("single"), {"batch_size": 4, "group_size": 4, "steps": 16, "replications": 32}
    >>> runs = gt.simulate_training(problem, problem.theta, "rloo", gt.Constant(0.2), **sizes, checkpoints=[4, 16], rng=0)
    >>> runs.objectives.shape, runs.to_frame().columns.tolist()
    ((32, 2), ['estimator', 'run', 'updates', 'objective', 'average_objective'])
    >>> len(runs.summary().splitlines()) > 4
    False
    """

    estimator: str
    checkpoints: Integers
    objectives: Array
    average_objectives: Array
    theta: Array
    average: Array
    farthest: Array
    observed: dict[str, Array] = field(default_factory=dict)

    def __repr__(self) -> str:
        last = f"updates={self.checkpoints[-1]}, mean objective={self.objectives[:, -1].mean():.4g}"
        return f"TrainingRuns({self.estimator}, runs={len(self.objectives)}, diverged={self.diverged.sum()}, {last})"

    def summary(self) -> str:
        """Return a table to be printed: of each checkpoint the mean objective, its standard error, and what 10% and 90% reach.

        Runs that diverged are counted, and left out of the other columns.
        """
        import pandas as pd  # slow to import, and not always wanted

        left = self.objectives[~self.diverged]
        rows = {
            "updates": self.checkpoints,
            "mean objective": left.mean(axis=0),
            "standard error": left.std(axis=0, ddof=1) / np.sqrt(len(left)) if len(left) > 1 else np.nan,
            "10%": np.quantile(left, 0.1, axis=0),
            "90%": np.quantile(left, 0.9, axis=0),
        }
        title = f"{self.estimator}: {len(self.objectives):,} runs, of which {self.diverged.sum():,} diverged"
        return f"{title}\n{pd.DataFrame(rows).to_string(index=False, float_format='{:.4g}'.format)}"

    def to_frame(self) -> pd.DataFrame:
        """Return the objectives, one row per run and checkpoint: run, updates, objective, average_objective."""
        import pandas as pd  # slow to import, and not always wanted

        runs, kept = self.objectives.shape
        columns = {
            "estimator": self.estimator,
            "run": np.repeat(np.arange(runs), kept),
            "updates": np.tile(self.checkpoints, runs),
            "objective": self.objectives.ravel(),
            "average_objective": self.average_objectives.ravel(),
        }
        return pd.DataFrame(columns)

    @property
    def diverged(self) -> Flags:
        """Which runs left the finite numbers, in theta or in its logits, shape (R,); they stay in the arrays, as NaN."""
        return ~np.isfinite(self.theta).all(axis=1) | np.isnan(self.objectives[:, -1])


def simulate_training(
    problem: Problem,
    theta0: ArrayLike | None = None,
    estimator: str | Estimator = "",
    schedule: Schedule | ArrayLike = (),
    *,
    batch_size: int,
    group_size: int,
    steps: int,
    replications: int,
    rng: Rng | None = None,
    workers: int | None = None,
    inner_steps: int = 1,
    lag: int = 0,
    optimiser: Optimiser = SGD(),
    checkpoints: Sequence[int] | None = None,
    ball: Ball | None = None,
    allocation: str | AllocationRule | None = None,
    observables: Sequence[Observable] = (),
    progress: bool = True,
) -> TrainingRuns:
    """Simulate theta <- theta + eta_i ghat (Algorithms 1 and 2 of arXiv 2603.01162) from theta0, many times.

    A rollout has B prompts with G responses each.  It is drawn from the current policy, which is then the behaviour policy, and
    its advantages are computed once.  A rollout serves `inner_steps` updates, each on B/inner_steps of its prompts that no other
    update uses.  From the second update on, importance ratios compare the policy as it has become with the behaviour policy.

    With a `lag` of s, the behaviour policy is the policy before the last s rollouts.  This is what trainers do that generate and
    update at the same time.  Then the ratios of the first update, too, are over a policy that is s rollouts old.  The first s + 1
    rollouts are drawn from the start.

    Each run has a memory of its own of each prompt, if the estimator has one, see `gt.Memory`.  A rollout reads it when it is
    drawn, and then changes it, whatever updates the rollout serves.

    Results are bit-identical for any number of workers and any checkpoints; memory does not grow with the number of steps.
    Runs with the same seed see the same uniforms whatever the estimator: differences between estimators are paired.
    The responses of a `TokenChain` are drawn token by token, from other streams than those of listed responses.

    Parameters
    ----------
    problem : Problem
    theta0 : array_like, shape (d,) or (replications, d), optional
        Where all runs start, or each; the problem's own theta if omitted.
    estimator : str or Estimator
    schedule : Schedule or array_like, shape (steps,)
        The step sizes eta_1, eta_2, ... of the updates; see `grpo_theory.schedule`.
    batch_size, group_size : int
        B prompts, G responses each, in a rollout.
    steps, replications : int
        The number n of updates of a run, and the number R of runs.
    rng : int, SeedSequence or Generator, optional
        The seed; fresh entropy if omitted.
    workers : int, optional
        The number of threads; all processors if omitted.
    inner_steps : int, default 1
        The updates that a rollout serves; it divides batch_size, steps and the checkpoints.
    lag : int, default 0
        How many rollouts ago the policy was that draws a rollout.  Of each run one iterate more is held in memory.
    optimiser : Optimiser, default SGD()
        What makes a step of an estimate: `SGD()`, as above, or `Adam()`, for which eta_i are learning rates.
    checkpoints : sequence of int, optional
        Numbers of updates at which the objective is kept; the last if omitted.
    ball : Ball, optional
        Iterates are projected onto it, the first after the first update: a start outside is kept as it is.
    allocation : str or AllocationRule, optional
        How a rollout's B G responses are divided between its prompts, given what is known before sampling; see
        `gt.allocation_rules`.  Without a rule each prompt has G.  The estimate is the mean over the prompts' groups.
    observables : sequence of Observable, optional
        What else is looked at, at the checkpoints, as ``gt.Observable.entropy()``; not of a `TokenChain`.
    progress : bool, default True
        Show a bar on a terminal if it takes longer than some seconds.

    Returns
    -------
    TrainingRuns

    Warns
    -----
    StabilityWarning
        Before running, if the last step is too large for the curvature at the start: the spectral radius of I + eta H exceeds
        1.  If each run has its own start, the first run's counts.  Only with `SGD`, whose steps are the
        gradient's, and only where H takes a second or so.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem, sizes = gt.gallery.problem("single"), {"batch_size": 4, "group_size": 4, "steps": 40, "replications": 64}
    >>> runs = gt.simulate_training(problem, problem.theta, "rloo", gt.Constant(0.2), **sizes, checkpoints=[4, 40], rng=0)
    >>> early, late = runs.objectives.mean(axis=0)
    >>> bool(late > early)
    True
    """
    if not isinstance(problem, Problem):
        raise TypeError(f"problem must be a Problem, got {problem!r}")
    kept = _checkpoints(checkpoints, as_count("steps", steps), as_count("inner_steps", inner_steps))
    chosen = find(estimator)
    if not isinstance(observables, Sequence) or isinstance(observables, str | bytes):
        raise TypeError(f"observables must be a sequence of Observable, got {shown(observables)}")
    for one in observables:
        check_observable("observables", one)
    replications = as_count("replications", replications)
    workers = as_count("workers", workers if workers is not None else os.cpu_count() or 1)
    starts = starting_points(problem, theta0, replications)
    sizes = batch_size, group_size, inner_steps, as_count("lag", lag, 0)
    seed, told, chain = as_seed_sequence(rng), "training" if as_flag("progress", progress) else "", None
    if isinstance(problem.policy, TokenChain):
        if observables:
            raise ValueError(
                "observables are of responses that are listed: leave them out for a TokenChain, or use problem.listed()"
            )
        if allocation is not None:
            raise ValueError("allocation is for responses that are listed: a TokenChain's groups have one size")
        checked = checked_sizes(problem, chosen, sizes, optimiser, ball)
        training = chain = Training(problem, chosen, checked, step_sizes(schedule, steps), optimiser, ball)
    else:
        given = problem, chosen, step_sizes(schedule, steps), sizes, optimiser, ball
        training = make_training(*given) if allocation is None else make_allocated(allocation, *given)
        if not chosen.advantage.reads & set(PROMPT_FIELDS):
            warn_of_tables(problem, [chosen], training.sizes.group_size, stacklevel=3)
    if isinstance(optimiser, SGD):
        warn_if_unstable(problem, starts[0], training.step_sizes)
    size = LANES if chain is None else 1

    def look(runs: Runs | ChainRun) -> Array:
        both = np.stack([runs.theta, runs.average])
        return np.stack([*finite_objectives(problem, both), *(one.along(problem, both[0]) for one in observables)], axis=1)

    def run(block: int) -> tuple[Array, ...]:
        own = starts[block * size : (block + 1) * size]
        runs = training.start(seed, block, own) if chain is None else ChainRun(chain, seed, block, own)
        seen = seen_along(runs, look, kept)
        runs.advance(steps)
        return seen, runs.theta, runs.average, runs.farthest

    parts = list(map_in_order(run, range(-(-replications // size)), workers, told))
    seen, theta, average, farthest = (np.concatenate(part) for part in zip(*parts, strict=True))
    objectives, averages, *others = np.ascontiguousarray(np.moveaxis(seen, 2, 0))
    observed = {one.name: other for one, other in zip(observables, others, strict=True)}
    return TrainingRuns(chosen.name, kept, objectives, averages, theta, average, farthest, observed)


def seen_along(runs: Any, look: Callable[[Any], Array], checkpoints: Iterable[int]) -> Array:
    """Return what is seen of runs (R, ...) after these numbers of updates, shape (R, C, ...)."""
    seen = []
    for count in checkpoints:
        runs.advance(int(count))
        seen.append(look(runs))
    return np.stack(seen, axis=1)


def _checkpoints(checkpoints: Sequence[int] | None, steps: int, inner_steps: int) -> Integers:
    if checkpoints is not None and (not isinstance(checkpoints, Sequence | np.ndarray) or isinstance(checkpoints, str | bytes)):
        raise TypeError(f"checkpoints must be a sequence of integers, got {shown(checkpoints)}")
    if isinstance(checkpoints, np.ndarray) and checkpoints.ndim != 1:
        raise TypeError(f"checkpoints must be a sequence of integers, got {shown(checkpoints)}")
    kept = [steps] if checkpoints is None else [as_count("checkpoints", point, 0) for point in checkpoints]
    if kept != sorted(set(kept)) or not kept or kept[-1] > steps:
        raise ValueError(f"checkpoints must rise and end at most at steps = {steps}, got {kept}")
    for name, numbers in (("steps", [steps]), ("checkpoints", kept)):
        odd = [number for number in numbers if number % inner_steps]
        if odd:
            raise ValueError(f"{name} must be divisible by inner_steps = {inner_steps}, got {odd[0]}")
    return np.array(kept, dtype=np.int64)


def finite_objectives(problem: Problem, theta: Array) -> Array:
    """Return J(theta), shape (...,), for theta (..., d); NaN where it has left the finite numbers.

    What is looked at is always a copy: the last bits of sums may depend on how theta lies in memory.
    """
    finite = np.isfinite(theta).all(axis=-1)
    found = np.full(finite.shape, np.nan)
    found[finite] = objective(problem, theta[finite])
    return found


@dataclass(frozen=True, eq=False)
class StepGrid:
    """Runs from a problem's theta at each step size of a grid; those at one are the runs of `simulate_training` with that seed.

    Attributes
    ----------
    training : Training
        What the runs have in common; their step sizes are multiplied by each of the grid's.
    rates : ndarray, shape (S,)
        The step sizes of the grid.

    Examples
    --------
    >>> import numpy as np, grpo_theory as gt
    >>> from grpo_theory.simulate.training import StepGrid
    >>> problem = gt.gallery.problem("single")
    >>> grid = StepGrid.of(problem, gt.estimators()["rloo"], [0.1, 0.2, 0.4], np.ones(16), (4, 4))
    >>> grid.objectives(8, rng=0, checkpoints=[8, 16]).shape
    (3, 8, 2)
    """

    training: Training
    rates: Array

    @classmethod
    def of(
        cls,
        problem: Problem,
        estimator: Estimator,
        rates: ArrayLike,
        shape: Array,
        sizes: tuple[int, ...],
        optimiser: Optimiser = SGD(),
        *,
        keeps: bool = False,
        allocation: str | AllocationRule | None = None,
    ) -> StepGrid:
        """Return the grid of some rates (S,): the step sizes of a run are its rate times the shape (n,).

        `sizes` are those of `StepSizes`, in its order; `keeps` says whether iterates are wanted.
        """
        given = problem, estimator, np.array(shape, dtype=float), sizes, optimiser, None
        make = make_training if allocation is None else partial(make_allocated, allocation)
        return cls(make(*given, keeps=keeps), as_real_array("rates", rates, 1))

    def objectives(self, replications: int, rng: Rng, checkpoints: Sequence[int]) -> Array:
        """Return J of the iterates after these numbers of updates, shape (S, R, C); NaN from where a run diverged."""
        return self.looks(lambda theta: finite_objectives(self.training.problem, theta), replications, rng, checkpoints)

    def looks(self, look: Callable[[Array], Array], replications: int, rng: Rng, checkpoints: Sequence[int]) -> Array:
        """Return what `look` makes of iterates (R, d) after these numbers of updates, shape (S, R, C, ...)."""
        return self._along(lambda runs: look(runs.theta), replications, rng, checkpoints)

    def iterates(self, replications: int, rng: Rng) -> Array:
        """Return all iterates, the start first, shape (S, R, n + 1, d)."""
        return self._along(lambda runs: runs.state.path, replications, rng, [len(self.training.step_sizes)])[:, :, 0]

    def _along(self, look: Callable[[Runs], Array], replications: int, rng: Rng, checkpoints: Sequence[int]) -> Array:
        """Return what is seen of runs (R, ...), some side by side, after these numbers of updates, shape (S, R, C, ...)."""
        problem, seed, found = self.training.problem, as_seed_sequence(rng), []
        starts = starting_points(problem, None, replications)
        for block, first in enumerate(range(0, replications, LANES)):
            own = starts[first : first + LANES]
            together, parts = LANES // len(own), []
            for place in range(0, len(self.rates), together):
                rates = self.rates[place : place + together]
                runs = self.training.start(seed, block, np.tile(own, (len(rates), 1)), np.repeat(rates, len(own)), len(own))
                along = seen_along(runs, look, checkpoints)
                parts.append(along.reshape(len(rates), len(own), *along.shape[1:]))
            found.append(np.concatenate(parts))
        return np.concatenate(found, axis=1)
