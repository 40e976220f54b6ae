"""Advice while any trainer runs: give it the rewards of each step, and it says every few steps what they tell."""

import time
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from grpo_theory.estimation import Estimator, find
from grpo_theory.intervals.interval import check_level
from grpo_theory.intervals.ragged import RaggedRollouts
from grpo_theory.live.allowance import Allowance
from grpo_theory.live.clips import ClippedShares
from grpo_theory.live.groups import SignalWindow, SketchPool, StepGroups
from grpo_theory.live.guard import Guard
from grpo_theory.live.remarks import SignalRemarks, SizeRemarks
from grpo_theory.live.step_advice import StepAdvice, advise_step
from grpo_theory.plan.convention import baseline_of
from grpo_theory.plan.scores_advice import FEWEST
from grpo_theory.plan.subgroups import MOST_VALUES, check_reads_own_rewards
from grpo_theory.validation import Array, Integers, as_count, as_real_array, check_shape

Sketch = Callable[[Integers], ArrayLike]
"""Returns the sketches (n, width) of the responses of the step with these numbers, shape (n,)."""
MOST_PROMPTS = 256
READINGS_KEPT = 20
"""The number of readings for which sketches are kept."""
FADE = 0.5
"""What a slow reading took is remembered as this share of it at the next one, because costs vary."""


@dataclass(frozen=True)
class Reading:
    """The numbers and remarks of a monitor at one step.

    Attributes
    ----------
    step : int
    numbers : dict of str to float
        To be logged; empty at steps at which nothing was read.
    remarks : tuple of str
        Sentences, where the advice changed.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> reading = gt.live.Reading(20, {"groups_with_signal": 0.4}, ("Only 40% of the groups have a signal.",))
    >>> reading.step, reading.numbers["groups_with_signal"], len(reading.remarks)
    (20, 0.4, 1)
    """

    step: int
    numbers: dict[str, float] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()


class Monitor:
    """Monitor a training run: read the rewards of each step, and advise on group size and signal every few steps.

    It never ends the run: the first error of each part of its work is logged, under the name ``grpo_theory.live``. It
    measures its own time. Where its share of the run's other time is above `overhead`, it waits, and sketches fewer groups.

    Parameters
    ----------
    every : int, default 20
        The number of steps from one reading to the next.
    estimator : str or Estimator, default "rloo"
        The estimator in use: a name of `gt.estimators()`, as "trl_grpo".
    responses : int, optional
        The number of responses in an update; the average number in a step, unless given.
    overhead : float or None, default 0.05
        The largest share of the run's other time that the monitor may take; None sets no limit.
    level : float, default 0.95
        The confidence level of limits and sets, each by itself.
    clock : callable, default time.perf_counter
        Returns seconds.

    Attributes
    ----------
    allowance : Allowance
        What was spent, and its share of the time.
    guard : Guard
        How many errors there were.

    Raises
    ------
    ValueError
        If an argument is not as described, or the advantages of the estimator depend on more than the rewards of their own group.

    Examples
    --------
    Two groups of four, of which the first has signal:

    >>> import grpo_theory as gt
    >>> monitor = gt.live.Monitor(every=1, estimator="trl_grpo", overhead=None)
    >>> reading = monitor.step(1, [1, 0, 0, 1, 1, 1, 1, 1], ["a"] * 4 + ["b"] * 4)
    >>> reading.numbers["groups_with_signal"]
    0.5
    """

    def __init__(
        self,
        *,
        every: int = 20,
        estimator: str | Estimator = "rloo",
        responses: int | None = None,
        overhead: float | None = 0.05,
        level: float = 0.95,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.every, self.level = as_count("every", every), check_level(level)
        self.estimator = find(estimator)
        check_reads_own_rewards(self.estimator)
        self.responses = None if responses is None else as_count("responses", responses, 2)
        self.allowance, self.guard = Allowance(overhead, clock), Guard()
        self._clock = clock
        self._next: int | None = None
        self._window, self._clipped = SignalWindow(), list[ClippedShares]()
        self._pool = _new_pool(self.every)
        self._sketching, self._sketch_seconds, self._read_seconds = True, 0.0, 0.0
        # Without a baseline groups with equal rewards have a gradient too.
        baseline = baseline_of(self.estimator, FEWEST)
        self._uniform_counts, self._needs_law = baseline == "none", baseline is None
        self._of_size, self._of_signal = SizeRemarks(), SignalRemarks()

    def start(self, group_size: int = 8) -> None:
        """Import and compile what readings need, and begin to count the run's time; else the first reading does.

        Examples
        --------
        >>> import grpo_theory as gt
        >>> monitor = gt.live.Monitor(every=1, overhead=None)
        >>> monitor.start(group_size=4)
        >>> monitor.guard.errors
        0
        """
        with self.guard.held("the start of the monitor"):
            _rehearse(self.estimator, group_size)
        self.allowance.start()

    def step(
        self,
        step: int,
        rewards: ArrayLike,
        prompts: Iterable[Hashable],
        *,
        sketch: Sketch | None = None,
        at_hand: int | None = None,
        clipped: ClippedShares | None = None,
    ) -> Reading:
        """Record the responses of a step, and give a reading if one is due.

        Parameters
        ----------
        step : int
            Its number. A step may come in parts.
        rewards : array_like, shape (N,)
            Finite numbers. Leave out the responses that have no reward, and their prompts.
        prompts : iterable of N hashable ids
            Responses of a step with the same id are a group. No id is None, and at least one id is shared.
        sketch : callable, optional
            Returns the sketches (n, width) of the responses with given numbers (n,), as `gt.sketch` makes them. It is called
            only at a reading, and not for groups whose rewards are all equal.
        at_hand : int, optional
            The number of first responses that `sketch` knows; all unless given.
        clipped : ClippedShares, optional
            The shares of the step, to be averaged over the steps between readings.

        Returns
        -------
        Reading
            Its `numbers` are groups_with_signal with limits (_low, _high), overhead, and clipped_low and clipped_high where they
            are given. With sketches there are also efficiency, best_group_size, loss and sketched_prompts. The limits (_low,
            _high) of best_group_size are those of the set of sizes that may be best. The loss is the share by which the best
            size's efficiency is above that of the size in use.
        """
        with self.guard.held(f"monitoring step {step}"), self.allowance.spending():
            groups = StepGroups(rewards, prompts)
            self._window.add(step, groups)
            if clipped is not None:
                self._clipped.append(clipped)
            if self._next is None or step < self._next - self.every:
                self._next = step + self.every - 1
            if step >= self._next and self.allowance.left > self._read_seconds:
                self._next = step + self.every
                if sketch is not None and self._sketching:
                    self._take(step, groups, sketch, at_hand)
                return self._read(step)
        return Reading(step)

    def _take(self, step: int, groups: StepGroups, sketch: Sketch, at_hand: int | None) -> None:
        """Sketch as many groups as there is time for, the first ones: their number is chosen without a look at their rewards."""
        try:
            known = np.bincount(groups.index[:at_hand], minlength=groups.sizes.size) == groups.sizes
            taken = self._affordable(np.flatnonzero(known & (groups.sizes >= FEWEST)), groups.sizes)
            needed = np.isin(groups.index, taken) & (groups.signal | self._uniform_counts)[groups.index]
            sketches = self._sketched(sketch, np.flatnonzero(needed), groups.rewards.size)
            for group in taken.tolist():
                own = groups.index == group
                part = sketches[own] if needed[own].any() else None
                self._pool.add(step, groups.prompts[group], groups.rewards[own], part)
        except Exception as error:
            self._sketching = False  # what failed would fail again, and takes time
            self.guard.refuse(f"sketching at step {step}", error)

    def _affordable(self, groups: Integers, sizes: Integers) -> Integers:
        """Return the first groups, as many as may be sketched in the time that is left; one while no cost is known."""
        if self.allowance.share is None:
            return groups
        if self._sketch_seconds == 0.0:
            return groups[:1]
        seconds = np.cumsum(sizes[groups]) * self._sketch_seconds
        return groups[seconds <= self.allowance.left - self._read_seconds]

    def _sketched(self, sketch: Sketch, rows: Integers, size: int) -> Array:
        """Return an array (N, width) with the sketches of some responses, and zeros for the others."""
        if rows.size == 0:
            return np.zeros((size, 1))
        began = self._clock()
        given = as_real_array("sketch", sketch(rows), 2)
        self._sketch_seconds = max((self._clock() - began) / rows.size, FADE * self._sketch_seconds)
        check_shape("sketch", given, (rows.size, given.shape[1]), "(n, width), one row per response that was asked for")
        sketches = np.zeros((size, given.shape[1]))
        sketches[rows] = given
        return sketches

    def _read(self, step: int) -> Reading:
        """Return what the groups since the last reading, and the newest sketches, tell."""
        began = self._clock()
        share, low, high = self._window.share(self.level)
        numbers = {"groups_with_signal": share, "groups_with_signal_low": low, "groups_with_signal_high": high}
        remarks = self._of_signal(share, low, high)
        if self._clipped:
            numbers |= {
                f"clipped_{side}": float(np.mean([getattr(one, side) for one in self._clipped])) for side in ("low", "high")
            }
        advice = self._advice(step)
        if advice is not None:
            numbers |= _numbers(advice)
            remarks += self._of_size(advice)
        self._window.clear()
        self._clipped.clear()
        numbers["overhead"] = self.allowance.overhead
        self._read_seconds = max(self._clock() - began, FADE * self._read_seconds)
        return Reading(step, numbers, tuple(remarks))

    def _advice(self, step: int) -> StepAdvice | None:
        """Return what the newest sketches tell; None if they do not, or if it cannot be computed: then no more are taken."""
        try:
            rollouts = self._pool.rollouts(step)
            if rollouts is None:
                return None
            different = np.unique(rollouts.rewards).size
            if different > MOST_VALUES and self._needs_law:
                raise ValueError(
                    f"the responses have {different} different rewards, and the efficiency of {self.estimator.name} is known for "
                    f"at most {MOST_VALUES}. Round the rewards, or name an estimator that does not divide, such as 'rloo'"
                )
            responses = self.responses or self._window.responses_per_step
            return advise_step(rollouts, responses, estimator=self.estimator, level=self.level)
        except Exception as error:
            # What failed would fail again, as with graded rewards of too many values; the signal is still read.
            self._sketching, self._pool = False, _new_pool(self.every)
            self.guard.refuse(f"advice from the sketches at step {step}", error)
            return None


def _new_pool(every: int) -> SketchPool:
    return SketchPool(MOST_PROMPTS, READINGS_KEPT * every)


def _numbers(advice: StepAdvice) -> dict[str, float]:
    return {
        "efficiency": advice.efficiency,
        "best_group_size": advice.best,
        "best_group_size_low": advice.low,
        "best_group_size_high": advice.high,
        "loss": advice.loss,
        "sketched_prompts": advice.prompts,
    }


def _rehearse(estimator: Estimator, group_size: int) -> None:
    """Give advice from four prompts that nobody asked, so that what it needs is imported and compiled."""
    size = max(FEWEST, group_size)
    rewards = np.tile((np.arange(size) % 2).astype(np.float64), 4)
    scores = np.sin(np.arange(4.0 * size * 2.0)).reshape(-1, 2)
    rollouts = RaggedRollouts(np.repeat(np.arange(4), size), rewards, scores)
    with np.errstate(all="ignore"):  # made-up sketches may point nowhere, and what is divided by their sum is of no interest
        advise_step(rollouts, 4 * size, estimator=estimator)
