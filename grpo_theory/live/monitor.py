"""Advice while any trainer runs: give it the rewards of each step, and it says every few steps what they tell."""

import logging
import time
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from grpo_theory.checks.sentences import MOST, difficulty, fall
from grpo_theory.estimation import Estimator, find
from grpo_theory.plan.efficiency import baseline_of, check_reads_own_rewards
from grpo_theory.user_text import LONGEST_MESSAGE, printable
from grpo_theory.validation import Array, Integers, as_count, as_fraction, as_real_array, counted, shown

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


class StepGroups(NamedTuple):
    """The responses of a step: rewards (N,), groups of all (N,), and each group's prompt, size and range of rewards (B,)."""

    rewards: Array
    group: Integers
    prompts: list[Hashable]
    sizes: Integers
    low: Array
    high: Array


def step_groups(rewards: ArrayLike, prompts: Iterable[Hashable]) -> StepGroups:
    """Return the groups of a step; raise unless there is an id for each reward, none is None, and one is shared."""
    given, numbers = as_real_array("rewards", rewards, 1), dict[Hashable, int]()
    if isinstance(prompts, str | bytes) or not isinstance(prompts, Iterable):
        raise TypeError(f"prompts must be ids, one per response, got {shown(prompts)}")
    group: Integers = np.array([numbers.setdefault(one, len(numbers)) for one in prompts], dtype=np.int64)
    if group.size != given.size or None in numbers or len(numbers) == group.size:
        found = f"{group.size} ids, {len(numbers)} of them different{', one of them None' * (None in numbers)}"
        raise ValueError(f"prompts must be an id for each of the {given.size} rewards, shared by each group's, got {found}")
    low, high = np.full(len(numbers), np.inf), np.full(len(numbers), -np.inf)
    np.minimum.at(low, group, given)
    np.maximum.at(high, group, given)
    return StepGroups(given, group, list(numbers), np.bincount(group), low, high)


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
        check_reads_own_rewards(self.estimator)
        # Without a baseline groups with equal rewards have a gradient too.
        self._uniform_counts = baseline_of(self.estimator, FEWEST) == "none"
        self.responses = None if responses is None else as_count("responses", responses, 2)
        self._share = None if overhead is None else as_fraction("overhead", overhead)
        self._clock, self._began, self._depth = clock, clock(), 0
        self.spent, self.errors, self._failed = 0.0, 0, set[str]()
        self._cost, self._row_seconds = dict[str, float](), 0.0
        self._next: int | None = None
        self._window, self._range = list[tuple[int, StepGroups]](), (np.inf, -np.inf)
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
            With sketches there is also sketched_prompts. From 32 of these on there are efficiency, best_group_size with the
            limits of the sizes that may be best, and loss. That is the share by which the best size's efficiency is above
            that of the size in use.
        """
        reading = Reading(step, {}, [])
        with self.working("reading rewards", step):
            groups = step_groups(rewards, prompts)
            self._window.append((step, groups))
            self._range = min(self._range[0], groups.low.min()), max(self._range[1], groups.high.max())
            while self._course and self._course[-1][0] > step:  # the run was taken back to a checkpoint
                self._course_seen = min(self._course_seen, len(self._course) - 1)
                self._course.pop()
            self._course.append((step, float(groups.rewards.mean()), groups.rewards.size))
            if self._next is None or step < self._next - self.every:
                self._next = step + self.every - 1
            if step < self._next:
                return reading
            self._next = step + self.every
            self._signal(reading)
            if len(self._course) - self._course_seen >= COURSE_EVERY and self._affords(COURSE):
                with self.working(COURSE, step):
                    self._falls(reading)
            if sketch is not None and SKETCHING not in self._failed and self._affords(SIZE):
                with self.working(SKETCHING, step):
                    self._take(step, groups, sketch, at_hand)
            if self._pool and self._affords(SIZE):
                with self.working(SIZE, step):
                    self._best_size(reading)
            self._window.clear()
            reading.numbers["overhead"] = self.overhead
        return reading

    def _say(self, reading: Reading, topic: str, state: object, sentence: str | None) -> None:
        """Add a sentence if the state of its topic is another than before; None is where all begin."""
        if sentence and state != self._said.get(topic):
            reading.remarks.append(sentence)
        self._said[topic] = state

    def _signal(self, reading: Reading) -> None:
        """Read the shares of the groups since the last reading that have signal, are all right or all wrong."""
        from grpo_theory.checks.shares import clustered_share

        numbers: dict[Hashable, int] = {}
        low, high, sizes = map(np.concatenate, zip(*((one.low, one.high, one.sizes) for _, one in self._window), strict=True))
        prompts = np.array([numbers.setdefault(one, len(numbers)) for _, groups in self._window for one in groups.prompts])
        bottom, top = self._range
        mixed = high > low
        right = ~mixed & (high == top) & (top > min(bottom, 0.0))  # where the run has one reward, above 0 is right
        kinds = {"with_signal": mixed, "all_right": right, "all_wrong": ~mixed & ~right & (low == bottom)}
        shares = {name: clustered_share(kind, prompts) for name, kind in kinds.items()}
        for name, share in shares.items():
            reading.numbers.update(zip((f"groups_{name}{end}" for end in ("", "_low", "_high")), share, strict=True))
        signal, all_right, all_wrong = shares.values()
        state = None if signal.low > MOST else self._said.get("difficulty")
        state = "right" if all_right.low > MOST else "wrong" if all_wrong.low > MOST else state
        self._say(reading, "difficulty", state, difficulty(all_right, all_wrong, int(np.median(sizes))))

    def _falls(self, reading: Reading) -> None:
        """Say what to do where the mean reward has fallen, once."""
        from grpo_theory.checks.course import fit_course
        from grpo_theory.checks.reading import MATTERS

        self._course_seen = len(self._course)
        course = fit_course(*np.array(self._course, dtype=np.float64).T)
        change = None if course is None else course.fall(MATTERS * (self._range[1] - self._range[0]))
        said = None if change is None else fall(change.since, change.start, change.end)
        self._say(reading, "fall", said is not None or None, said)

    def _take(self, step: int, groups: StepGroups, sketch: Sketch, at_hand: int | None) -> None:
        """Sketch as many groups as there is time for, the first ones: their number is chosen without a look at their rewards."""
        known = np.bincount(groups.group[:at_hand], minlength=groups.sizes.size) == groups.sizes
        taken = np.flatnonzero(known & (groups.sizes >= FEWEST))
        if self._share is not None:  # one group while no cost is known
            seconds = np.cumsum(groups.sizes[taken]) * self._row_seconds
            taken = taken[seconds <= self._left() - self._cost.get(SIZE, 0.0)] if self._row_seconds else taken[:1]
        needed = np.isin(groups.group, taken) & ((groups.high > groups.low) | self._uniform_counts)[groups.group]
        rows, given = np.flatnonzero(needed), np.zeros((0, 1))
        if rows.size:
            began = self._clock()
            given = as_real_array("sketch", sketch(rows), 2)
            self._row_seconds = max((self._clock() - began) / rows.size, FADE * self._row_seconds)
        if len(given) != rows.size:
            raise ValueError(
                f"sketch must return a row for each of the {rows.size} responses that were asked for, got {len(given)}"
            )
        for group in taken.tolist():
            own, prompt = groups.group == group, groups.prompts[group]
            self._pool.pop(prompt, None)
            self._pool[prompt] = (step, groups.rewards[own], given[own[rows]] if needed[own].any() else None)

    def _best_size(self, reading: Reading) -> None:
        """Read what the newest sketched group of each prompt tells of the group size."""
        from grpo_theory.live.best_size import best_size

        fresh = [one for one in self._pool.items() if reading.step - one[1][0] < READINGS_KEPT * self.every]
        self._pool = dict(fresh[-MOST_PROMPTS:])
        reading.numbers["sketched_prompts"] = float(len(self._pool))
        if len(self._pool) < FEWEST_PROMPTS:
            return
        mean = sum(groups.rewards.size for _, groups in self._window) / len({step for step, _ in self._window})
        found = best_size([one[1:] for one in self._pool.values()], self.responses or round(mean), self.estimator)
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
            more = (
                f"A step with groups of {best} gains {loss:.0%} more than with yours, {in_use}, for {self.estimator.name} {rest}."
            )
            self._say(reading, "size", said if isinstance(said, int) and low <= said <= high else best, more)
