"""A trial of an interval function: everything that a block of replications needs but its number."""

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from grpo_theory.arrays import Array, Flags
from grpo_theory.intervals.interval import Interval
from grpo_theory.laboratory.answers import Answers, IntervalFunction, refusal
from grpo_theory.laboratory.experiment import Experiment
from grpo_theory.simulate.draw.streams import block_generator
from grpo_theory.validation import as_count


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
    Replay(replication=7, low=0.5197, high=0.7928, covered=True)
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
            keep = partial(self._keep, answers, number)
            # A function that takes whole blocks is asked once. Where it refuses, the datasets are asked about one by one,
            # so that only those that deserve it are refused.
            if self.vectorized:
                with _named(block * size, (block + 1) * size):
                    if refusal(partial(self.interval, datasets, level), partial(keep, slice(None))) is None:
                        continue
            # One at a time: a user's own function, or a block in which some dataset is refused.
            for i in range(start, stop):
                with _named(block * size + i, block * size + i + 1):
                    why = refusal(partial(self._ask_one, datasets, i, level), partial(keep, i))
                if why is not None:
                    answers.refusals.setdefault(i, why)
        answers = answers.rows(start, stop)
        answers.settle(self.truth)
        for i in answers.inverted()[:1]:
            with _named(block * size + start + i, block * size + start + i + 1):
                raise ValueError(f"interval must return lower limits that do not exceed the upper ones, got {answers.worst(i)}")
        return answers

    def _ask_one(self, datasets: Any, i: int, level: float) -> Any:
        """Ask about a copy of a dataset: a function may write on its data, and is asked again at the next level."""
        return self.interval(deepcopy(self.experiment.take(datasets, i)), level)

    def _keep(self, answers: Answers, number: int, dataset: int | slice, answer: Any) -> None:
        answers.put(dataset, number, answer, self.truth)


@contextmanager
def _named(start: int, stop: int) -> Iterator[None]:
    """Name the replications in whatever error they raise."""
    try:
        yield
    except Exception as error:
        which = f"replication {start}" if stop == start + 1 else f"replications {start} to {stop - 1}"
        error.add_note(f"raised on {which}; gt.replay(..., replication={start}) with the same seed draws the data again")
        raise
