"""Trials of an interval function: experiments, which draw data, and what the function says of each dataset."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from grpo_theory.estimation import Estimator
from grpo_theory.intervals.interval import Ellipsoid, Interval, check_level
from grpo_theory.intervals.records import TrainingRecord, simulate_records
from grpo_theory.intervals.rollouts import Rollouts
from grpo_theory.problem import Point, Problem
from grpo_theory.problem.logits import HeadMap
from grpo_theory.schedule import Schedule, step_sizes
from grpo_theory.simulate import BLOCK_RUNS
from grpo_theory.simulate.draws import Rng, as_seed_sequence, as_sizes, block_generator
from grpo_theory.validation import Array, Flags, as_count, as_numbers, as_real_array, check_finite, check_shape, read_only, typed


class Experiment(Protocol):
    """How datasets are drawn, in blocks.

    Attributes
    ----------
    block_replications : int
        The number of datasets in a block: fixed by the shape of a dataset alone, so that a replication is known by its number.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> class Halves:
    ...     block_replications = 64
    ...     def sample(self, problem, rng, replications):
    ...         return gt.Pilot(batch_size=8, group_size=4).sample(problem, rng, replications)
    ...     def take(self, block, i):
    ...         return gt.Pilot(batch_size=8, group_size=4).take(block, i)
    >>> problem, experiment = gt.gallery.problem("two-arms"), Halves()
    >>> block = experiment.sample(problem, 0, 2)
    >>> experiment.take(block, 0).rewards.shape
    (8, 4)
    >>> truth = gt.objective(problem, problem.theta)
    >>> gt.coverage(gt.intervals.value_clustered, problem, truth, experiment=experiment, replications=64, rng=0).replications
    64
    """

    @property
    def block_replications(self) -> int:
        """The number of datasets in a block."""

    def sample(self, problem: Any, rng: Rng, replications: int) -> Any:
        """Return a block of independent datasets, its arrays with a leading axis of length `replications`."""

    def take(self, block: Any, i: int) -> Any:
        """Return dataset i of a block, without the leading axis."""


@dataclass(frozen=True, eq=False)
class RecordedTraining:
    """The experiment of training one run and keeping its record.

    A KL penalty of the problem is part of the reward.

    Parameters
    ----------
    estimator : str or Estimator
    schedule : Schedule or array_like, shape (steps,)
    batch_size, group_size : int
        B prompts, G responses each, a step.
    steps : int
        The length n of the run.
    theta0 : array_like, shape (d,), optional
        Where it starts; the problem's theta if omitted.
    tail : float, default 0.5
        The share of the run that is its last part.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem = gt.gallery.problem("single")
    >>> training = gt.RecordedTraining("rloo", gt.Constant(0.1), batch_size=4, group_size=4, steps=40)
    >>> block = training.sample(problem, 0, replications=2)
    >>> block.path.shape, training.take(block, 1).path.shape
    ((2, 41, 2), (41, 2))
    """

    estimator: str | Estimator
    schedule: Schedule | ArrayLike
    batch_size: int
    group_size: int
    steps: int
    theta0: ArrayLike | None = None
    tail: float = 0.5
    block_replications = BLOCK_RUNS
    """The number of runs in a block of the simulator."""

    def __post_init__(self) -> None:
        if not callable(getattr(self.schedule, "steps", None)):
            object.__setattr__(self, "schedule", read_only(step_sizes(self.schedule, as_count("steps", self.steps))))
        if self.theta0 is not None:
            object.__setattr__(self, "theta0", read_only(as_real_array("theta0", self.theta0, None)))

    def sample(self, problem: Problem, rng: Rng, replications: int) -> TrainingRecord:
        """Train independently, at most a block of runs at a time.

        Parameters
        ----------
        problem : Problem
        rng : int, SeedSequence or Generator
        replications : int
            The number R of runs, at most `block_replications`.

        Returns
        -------
        TrainingRecord
            Path (R, n + 1, d).
        """
        replications = as_count("replications", replications)
        if replications > self.block_replications:
            raise ValueError(f"replications must be at most a block of {self.block_replications}, got {replications}")
        sizes = {"batch_size": self.batch_size, "group_size": self.group_size, "steps": self.steps, "replications": replications}
        start, estimator = self.theta0, self.estimator
        return next(simulate_records(problem, start, estimator, self.schedule, **sizes, rng=rng, workers=1, tail=self.tail))

    def take(self, block: TrainingRecord, i: int) -> TrainingRecord:
        """Return run i of a block."""
        hessian = None if block.hessian is None else block.hessian[i]
        return TrainingRecord(block.step_sizes, block.path[i], block.mean_rewards[i], hessian, tail=block.tail)


BLOCK_RESPONSES = 1 << 15


@dataclass(frozen=True, eq=False)
class Pilot:
    """The experiment of drawing B prompts from f and, for each, G responses from the policy with their rewards.

    A KL penalty of the problem is part of the reward.

    Parameters
    ----------
    batch_size, group_size : int
        B prompts, G responses each.
    directions : array_like, shape (J, d), optional
        The scores' components along these are kept; if omitted, the d components of the score vectors.

    Notes
    -----
    The score vectors of a `SoftmaxHead` are too large to keep.  Without directions each batch gets J = K B coordinates of its
    own, which keep all norms and inner products within the batch.  They are ``(e_a - pi_m) x l_m`` instead of
    ``(e_a - pi_m) x h_m``, with the l_m from a factor of the inner products of the batch's hidden states.  So intervals for
    squared norms (of the gradient, of errors) are what they would be with the full scores; single coordinates mean nothing.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem, pilot = gt.gallery.problem("tabular"), gt.Pilot(batch_size=16, group_size=4)
    >>> block = pilot.sample(problem, 0, replications=3)
    >>> one = pilot.take(block, 0)
    >>> block.rewards.shape, one.rewards.shape, one.scores.shape
    ((3, 16, 4), (16, 4), (16, 4, 24))
    """

    batch_size: int
    group_size: int
    directions: ArrayLike | None = None

    def __post_init__(self) -> None:
        as_sizes(self.batch_size, self.group_size)
        if self.directions is not None:
            object.__setattr__(self, "directions", read_only(as_real_array("directions", self.directions, 2)))

    @property
    def block_replications(self) -> int:
        """The number of batches in a block: fixed by the shape of a batch alone."""
        return max(1, BLOCK_RESPONSES // (self.batch_size * self.group_size))

    @typed
    def sample(self, problem: Problem, rng: Rng, replications: int) -> Rollouts:
        """Draw independent batches of a problem at its theta.

        Parameters
        ----------
        problem : Problem
        rng : int, SeedSequence or Generator
        replications : int
            The number R of batches.

        Returns
        -------
        Rollouts
            Rewards (R, B, G) and scores (R, B, G, J).

        Raises
        ------
        ValueError
            If directions do not have the policy's dimension.
        """
        if problem.kl is not None:
            problem.check_climbs_mean("rollouts whose rewards are less a KL penalty")
        point, table, gram = _tables(self, problem)
        replications = as_count("replications", replications)
        generator = rng if isinstance(rng, np.random.Generator) else np.random.Generator(np.random.SFC64(as_seed_sequence(rng)))
        # Prompts and outcomes are drawn one by one: a whole response is one draw.
        uniforms = generator.random((1 + self.group_size, self.batch_size, replications))
        drawn = np.searchsorted(np.cumsum(point.bandit.prompt_weights)[:-1], uniforms[0], side="right")
        probabilities = point.outcome_probabilities
        below = np.cumsum(probabilities, axis=1)
        possible = np.cumsum(probabilities[:, ::-1], axis=1)[:, ::-1] > 0.0
        below[:, :-1][~possible[:, 1:]] = 2.0  # from its last possible outcome on, a law's sums are above every uniform
        reached = np.zeros(uniforms[1:].shape, dtype=np.int64)
        for sums in np.ascontiguousarray(below[:, :-1].T):
            reached += uniforms[1:] >= sums[drawn]
        prompts, outcomes = np.ascontiguousarray(drawn.T), np.ascontiguousarray(reached.T)
        scores = table[prompts[..., None], point.outcome_responses[outcomes]]
        if gram is not None:
            # <c x l_b, c' x l_b'> = (c . c')(l_b . l_b') = (c . c')(h_b . h_b'), as L L' is A (docs/derivations.md, section 11).
            # A batch in which a prompt was drawn twice has a singular A: what is rounding in its eigenvalues is 0.
            values, vectors = np.linalg.eigh(gram[prompts[:, :, None], prompts[:, None, :]])
            factor = vectors * np.sqrt(np.where(values > 1e-14 * values[:, -1:], values, 0.0))[:, None]
            scores = (scores[..., None] * factor[:, :, None, None, :]).reshape(*outcomes.shape, -1)
        found = point.rewards[prompts[..., None], outcomes], scores
        return Rollouts(*(read_only(np.ascontiguousarray(array)) for array in found))

    def take(self, block: Rollouts, i: int) -> Rollouts:
        """Return batch i of a block."""
        return Rollouts(block.rewards[i], block.known_scores[i])


@lru_cache(maxsize=4)
def _tables(pilot: Pilot, problem: Problem) -> tuple[Point, Array, Array | None]:
    """Return what outcomes are drawn from, and the scores (M, K, J); of a head, logit gradients and the prompts' products.

    Such scores are logit gradients (M, K, D) times the rows of a factor of the inner products (M, M) of the hidden states.
    """
    policy, point, directions = problem.policy, problem.at(problem.theta), pilot.directions
    if directions is None and type(policy.logit_map) is HeadMap:
        return point, point.logit_gradients, policy.logit_map.hidden @ policy.logit_map.hidden.T
    if directions is None:
        return point, policy.scores(problem.theta), None
    along = np.asarray(directions)
    check_shape("directions", along, (len(along), policy.dimension), "(J, d), d the policy's dimension")
    # v . W = v . Phi' c = c . Phi v for each direction v (docs/derivations.md, section 15).
    return point, np.einsum("mkd,jmd->mkj", point.logit_gradients, point.tangent.logits(along), optimize=True), None


IntervalFunction = Callable[[Any, float], Any]
Truth = ArrayLike | Callable[[Any], ArrayLike]
Table = NDArray[np.void]
"""Answers as records, whose fields are those of `FIELDS`."""
NUMBERS = ("estimate", "standard_error", "low", "high", "width")
FIELDS = [*((name, float) for name in NUMBERS), ("covered", bool), ("failed", bool)]
MIXED = "interval must return ellipsoids always or never, and returned both"


@dataclass(eq=False)
class Answers:
    """The answers of n datasets at L levels, about a truth of shape C.

    Attributes
    ----------
    table : ndarray of records, shape (n, L, *C)
        Estimate, standard error, low and high are NaN where there is no answer. Of an ellipsoid, the limits are those of its
        shadow on each axis. A refusal (ValueError) or a NaN limit has failed, and is not covered.
    joint : bool or None
        Whether the sets are ellipsoids: then width, covered and failed repeat one value along the last axis.  None where no
        dataset had an answer.
    refusals : dict of int to str
        The messages of the datasets that were refused, by the number of the replication.
    """

    table: Table
    joint: bool | None = None
    refusals: dict[int, str] = field(default_factory=dict)

    @classmethod
    def concatenate(cls, parts: Sequence[Answers]) -> Answers:
        """Join the answers of successive datasets."""
        kinds = {part.joint for part in parts} - {None}
        if len(kinds) > 1:
            raise TypeError(MIXED)
        refusals = {replication: why for part in parts for replication, why in part.refusals.items()}
        return cls(np.concatenate([part.table for part in parts]), kinds.pop() if kinds else None, refusals)

    def put(self, dataset: int | slice, level: int, answer: Any, truth: Array) -> None:
        """Write an answer: of the dataset with this index, or of all datasets if it is a slice.

        Raises
        ------
        TypeError
            If the answer is no Interval, Ellipsoid or pair of limits, or now an Ellipsoid and now not.
        ValueError
            If its shape is not the truth's.
        """
        row, joint = self.table[dataset, level, ...], isinstance(answer, Ellipsoid)
        if self.joint not in (None, joint):
            raise TypeError(MIXED)
        parts: tuple
        try:
            if isinstance(answer, Ellipsoid):
                # The ellipsoid's shadow on an axis reaches sqrt(squared radius times variance) from its centre.
                error = np.sqrt(np.diagonal(answer.covariance, axis1=-2, axis2=-1))
                half = np.sqrt(answer.squared_radius)[..., None] * error
                parts = answer.estimate, error, answer.estimate - half, answer.estimate + half
            elif isinstance(answer, Interval):
                parts = answer.estimate, answer.standard_error, answer.low, answer.high
            else:
                low, high = answer
                parts = np.nan, np.nan, low, high
            estimate, error, low, high = (np.asarray(part, dtype=np.float64) for part in parts)
        except (TypeError, ValueError):
            raise TypeError(f"interval must return an Interval, an Ellipsoid or a (low, high) pair, got {answer!r}") from None
        shape = np.broadcast_shapes(low.shape, high.shape)
        if shape != row.shape:
            block = f" for a block of {len(self.table)} datasets" if isinstance(dataset, slice) else ""
            raise ValueError(f"truth must have the shape of the interval's limits, got {truth.shape}, and limits {shape}{block}")
        for name, part in (("estimate", estimate), ("standard_error", error)):
            if part.ndim and part.shape != shape:
                raise ValueError(f"interval must return {name} of the limits' shape {shape} or a number, got {part.shape}")
        if isinstance(answer, Ellipsoid):
            row["width"], row["covered"] = np.asarray(answer.width)[..., None], np.asarray(answer.covers(truth))[..., None]
        row["estimate"], row["standard_error"], row["low"], row["high"] = estimate, error, low, high
        self.joint = joint


@dataclass(frozen=True, eq=False)
class Replay:
    """A replication, drawn again.

    Attributes
    ----------
    replication : int
    data : object
        The dataset.
    interval : Interval
        What was recorded of the interval function's answer, shape (*C) or (L, *C); of an ellipsoid, its shadow on each axis.
    covered : ndarray of bool
    refusal : str or None
        What the interval function said if it refused the dataset.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem, pilot = gt.gallery.problem("tabular"), gt.Pilot(batch_size=16, group_size=4)
    >>> truth = gt.objective(problem, problem.theta)
    >>> one = gt.replay(gt.intervals.value_clustered, problem, truth, experiment=pilot, rng=0, replication=7)
    >>> one.data.rewards.shape, bool(one.interval.low <= truth <= one.interval.high) == bool(one.covered)
    ((16, 4), True)
    """

    replication: int
    data: Any = field(repr=False)
    interval: Interval
    covered: Flags
    refusal: str | None


@dataclass(frozen=True, eq=False)
class Trial:
    """An interval function, the problem and experiment on which it is tried, and the seed.

    Every replication is a function of the trial and its own number: blocks are drawn whole, whatever part of them is used.

    Attributes
    ----------
    interval, problem, experiment
        As `coverage` takes them.
    truth : ndarray
        Given as a number, an array or a function of the problem.
    level : float or tuple of float
    seed : SeedSequence
        Given as whatever seeds one.
    vectorized : bool
        Given as None for what the function says of itself.
    levels : tuple of float
        The level or levels.
    """

    interval: IntervalFunction
    problem: Any
    truth: Any
    experiment: Experiment
    level: Any
    seed: Any
    vectorized: bool | None
    levels: tuple[float, ...] = field(init=False)

    def __post_init__(self) -> None:
        if not callable(self.interval):
            raise TypeError(f"interval must be a function of (data, level), got {self.interval!r}")
        check_takes("interval", self.interval, "data", "level")
        if missing := [name for name in ("block_replications", "sample", "take") if not hasattr(self.experiment, name)]:
            raise TypeError(
                f"experiment must have block_replications, sample(problem, rng, replications) and take(block, i), "
                f"as gt.Pilot(batch_size, group_size) has; {self.experiment!r} lacks {', '.join(missing)}"
            )
        truth = as_numbers("truth", self.truth(self.problem) if callable(self.truth) else self.truth).copy()
        if truth.size == 0:
            raise ValueError(f"truth must not be empty, got shape {truth.shape}")
        check_finite("truth", truth)
        if np.isscalar(self.level):
            level: Any = check_level(self.level)  # type: ignore[arg-type]
        else:
            level = tuple(as_real_array("level", self.level, 1).tolist())
            if not (np.diff((0.0, *level, 1.0)) > 0.0).all():
                raise ValueError(f"level must be nested levels, which rise strictly between 0 and 1, got {list(level)}")
        marked = getattr(self.interval, "vectorized", False) if self.vectorized is None else self.vectorized
        found = {"truth": truth, "level": level, "seed": as_seed_sequence(self.seed), "vectorized": marked}
        for name, value in (found | {"levels": level if isinstance(level, tuple) else (level,)}).items():
            object.__setattr__(self, name, value)

    def draw(self, block: int) -> Any:
        """Draw a block of datasets."""
        return self.experiment.sample(self.problem, block_generator(self.seed, block), self.experiment.block_replications)

    def replay(self, replication: int) -> Replay:
        """Draw a replication again, and ask again."""
        block, index = divmod(as_count("replication", replication, 0), self.experiment.block_replications)
        datasets = self.draw(block)
        answers = self.ask(datasets, block, index, index + 1)
        row = answers.table[0] if isinstance(self.level, tuple) else answers.table[0, 0]
        return Replay(
            replication,
            self.experiment.take(datasets, index),
            Interval(row["estimate"], row["standard_error"], row["low"], row["high"], max(self.levels)),
            row["covered"][..., 0] if answers.joint else row["covered"],
            answers.refusals.get(replication),
        )

    def ask(self, datasets: Any, block: int, start: int, stop: int) -> Answers:
        """Return the answers on datasets start to stop - 1 of a block that has been drawn."""
        size = self.experiment.block_replications
        unknown = np.array((*[np.nan] * len(NUMBERS), False, False), dtype=FIELDS)
        answers = Answers(np.full((size, len(self.levels), *self.truth.shape), unknown))
        for number in range(len(self.levels)):
            # A function that takes whole blocks is asked once. Where it refuses, the datasets are asked about one by one,
            # so that only those that deserve it are refused.
            if self.vectorized:
                with _named(block * size, (block + 1) * size):
                    if self._refusal(answers, slice(None), number, datasets) is None:
                        continue
            for i in range(start, stop):
                with _named(block * size + i, block * size + i + 1):
                    if (why := self._refusal(answers, i, number, datasets)) is not None:
                        answers.refusals.setdefault(block * size + i, why)
        table = answers.table[start:stop]
        low, high = table["low"], table["high"]
        failed = np.isnan(low) | np.isnan(high)
        if answers.joint:
            table["failed"] = np.any(failed | np.isnan(table["width"]), axis=-1, keepdims=True)
            table["covered"] &= ~table["failed"]
        else:
            table["failed"], table["width"], table["covered"] = failed, high - low, (low <= self.truth) & (self.truth <= high)
        for i, *_ in np.argwhere(low > high)[:1]:
            at = int((low[i] - high[i]).argmax())
            worst = f"low = {low[i].flat[at]:g}, high = {high[i].flat[at]:g}"
            with _named(block * size + start + i, block * size + start + i + 1):
                raise ValueError(f"interval must return lower limits that do not exceed the upper ones, got {worst}")
        return Answers(table, answers.joint, answers.refusals)

    def _refusal(self, answers: Answers, row: int | slice, number: int, datasets: Any) -> str | None:
        """Ask, and write the answer down; or return why there is none: a ValueError, or a singular ellipsoid."""
        answer = None
        try:
            # Of a copy: a function may write on its data, and is asked again at the next level.
            data = datasets if isinstance(row, slice) else deepcopy(self.experiment.take(datasets, row))
            answer = self.interval(data, self.levels[number])
            answers.put(row, number, answer, self.truth)
        except ValueError as error:
            if answer is None or isinstance(error, np.linalg.LinAlgError):
                return str(error)
            raise
        return None


@contextmanager
def _named(start: int, stop: int) -> Iterator[None]:
    """Name the replications in whatever error they raise."""
    try:
        yield
    except Exception as error:
        which = f"replication {start}" if stop == start + 1 else f"replications {start} to {stop - 1}"
        error.add_note(f"raised on {which}; gt.replay(..., replication={start}) with the same seed draws the data again")
        raise


def check_takes(name: str, function: Callable[..., Any], *arguments: str) -> None:
    """Raise TypeError unless a function can be called with so many arguments by position; nothing is known of compiled ones."""
    signature = None
    try:
        signature = inspect.signature(function)
        signature.bind(*arguments)
    except (TypeError, ValueError):
        if signature is not None:
            wanted, taken = ", ".join(arguments), ", ".join(signature.parameters)
            got = f"one of ({taken})" if taken else "one without arguments"
            told = f"{name} must be a function of ({wanted}), got {got}. Wrap it, as in `lambda {wanted}: ...`"
            raise TypeError(told) from None
