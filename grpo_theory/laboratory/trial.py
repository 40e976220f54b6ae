"""A trial of an interval function: everything that a block of replications needs but its number."""

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from grpo_theory.intervals.interval import Ellipsoid, Interval, check_level
from grpo_theory.laboratory.experiment import Experiment
from grpo_theory.simulate.streams import Rng, as_seed_sequence, block_generator
from grpo_theory.validation import Array, Flags, as_count, as_numbers, check_finite

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
    def concatenate(cls, parts: Sequence["Answers"]) -> "Answers":
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


@dataclass(frozen=True, eq=False, init=False)
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
    levels: tuple[float, ...]

    def __init__(
        self,
        interval: IntervalFunction,
        problem: Any,
        truth: Truth,
        experiment: Experiment,
        level: float | Sequence[float],
        rng: Rng | None,
        vectorized: bool | None,
    ) -> None:
        if not callable(interval):
            raise TypeError(f"interval must be a function of (data, level), got {interval!r}")
        check_takes("interval", interval, "data", "level")
        if missing := [name for name in ("block_replications", "sample", "take") if not hasattr(experiment, name)]:
            raise TypeError(
                f"experiment must have block_replications, sample(problem, rng, replications) and take(block, i), "
                f"as gt.Pilot(batch_size, group_size) has; {experiment!r} lacks {', '.join(missing)}"
            )
        known = as_numbers("truth", truth(problem) if callable(truth) else truth).copy()
        if known.size == 0:
            raise ValueError(f"truth must not be empty, got shape {known.shape}")
        check_finite("truth", known)
        try:
            levels = None if np.ndim(level) == 0 else tuple(float(one) for one in level)  # type: ignore[union-attr]
        except (TypeError, ValueError):
            raise ValueError(f"level must be a number or a rising sequence of numbers, got {level!r}") from None
        if levels is not None and (not levels or not (np.diff((0.0, *levels, 1.0)) > 0.0).all()):
            raise ValueError(f"level must be nested levels, which rise strictly between 0 and 1, got {list(levels)}")
        found: dict[str, Any] = {"interval": interval, "problem": problem, "truth": known, "experiment": experiment}
        found["levels"] = (check_level(level),) if levels is None else levels  # type: ignore[arg-type]
        found |= {"level": levels or found["levels"][0], "seed": as_seed_sequence(rng)}
        found["vectorized"] = getattr(interval, "vectorized", False) if vectorized is None else vectorized
        for name, value in found.items():
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
        level = self.level if isinstance(self.level, float) else max(self.level)
        return Replay(
            replication,
            self.experiment.take(datasets, index),
            Interval(row["estimate"], row["standard_error"], row["low"], row["high"], level),
            row["covered"][..., 0] if answers.joint else row["covered"],
            answers.refusals.get(replication),
        )

    def ask(self, datasets: Any, block: int, start: int, stop: int) -> Answers:
        """Return the answers on datasets start to stop - 1 of a block that has been drawn."""
        size = self.experiment.block_replications
        table = np.zeros((size, len(self.levels), *self.truth.shape), dtype=FIELDS)
        for name in NUMBERS:
            table[name] = np.nan
        answers = Answers(table)
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
        table = table[start:stop]
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
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*arguments)
    except TypeError:
        wanted, taken = ", ".join(arguments), ", ".join(signature.parameters)
        got = f"one of ({taken})" if taken else "one without arguments"
        raise TypeError(f"{name} must be a function of ({wanted}), got {got}. Wrap it, as in `lambda {wanted}: ...`") from None
