"""A trial of an interval function: everything that a block of replications needs but its number."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from grpo_theory.intervals.interval import Ellipsoid, Interval
from grpo_theory.laboratory.experiment import Experiment
from grpo_theory.simulate.streams import block_generator
from grpo_theory.validation import Array, Flags, as_count

IntervalFunction = Callable[[Any, float], Any]


@dataclass(eq=False)
class Answers:
    """The answers of n datasets at L levels, about a truth of shape C.

    Attributes
    ----------
    estimate, standard_error, low, high : ndarray, shape (n, L, *C)
        NaN where there is no answer; of an ellipsoid, the limits are those of its shadow on each axis.
    width : ndarray, shape (n, L, *C)
    covered, failed : ndarray of bool, shape (n, L, *C)
        A refusal (ValueError) or a NaN limit is a failure, and covers nothing.
    joint : bool or None
        Whether the sets are ellipsoids: then width, covered and failed repeat one value along the last axis.  None where no
        dataset had an answer.
    refusals : dict of int to str
        The messages of the datasets that were refused, by their index.
    """

    estimate: Array
    standard_error: Array
    low: Array
    high: Array
    width: Array
    covered: Flags
    failed: Flags
    joint: bool | None = None
    refusals: dict[int, str] = field(default_factory=dict)

    @classmethod
    def empty(cls, n: int, n_levels: int, shape: tuple[int, ...]) -> "Answers":
        """Return answers of which none is given yet: until one is put there, a dataset counts as failed."""
        estimate, error, low, high, width = (np.full((n, n_levels, *shape), np.nan) for _ in range(5))
        none = np.zeros(width.shape, dtype=bool)
        return cls(estimate, error, low, high, width, none, ~none)

    @classmethod
    def concatenate(cls, parts: Sequence["Answers"]) -> "Answers":
        """Join the answers of successive datasets."""
        kinds = {part.joint for part in parts} - {None}
        if len(kinds) > 1:
            raise TypeError(MIXED)
        arrays = {name: np.concatenate([getattr(part, name) for part in parts]) for name in ARRAYS}
        starts = np.cumsum([0] + [len(part.low) for part in parts])
        refusals = {int(s) + i: why for s, part in zip(starts, parts, strict=False) for i, why in part.refusals.items()}
        return cls(**arrays, joint=kinds.pop() if kinds else None, refusals=refusals)

    def rows(self, start: int, stop: int) -> "Answers":
        """Return the answers of datasets start to stop - 1, which are all that were asked about."""
        arrays = {name: getattr(self, name)[start:stop] for name in ARRAYS}
        refusals = {i - start: why for i, why in self.refusals.items()}
        return Answers(**arrays, joint=self.joint, refusals=refusals)

    def put(self, dataset: int | slice, level: int, answer: Any, truth: Array) -> None:
        """Write an answer: of the dataset with this index, or of all datasets if it is a slice.

        Raises
        ------
        TypeError
            If the answer is no Interval, Ellipsoid or pair of limits, or now an Ellipsoid and now not.
        ValueError
            If its shape is not the truth's.
        """
        row, joint = (dataset, level), isinstance(answer, Ellipsoid)
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
        if shape != self.low[row].shape:
            block = f" for a block of {len(self.low)} datasets" if isinstance(dataset, slice) else ""
            raise ValueError(f"truth must have the shape of the interval's limits, got {truth.shape}, and limits {shape}{block}")
        for name, part in (("estimate", estimate), ("standard_error", error)):
            if part.ndim and part.shape != shape:
                raise ValueError(f"interval must return {name} of the limits' shape {shape} or a number, got {part.shape}")
        if isinstance(answer, Ellipsoid):
            self.width[row] = np.asarray(answer.width)[..., None]
            self.covered[row] = np.asarray(answer.covers(truth))[..., None]
        self.estimate[row], self.standard_error[row], self.low[row], self.high[row] = estimate, error, low, high
        self.joint = joint

    def settle(self, truth: Array) -> None:
        """Read off the limits what failed, what covers and how wide it is."""
        failed = np.isnan(self.low) | np.isnan(self.high)
        if self.joint:
            self.failed[...] = np.any(failed | np.isnan(self.width), axis=-1, keepdims=True)
            self.covered &= ~self.failed
        else:
            self.failed = failed
            self.width, self.covered = self.high - self.low, (self.low <= truth) & (truth <= self.high)


ARRAYS = ("estimate", "standard_error", "low", "high", "width", "covered", "failed")
MIXED = "interval must return ellipsoids always or never, and returned both"


@dataclass(frozen=True, eq=False, repr=False)
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
    >>> one
    Replay(replication=7, low=0.4791, high=0.7709, covered=True)
    """

    replication: int
    data: Any
    interval: Interval
    covered: Flags
    refusal: str | None

    def __repr__(self) -> str:
        if self.refusal is not None:
            return f"Replay(replication={self.replication}, refusal={self.refusal!r})"
        low, high = (np.array2string(limit, precision=4, threshold=8) for limit in (self.interval.low, self.interval.high))
        covered = np.array2string(self.covered, threshold=8)
        return f"Replay(replication={self.replication}, low={low}, high={high}, covered={covered})"


@dataclass(frozen=True, eq=False)
class Trial:
    """An interval function, the problem and experiment on which it is tried, and the seed.

    Every replication is a function of the trial and its own number: blocks are drawn whole, whatever part of them is used.
    """

    interval: IntervalFunction
    problem: Any
    truth: Array
    experiment: Experiment
    level: float | tuple[float, ...]
    seed: np.random.SeedSequence
    vectorized: bool

    @property
    def levels(self) -> tuple[float, ...]:
        """The levels, shape (L,)."""
        return self.level if isinstance(self.level, tuple) else (self.level,)

    def draw(self, block: int) -> Any:
        """Draw a block of datasets."""
        return self.experiment.sample(self.problem, block_generator(self.seed, block), self.experiment.block_replications)

    def replay(self, replication: int) -> Replay:
        """Draw a replication again, and ask again."""
        block, index = divmod(as_count("replication", replication, 0), self.experiment.block_replications)
        datasets = self.draw(block)
        answers = self.ask(datasets, block, index, index + 1)
        parts = (getattr(answers, name)[0] for name in ("estimate", "standard_error", "low", "high", "covered"))
        estimate, error, low, high, covered = (part if isinstance(self.level, tuple) else part[0] for part in parts)
        level = self.level if isinstance(self.level, float) else max(self.level)
        return Replay(
            replication,
            self.experiment.take(datasets, index),
            Interval(estimate, error, low, high, level),
            covered[..., 0] if answers.joint else covered,
            answers.refusals.get(0),
        )

    def ask(self, datasets: Any, block: int, start: int, stop: int) -> Answers:
        """Return the answers on datasets start to stop - 1 of a block that has been drawn."""
        size = self.experiment.block_replications
        answers = Answers.empty(size, len(self.levels), self.truth.shape)
        for number, level in enumerate(self.levels):
            # A function that takes whole blocks is asked once. Where it refuses, the datasets are asked about one by one,
            # so that only those that deserve it are refused.
            if self.vectorized:
                with _named(block * size, (block + 1) * size):
                    if self._refusal(answers, slice(None), number, partial(self.interval, datasets, level)) is None:
                        continue
            for i in range(start, stop):

                def ask_one(i: int = i, level: float = level) -> Any:
                    # Of a copy: a function may write on its data, and is asked again at the next level.
                    return self.interval(deepcopy(self.experiment.take(datasets, i)), level)

                with _named(block * size + i, block * size + i + 1):
                    why = self._refusal(answers, i, number, ask_one)
                if why is not None:
                    answers.refusals.setdefault(i, why)
        answers = answers.rows(start, stop)
        answers.settle(self.truth)
        for i, *_ in np.argwhere(answers.low > answers.high)[:1]:
            at = int((answers.low[i] - answers.high[i]).argmax())
            worst = f"low = {answers.low[i].flat[at]:g}, high = {answers.high[i].flat[at]:g}"
            with _named(block * size + start + i, block * size + start + i + 1):
                raise ValueError(f"interval must return lower limits that do not exceed the upper ones, got {worst}")
        return answers

    def _refusal(self, answers: Answers, row: int | slice, number: int, ask: Callable[[], Any]) -> str | None:
        """Ask, and write the answer down; or return why there is none: a ValueError, or a singular ellipsoid."""
        try:
            answer = ask()
        except ValueError as error:
            return str(error)
        try:
            answers.put(row, number, answer, self.truth)
        except np.linalg.LinAlgError as error:
            return str(error)
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
