"""Advice while any trainer runs: give it the rewards of each step, and it says every few steps what they tell."""

import logging
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from grpo_theory.checks.estimates import Estimate, fit_course, group_signal
from grpo_theory.checks.sentences import MATTERS, MOST, difficulty, fall
from grpo_theory.estimation import Estimator, find
from grpo_theory.intervals.rollouts import RaggedRollouts
from grpo_theory.plan import efficiency
from grpo_theory.plan.advice import usable
from grpo_theory.plan.group_size import LARGEST_GROUP, Limits, baseline_terms
from grpo_theory.user_text import LONGEST_MESSAGE, printable
from grpo_theory.validation import Array, Integers, as_count, as_fraction, as_real_array, check_shape, counted

LOG = logging.getLogger("grpo_theory.live")
"""Remarks and errors are written here, as warnings: these are shown where nobody set up a log."""
Sketch = Callable[[Integers], ArrayLike]
"""Returns the sketches (n, width) of the responses of the step with these numbers, shape (n,)."""
FEWEST = 4
"""Responses that a prompt must have to say something about the error of a gradient."""
FEWEST_PROMPTS = 32
"""The best group size is said from so many sketched prompts on: the least with which the planner's studies judge it."""
MOST_PROMPTS, READINGS_KEPT = 256, 20
"""Sketches are kept of so many prompts, and for so many readings."""
COURSE_EVERY = 20
"""The course of the mean reward is looked at after so many more steps."""
PLANNED = 0.8
"""The share of the allowed time that is planned to be spent; how long a part takes is known from the last time alone."""
FADE = 0.5
"""What a slow part took is remembered as this share of it at the next time, because costs vary."""
SKETCHING, SIZE, COURSE = "sketching", "advice from the sketches", "reading the course of the rewards"


class Reading(NamedTuple):
    """The numbers and remarks of a monitor at one step.

    Attributes
    ----------
    step : int
    numbers : dict of str to float
        To be logged; empty at steps at which nothing was read.
    remarks : list of str
        Sentences, where the advice changed.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> reading = gt.live.Reading(20, {"groups_with_signal": 0.4}, ["Only 40% of the groups have a signal."])
    >>> reading.step, reading.numbers["groups_with_signal"], len(reading.remarks)
    (20, 0.4, 1)
    """

    step: int
    numbers: dict[str, float]
    remarks: list[str]


class Monitor:
    """Monitor a training run: read the rewards of each step, and advise on signal, course and group size every few steps.

    It never ends the run: the first error of each part of its work is logged, under the name ``grpo_theory.live``. It
    measures its own time. Rewards are read at every step. Sketches wait where the share of the run's other time would be above
    `overhead`, and fewer groups are then sketched.

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
    clock : callable, default time.perf_counter
        Returns seconds.

    Attributes
    ----------
    errors : int
        How many errors there were.
    spent : float
        Seconds taken so far.

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
    >>> reading.numbers["groups_with_signal"], reading.numbers["groups_all_right"]
    (0.5, 0.5)
    """

    def __init__(
        self,
        *,
        every: int = 20,
        estimator: str | Estimator = "rloo",
        responses: int | None = None,
        overhead: float | None = 0.05,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.every, self.estimator = as_count("every", every), find(estimator)
        efficiency.check_reads_own_rewards(self.estimator)
        # Without a baseline groups with equal rewards have a gradient too.
        self._uniform_counts = efficiency.baseline_of(self.estimator, FEWEST) == "none"
        self.responses = None if responses is None else as_count("responses", responses, 2)
        self._share = None if overhead is None else as_fraction("overhead", overhead)
        self._clock, self._began, self._depth = clock, clock(), 0
        self.spent, self.errors, self._failed = 0.0, 0, set[str]()
        self._cost, self._row_seconds = dict[str, float](), 0.0
        self._next: int | None = None
        self._window, self._range, self._groups = list[pd.DataFrame](), (np.inf, -np.inf), 0
        self._course, self._course_seen = list[tuple[float, ...]](), 0
        self._pool: dict[Hashable, tuple[int, Array, Array | None]] = {}
        self._said: dict[str, object] = {}

    @property
    def overhead(self) -> float:
        """What was spent, as a share of the other time that has passed; 0 before any has."""
        others = self._clock() - self._began - self.spent
        return self.spent / others if others > 0.0 else 0.0

    @contextmanager
    def working(self, part: str, step: int | None = None) -> Iterator[None]:
        """Count the time of what happens inside, and hold back its errors: the first of each part is logged. An interrupt passes.

        So an early error of one part, such as a missing reward, does not hide that another part never works.

        Examples
        --------
        >>> import grpo_theory as gt
        >>> monitor = gt.live.Monitor()
        >>> with monitor.working("a part"):
        ...     pass
        >>> monitor.errors
        0
        """
        began, self._depth = self._clock(), self._depth + 1
        try:
            yield
        except Exception as error:
            self.errors += 1
            if part not in self._failed:
                self._failed.add(part)
                where, kind = part if step is None else f"{part} at step {step}", type(error).__name__
                told = ""
                with suppress(Exception):  # of an error that cannot say what it is
                    told = printable(f": {error}", LONGEST_MESSAGE)
                with suppress(Exception):  # of whatever listens to the log
                    LOG.warning("%s failed (%s%s). Training goes on; later errors there are not logged.", where, kind, told)
                    LOG.debug("where it failed", exc_info=error)
        finally:
            seconds, self._depth = self._clock() - began, self._depth - 1
            self._cost[part] = max(seconds, FADE * self._cost.get(part, 0.0))
            if self._depth == 0:  # what happens inside another such block is counted there
                self.spent += seconds

    def _left(self) -> float:
        """Return the seconds that are planned to be spent; below 0 where more were already, and infinite without a limit."""
        if self._share is None:
            return float("inf")
        return PLANNED * self._share * (self._clock() - self._began - self.spent) - self.spent

    def _affords(self, part: str) -> bool:
        """Return whether there is time for a part, and it never failed: what failed would fail again, and takes time."""
        return part not in self._failed and self._left() > self._cost.get(part, 0.0)

    def start(self, group_size: int = 8) -> None:
        """Import and compile what readings need, and begin to count the run's time; else the first reading does.

        Examples
        --------
        >>> import grpo_theory as gt
        >>> monitor = gt.live.Monitor(every=1, overhead=None)
        >>> monitor.start(group_size=4)
        >>> monitor.errors
        0
        """
        with self.working("the start of the monitor"), np.errstate(all="ignore"):  # made-up sketches may point nowhere
            ids = np.repeat(np.arange(FEWEST_PROMPTS), max(FEWEST, group_size))
            sketches = np.sin(np.arange(2.0 * ids.size)).reshape(-1, 2)
            rehearsal = Monitor(every=1, estimator=self.estimator, overhead=None)
            rehearsal.step(1, np.arange(ids.size) % 2, ids, sketch=sketches.__getitem__)
        self._began, self.spent, self._cost = self._clock(), 0.0, {}

    def step(
        self,
        step: int,
        rewards: ArrayLike,
        prompts: Iterable[Hashable],
        *,
        sketch: Sketch | None = None,
        at_hand: int | None = None,
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

        Returns
        -------
        Reading
            Its `numbers` are groups_with_signal, groups_all_right and groups_all_wrong with limits (_low, _high), and overhead.
            Right is the highest reward of the run, wrong the lowest; while it has had one, groups_equal stands in their place.
            With sketches there is also sketched_prompts. From 32 of these on there are efficiency, best_group_size with the
            limits of the sizes that may be best, and loss. That is the share by which the best size's efficiency is above
            that of the size in use.
        """
        reading = Reading(step, {}, [])
        with self.working("reading rewards", step):
            groups = RaggedRollouts(prompts, rewards)  # type: ignore[arg-type]  # it makes arrays of them
            if groups.sizes.max() == 1:
                raise ValueError(f"prompts must be ids that a group's responses share, and all {groups.batch_size} differ")
            columns = {"group": self._groups + groups.index, "prompt": groups.prompts[groups.index], "reward": groups.rewards}
            self._window.append(pd.DataFrame({"step": step, **columns}))
            self._groups += groups.batch_size
            self._range = min(self._range[0], groups.rewards.min()), max(self._range[1], groups.rewards.max())
            while self._course and self._course[-1][0] > step:  # the run was taken back to a checkpoint
                self._course_seen = min(self._course_seen, len(self._course) - 1)
                self._course.pop()
            self._course.append((step, float(groups.rewards.mean()), groups.rewards.size))
            if self._next is None or step < self._next - self.every:
                self._next = step + self.every - 1
            if step < self._next:
                return reading
            self._next = step + self.every
            rows = pd.concat(self._window)
            self._window.clear()
            mixed, right, wrong = group_signal(rows, self._range).values()
            kinds = {"with_signal": mixed, "all_right": right, "all_wrong": wrong}
            if self._range[0] == self._range[1]:  # right and wrong cannot be told apart yet
                kinds = {"with_signal": mixed, "equal": Estimate(1.0 - mixed.value, 1.0 - mixed.high, 1.0 - mixed.low)}
            for name, share in kinds.items():
                reading.numbers.update(zip((f"groups_{name}{end}" for end in ("", "_low", "_high")), share, strict=True))
            state = next((name for name, share in kinds.items() if share.low > MOST), self._said.get("difficulty"))
            state = None if state == "with_signal" else state
            self._say(reading, "difficulty", state, difficulty(right, wrong, int(rows.groupby("group").size().median())))
            if len(self._course) - self._course_seen >= COURSE_EVERY and self._affords(COURSE):
                with self.working(COURSE, step):
                    self._course_seen = len(self._course)
                    course = fit_course(*np.array(self._course, dtype=np.float64).T)
                    change = None if course is None else course.fall(MATTERS * (self._range[1] - self._range[0]))
                    self._say(reading, "fall", change is not None or None, change and fall(change))
            if sketch is not None and SKETCHING not in self._failed and self._affords(SIZE):
                with self.working(SKETCHING, step):
                    self._take(step, groups, sketch, at_hand)
            if self._pool and self._affords(SIZE):
                with self.working(SIZE, step):
                    self._best_size(reading, len(rows) / rows["step"].nunique())
            reading.numbers["overhead"] = self.overhead
        return reading

    def _say(self, reading: Reading, topic: str, state: object, sentence: str | None) -> None:
        """Add a sentence if the state of its topic is another than before; None is where all begin."""
        if sentence and state != self._said.get(topic):
            reading.remarks.append(sentence)
        self._said[topic] = state

    def _take(self, step: int, groups: RaggedRollouts, sketch: Sketch, at_hand: int | None) -> None:
        """Sketch as many groups as there is time for, the first ones: their number is chosen without a look at their rewards."""
        known = np.bincount(groups.index[:at_hand], minlength=groups.batch_size) == groups.sizes
        taken = np.flatnonzero(known & (groups.sizes >= FEWEST))
        if self._share is not None:  # one group while no cost is known
            seconds = np.cumsum(groups.sizes[taken]) * self._row_seconds
            taken = taken[seconds <= self._left() - self._cost.get(SIZE, 0.0)] if self._row_seconds else taken[:1]
        mixed = groups.by_prompt(lambda group: np.ptp(group.rewards, axis=-1)) > 0.0
        needed = np.isin(groups.index, taken) & (mixed | self._uniform_counts)[groups.index]
        rows, given = np.flatnonzero(needed), np.zeros((0, 1))
        if rows.size:
            began = self._clock()
            given = as_real_array("sketch", sketch(rows), 2)
            check_shape("sketch", given, (rows.size, given.shape[1]), "(n, width), a row for each response that was asked for")
            self._row_seconds = max((self._clock() - began) / rows.size, FADE * self._row_seconds)
        for group in taken.tolist():
            own, prompt = groups.index == group, groups.prompts[group]
            self._pool.pop(prompt, None)
            self._pool[prompt] = (step, groups.rewards[own], given[own[rows]] if needed[own].any() else None)

    def _best_size(self, reading: Reading, responses: float) -> None:
        """Read what the newest sketched group of each prompt tells of the group size; a step has so many responses."""
        fresh = [one for one in self._pool.items() if reading.step - one[1][0] < READINGS_KEPT * self.every]
        self._pool = dict(fresh[-MOST_PROMPTS:])
        reading.numbers["sketched_prompts"] = float(len(self._pool))
        if len(self._pool) < FEWEST_PROMPTS:
            return
        found = best_size([one[1:] for one in self._pool.values()], self.responses or round(responses), self.estimator)
        if found is None:
            return
        choice, in_use = found
        at, best, low, high = choice.at(in_use), choice.group_size, choice.low, choice.high
        loss, said = float(choice.loss.estimate[at]), self._said.get("size")
        named = {"best_group_size": best, "best_group_size_low": low, "best_group_size_high": high}
        reading.numbers.update(named, efficiency=float(choice.efficiency[at]), loss=loss)
        rest = f"({counted(len(self._pool), 'prompt')}: {low} to {high} may be best)"
        if choice.candidates[at]:
            self._say(reading, "size", None, f"Keep your group size, {in_use}: it may be the best again {rest}.")
        else:
            name = self.estimator.name
            more = f"A step with groups of {best} gains {loss:.0%} more than with yours, {in_use}, for {name} {rest}."
            self._say(reading, "size", said if isinstance(said, int) and low <= said <= high else best, more)


def best_size(
    groups: Sequence[tuple[Array, Array | None]], responses: int, estimator: Estimator
) -> tuple[efficiency.EfficiencyChoice, int] | None:
    """Return the choice among group sizes G with responses // G prompts, and the size in use, which half of the groups have.

    A group is its rewards (n,) and their sketches (n, width). These are None where they make no difference: rewards are all
    equal and the estimator has a baseline. The result is None if the groups do not tell: fewer than three have four responses,
    or none has different rewards. An estimator that divides is known up to the size in use, and for eight different rewards.
    """
    width = next((one.shape[1] for _, one in groups if one is not None), 1)
    rewards = np.concatenate([own for own, _ in groups])
    sketches = np.concatenate([np.zeros((own.size, width)) if one is None else one for own, one in groups])
    index = np.repeat(np.arange(len(groups)), [own.size for own, _ in groups])
    kept, _ = usable(RaggedRollouts.from_index(range(len(groups)), index, rewards, sketches))
    if kept is None:
        return None
    in_use = min(efficiency.logged_size(kept.sizes), responses)
    laws = efficiency.EstimatorLaws(kept, Limits(budget=responses, max_group_size=min(responses, LARGEST_GROUP)), in_use)
    baseline = efficiency.baseline_of(estimator, in_use)
    unbiased = efficiency.StepLaw.of_unbiased
    law = laws.of(estimator) if baseline is None else unbiased(baseline_terms(kept)[baseline], laws.sizes(None))
    if law is None or in_use not in law.group_sizes:
        return None
    return efficiency.choose_by_efficiency(law, laws.batches[np.searchsorted(laws.allowed, law.group_sizes)], 0.95), in_use
