"""A group size for a whole run: what each size loses in simulated worlds that agree with the log."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grpo_theory.estimation import Estimator, find
from grpo_theory.estimation.advantage import affine_coefficients
from grpo_theory.intervals.ragged import RewardCounts
from grpo_theory.intervals.rollouts import Groups
from grpo_theory.logs import RolloutLog
from grpo_theory.plan.advice import UNNAMED, check_independent, check_informative, parts
from grpo_theory.plan.reward_laws import fit_reward_laws
from grpo_theory.plan.reward_levels import reward_ladder
from grpo_theory.plan.run_agreement import agreement, alignment, log_alignment
from grpo_theory.plan.run_rates import RateReading, graded_readings, readings
from grpo_theory.plan.run_simulation import RESPONSES, Course, train_sizes
from grpo_theory.plan.run_worlds import WORLDS, RunWorld
from grpo_theory.plan.scores_advice import usable
from grpo_theory.plan.success_rates import fit_success_rates
from grpo_theory.simulate.workers import map_in_order
from grpo_theory.validation import Argument, ArgumentError, Array, Flags, Integers, as_count, as_number

SIZES = (2, 4, 8, 16, 32, 64)
"""The group sizes that are simulated: the largest is a whole update."""
PROMPTS = ((32, 64), (512, 32), (2048, 16))
"""Up to the first number of responses per training prompt, a world has the second number of prompts: all cost alike."""
LEAST, MOST = 8, PROMPTS[-1][0]
"""The fewest and the most responses per prompt that are simulated."""
JUDGED = 128
"""The most responses per prompt of runs that judged the advice (docs/planner.md)."""
JUDGED_GRADED = 64
"""As `JUDGED`, where rewards are graded."""
DIVIDED, OFTEN = 8, 1000.0
"""A group size that tells estimators that divide, and the responses per prompt from which their best size has grown."""
WORKERS = 2
ENTROPY = 20261127

Progress = Callable[[int, int], None]
"""``progress(done, all)``: called before the first world and after each."""


@dataclass(frozen=True, eq=False)
class WorldRuns:
    """What runs of one world reached.

    Attributes
    ----------
    title : str
        How prompts share parameters there.
    floor : float
        The success rate of the prompts that the log cannot tell from 0.
    weight : float
        How well the world agrees with the log; all weights sum to 1.
    start : float
        Mean success before the run.
    success : ndarray, shape (S,)
        Mean success after it, at each group size.
    errors : ndarray, shape (S,)
        Standard errors of `success`.
    """

    title: str
    floor: float
    weight: float
    start: float
    success: Array
    errors: Array

    @property
    def losses(self) -> Array:
        """What each size loses against the best one there, in mean success, shape (S,)."""
        return self.success.max() - self.success


@dataclass(frozen=True, eq=False)
class RunAdvice:
    """How much mean success each group size loses by the end of a run, in simulated worlds.

    Attributes
    ----------
    estimator : str
        The estimator that was simulated.
    total : float
        The responses of the run.
    training_prompts : int
        The prompts that are trained on.
    simulated : float
        The responses per prompt at which the worlds were run. Another number than `total / training_prompts` is an extrapolation.
    group_sizes : ndarray of int, shape (S,)
    worlds : tuple of WorldRuns
    alignment : float or None
        How alike the prompts' gradients are in the log; None without gradients.
    rewards : tuple of float
        The log's rewards that the worlds pay, ascending. Success is the mean reward on a scale from 0, the least of them, to 1,
        the greatest.

    Examples
    --------
    >>> import numpy as np, grpo_theory as gt
    >>> from grpo_theory.plan.run_advice import WorldRuns
    >>> errors = np.full(2, 0.001)
    >>> alone = WorldRuns("prompts do not touch each other", 0.01, 0.75, 0.3, np.array([0.70, 0.72]), errors)
    >>> shared = WorldRuns("prompts share parameters, with room for all", 0.01, 0.25, 0.3, np.array([0.80, 0.74]), errors)
    >>> run = gt.plan.RunAdvice("rloo", 1e5, 100, 1000.0, np.array([4, 16]), (alone, shared), None)
    >>> run.group_size, run.expected_losses.round(3).tolist(), [round(loss, 3) for loss in run.quantiles(run.best)]
    (4, [0.015, 0.015], [0.0, 0.02, 0.02])
    """

    estimator: str
    total: float
    training_prompts: int
    simulated: float
    group_sizes: Integers
    worlds: tuple[WorldRuns, ...]
    alignment: float | None
    rewards: tuple[float, ...] = (0.0, 1.0)

    @property
    def graded(self) -> bool:
        """Whether the worlds pay more than two rewards."""
        return len(self.rewards) > 2

    @property
    def each(self) -> float:
        """The responses of the run over the prompts trained on."""
        return self.total / self.training_prompts

    @property
    def extrapolated(self) -> bool:
        """Whether the worlds were run at another number of responses per prompt than the user's run has."""
        return not np.isclose(self.each, self.simulated, rtol=0.3)

    @property
    def most_judged(self) -> int:
        """The most responses per prompt of runs that judged such advice."""
        return JUDGED_GRADED if self.graded else JUDGED

    @property
    def judged(self) -> bool:
        """Whether such advice was judged by runs of so many responses per prompt; beyond, it is only what the worlds say."""
        return self.each <= self.most_judged

    @property
    def larger_may_serve(self) -> bool:
        """Whether groups larger than recommended may serve, because the estimator weights rare prompts more in larger groups.

        So it was in whole runs that asked each prompt a thousand times (docs/runs.md). It takes an estimator that divides, and a
        log that leaves open how rarely prompts succeed.
        """
        divides = affine_coefficients(find(self.estimator).advantage, DIVIDED) is None
        return divides and self.each >= OFTEN and len({world.floor for world in self.worlds}) > 1

    @property
    def weights(self) -> Array:
        """Of the worlds, shape (W,)."""
        return np.array([world.weight for world in self.worlds])

    @property
    def losses(self) -> Array:
        """What each size loses in each world, in mean success, shape (W, S)."""
        return np.array([world.losses for world in self.worlds])

    @property
    def expected_losses(self) -> Array:
        """The mean of the losses over the worlds, by their weights, shape (S,)."""
        return self.weights @ self.losses

    @property
    def errors(self) -> Array:
        """Standard errors of the mean success over worlds, shape (S,): what more runs would change."""
        variances = np.array([world.errors**2 for world in self.worlds])
        return np.sqrt(self.weights**2 @ variances)

    @property
    def best(self) -> int:
        """The place of the recommended size."""
        return int(self.expected_losses.argmin())

    @property
    def group_size(self) -> int:
        """The recommended size: what loses least over the worlds that agree with the log."""
        return int(self.group_sizes[self.best])

    @property
    def candidates(self) -> Flags:
        """Which sizes the simulated runs cannot tell from the recommended one, shape (S,): within two standard errors."""
        behind = self.expected_losses - self.expected_losses[self.best]
        return behind <= 2.0 * np.hypot(self.errors, self.errors[self.best])

    def quantiles(self, size: int) -> tuple[float, float, float]:
        """Return what the size at a place loses in the best, the middle and the worst of the worlds, the middle by weight."""
        losses = self.losses[:, size]
        order = losses.argsort()
        middle = order[np.searchsorted(np.cumsum(self.weights[order]), 0.5 * self.weights.sum())]
        return float(losses.min()), float(losses[middle]), float(losses.max())

    @property
    def worth(self) -> dict[str, float]:
        """What each measurement would gain on average: the loss that is left, less that if its answer were known.

        The key "sharing" is how prompts share parameters, which sketches of gradients and a short run show. The key "rare" is
        the success rate of the prompts that the log cannot tell from 0, which more responses to them show.
        """
        left = float(self.expected_losses.min())
        titles = np.array([world.title for world in self.worlds])
        floors = np.array([world.floor for world in self.worlds])
        return {"sharing": left - self._known(titles), "rare": left - self._known(floors)}

    def _known(self, labels: NDArray[Any]) -> float:
        """Return the loss that is left if one of some kinds of worlds, by their labels (W,), is known to be the true one."""
        kinds = [labels == label for label in np.unique(labels)]
        return float(sum((self.weights[kind] @ self.losses[kind]).min() for kind in kinds))


def advise_run(
    rollouts: RolloutLog | Groups | RewardCounts,
    total: float,
    *,
    training_prompts: int | None = None,
    estimator: str | Estimator | None = None,
    largest: int = SIZES[-1],
    progress: Progress | None = None,
) -> RunAdvice:
    """Advise on the group size of a whole run of training, from rewards, and from sketches of gradients where there are some.

    Small worlds start at the log's success rates. They differ in what rewards do not show: how prompts share parameters, and
    how seldom the prompts succeed that were never solved. With more than two rewards they start at the log's mean rewards and
    spreads within prompts. Success is then the mean reward, scaled to run from 0 to 1. In each world the run is simulated at
    every group size, by plain ascent with the learning rate that is best for it. What counts is the number of responses that
    the run spends on each prompt.

    Parameters
    ----------
    rollouts : RolloutLog, RaggedRollouts, Rollouts or RewardCounts
        As `gt.read_rollouts` returns them, with at least two different rewards.
    total : float
        The responses of the whole run, of all prompts and updates.
    training_prompts : int, optional
        How many prompts are trained on; those of the log if it is not given.
    estimator : str or Estimator, optional
        The estimator that is trained with: a name of `gt.estimators()`. "rloo" if it is not given.
    largest : int, default 64
        The largest group size to consider.
    progress : callable, optional
        Called with the number of worlds that were run, and of all, before the first and after each.

    Returns
    -------
    RunAdvice

    Raises
    ------
    ValueError
        If all rewards are equal, and if the total is not finite or less than one group.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> log = gt.read_rollouts("examples/rollouts.jsonl")
    >>> advice = gt.plan.advise_run(log, 20_000, training_prompts=1000, estimator="trl_grpo")
    >>> advice.extrapolated
    False
    """
    groups, counts = parts(rollouts)
    check_independent(rollouts.findings if isinstance(rollouts, RolloutLog) else None)
    check_informative(counts)
    chosen = find(UNNAMED if estimator is None else estimator)
    sizes = tuple(size for size in SIZES if chosen.advantage.minimum_group_size <= size <= as_count("largest", largest, 2))
    number = check_total(total)
    trained_on = counts.prompts if training_prompts is None else as_count("training_prompts", training_prompts)
    asked = float(np.clip(number / trained_on, LEAST, MOST))
    prompts = next(few for most, few in PROMPTS if asked <= most)
    kept, _ = usable(groups)
    found = None if kept is None else log_alignment(kept)
    ladder = reward_ladder(counts)
    if counts.binary:
        starts = readings(counts, fit_success_rates(counts), prompts)
    else:
        starts = graded_readings(ladder, fit_reward_laws(ladder), prompts)
    cases = [(world, reading) for world in WORLDS for reading in starts]
    updates = max(round(asked * prompts / RESPONSES), 1)
    seeds = np.random.SeedSequence(ENTROPY)

    def run(case: tuple[RunWorld, RateReading]) -> tuple[float, Course]:
        world, reading = case
        problem = world.graded(ladder.grades, reading.shares)
        weight = reading.agreement * (1.0 if found is None else agreement(found, alignment(problem)))
        return weight, train_sizes(problem, chosen, sizes, (updates,), seeds)

    if progress is not None:
        progress(0, len(cases))  # the first world takes longest: what it runs is compiled
    weights, courses = [], []
    for done, (weight, course) in enumerate(map_in_order(run, cases, WORKERS), start=1):
        weights.append(weight)
        courses.append(course)
        if progress is not None:
            progress(done, len(cases))
    if not sum(weights) > 0.0:  # a log that is unlike every world tells none from another
        weights = [1.0] * len(weights)
    shares = np.array(weights) / sum(weights)
    worlds = tuple(
        WorldRuns(world.title, reading.floor, float(share), course.start, course.success[:, 0], course.errors[:, 0])
        for (world, reading), share, course in zip(cases, shares, courses, strict=True)
    )
    simulated = updates * RESPONSES / prompts
    known = None if found is None else found[0]
    paid = tuple(ladder.rewards.tolist())
    return RunAdvice(chosen.name, number, trained_on, simulated, np.array(sizes), worlds, known, paid)


def check_total(total: float) -> float:
    """Return the responses of a run as a float; ValueError unless it is finite and at least one group of two."""
    number = as_number("total", total, "the responses of the whole run")
    if not 2.0 <= number < np.inf:
        raise ArgumentError(Argument("total"), f" must be finite and at least one group, 2 responses, got {total:g}")
    return number
