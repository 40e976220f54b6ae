"""A group size for a whole run: what each size loses in simulated worlds that agree with the log."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import softmax

from grpo_theory.estimation import Estimator, find
from grpo_theory.estimation.advantage import affine_coefficients
from grpo_theory.exact import objective
from grpo_theory.intervals.ragged import RewardCounts
from grpo_theory.intervals.rollouts import Groups
from grpo_theory.logs import RolloutLog
from grpo_theory.plan.advice import UNNAMED, check_independent, check_informative, parts, usable
from grpo_theory.plan.expected_step import LearningRateFactor, learning_rate_factor
from grpo_theory.plan.group_size import pilot_terms
from grpo_theory.plan.run_worlds import WORLDS, RateReading, RunWorld, fit_reward_laws, readings, reward_ladder
from grpo_theory.problem import Problem
from grpo_theory.simulate.ascents import Training, make_training, starting_points
from grpo_theory.simulate.streams import LANES
from grpo_theory.simulate.workers import map_in_order
from grpo_theory.validation import (
    Argument,
    ArgumentError,
    Array,
    Flags,
    Integers,
    as_count,
    as_not_negative,
    as_positive,
    outline,
)

SIZES = (2, 4, 8, 16, 32, 64)
"""The group sizes that are simulated: the largest is a whole update."""
PROMPTS = ((32, 64), (512, 32), (2048, 16))
"""Up to the first number of responses per training prompt, a world has the second number of prompts: all cost alike."""
LEAST, MOST = 8, PROMPTS[-1][0]
"""The fewest and the most responses per prompt that are simulated."""
JUDGED, JUDGED_GRADED = 128, 64
"""The most responses per prompt of runs that judged the advice (docs/planner.md), and where rewards are graded."""
OFTEN, RULES = 1000.0, {False: (2, 8), True: (8, 16)}
"""From so many responses per prompt on, the sizes that docs/runs.md allows estimators that do not divide, and those that do. The
worlds choose among these alone, because no runs judged them there."""
DIVIDED = 8
"""A group size that tells estimators that divide."""
NOISE = 0.01
"""A size that loses a point of success less than the user's is no reason for a change: advice is judged to two points."""
COARSE = 0.1
"""The worlds are coarse: an alignment that is off by so much is no evidence against one."""
RESPONSES = 64
"""N, those of an update: a group of 64 is then a batch of one prompt."""
TUNING, JUDGING = (0, 32), (1, 128)
"""The block of streams, and the number, of the runs that choose a learning rate, and of those that are judged."""
POWERS: Sequence[int] = range(-3, 5)
"""The learning rates are these powers of 3, times the number of prompts: a step is on the mean over prompts."""


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
        What the run may cost: its responses, where a response costs 1 and a prompt nothing.
    training_prompts : int
        The prompts that are trained on.
    simulated : float
        The responses per prompt at which the worlds were run with the recommended size. Another number than `each` is an
        extrapolation.
    group_sizes : ndarray of int, shape (S,)
    worlds : tuple of WorldRuns
    rewards : tuple of float
        The log's rewards that the worlds pay, ascending. Success is the mean reward on a scale from 0, the least of them, to 1,
        the greatest.
    costs : (float, float)
        Of a prompt in an update, and of a response.
    asked : int or None
        The group size in use.
    learning_rate : LearningRateFactor or None
        By what to multiply the learning rate when going from the size in use to the recommended one, to keep the expected step.

    Examples
    --------
    >>> import numpy as np, grpo_theory as gt
    >>> from grpo_theory.plan.run_advice import WorldRuns
    >>> errors = np.full(2, 0.001)
    >>> alone = WorldRuns("prompts do not touch each other", 0.01, 0.75, 0.3, np.array([0.70, 0.72]), errors)
    >>> shared = WorldRuns("prompts share parameters, with room for all", 0.01, 0.25, 0.3, np.array([0.80, 0.74]), errors)
    >>> run = gt.plan.RunAdvice("rloo", 1e4, 100, 100.0, np.array([4, 16]), (alone, shared), asked=16)
    >>> run.group_size, run.expected_losses.round(3).tolist(), [round(loss, 3) for loss in run.quantiles(run.best)], run.keep
    (4, [0.015, 0.015], [0.0, 0.02, 0.02], True)
    """

    estimator: str
    total: float
    training_prompts: int
    simulated: float
    group_sizes: Integers
    worlds: tuple[WorldRuns, ...]
    rewards: tuple[float, ...] = (0.0, 1.0)
    costs: tuple[float, float] = (0.0, 1.0)
    asked: int | None = None
    learning_rate: LearningRateFactor | None = None
    __repr__ = outline

    @property
    def graded(self) -> bool:
        """Whether the worlds pay more than two rewards."""
        return len(self.rewards) > 2

    @property
    def each(self) -> float:
        """The responses of the run over the prompts trained on, with groups of the recommended size."""
        return responses_each(self.total, self.training_prompts, self.costs, self.group_size)

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
    def rule(self) -> tuple[int, int] | None:
        """The sizes that docs/runs.md allows where each prompt is asked a thousand times; None below, where the worlds decide."""
        divides = affine_coefficients(find(self.estimator).advantage, DIVIDED) is None  # by what depends on the rewards
        often = responses_each(self.total, self.training_prompts, self.costs, DIVIDED) >= OFTEN
        return RULES[divides] if often else None

    @property
    def larger_may_serve(self) -> bool:
        """Whether groups larger than recommended may serve, because the estimator weights rare prompts more in larger groups.

        So it was in whole runs that asked each prompt a thousand times (docs/runs.md). It takes an estimator that divides, and a
        log that leaves open how rarely prompts succeed.
        """
        return self.rule == RULES[True] and len({world.floor for world in self.worlds}) > 1

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
        """The place of the recommended size: it loses least over the worlds, of those sizes that a rule allows."""
        low, high = self.rule or (0, np.inf)
        allowed = (self.group_sizes >= min(low, self.group_sizes[-1])) & (self.group_sizes <= max(high, self.group_sizes[0]))
        return int(np.where(allowed, self.expected_losses, np.inf).argmin())

    @property
    def group_size(self) -> int:
        """The recommended size: what loses least over the worlds that agree with the log."""
        return int(self.group_sizes[self.best])

    @property
    def candidates(self) -> Flags:
        """Which sizes the simulated runs cannot tell from the recommended one, shape (S,): within two standard errors."""
        behind = self.expected_losses - self.expected_losses[self.best]
        return np.abs(behind) <= 2.0 * np.hypot(self.errors, self.errors[self.best])

    @property
    def keep(self) -> bool | None:
        """Whether the size in use loses at most `NOISE`, or what simulated runs cannot tell; None if none was named.

        A size that was not simulated is judged as the nearest one, in ratio, if that is within a factor of the root of 2. Where
        the rule of docs/runs.md decides, the sizes that it allows are kept.
        """
        if self.asked is None:
            return None
        if self.rule is not None:
            return self.rule[0] <= self.asked <= self.rule[1]
        octaves = np.abs(np.log2(self.group_sizes / self.asked))
        place = int(octaves.argmin())
        behind = self.expected_losses[place] - self.expected_losses[self.best]
        return bool(octaves[place] <= 0.5 and (behind <= NOISE or self.candidates[place]))

    def quantiles(self, size: int) -> tuple[float, float, float]:
        """Return what the size at a place loses in the best, the middle and the worst of the worlds, the middle by weight."""
        losses = self.losses[:, size]
        middle = np.quantile(losses, 0.5, weights=self.weights, method="inverted_cdf")
        return float(losses.min()), float(middle), float(losses.max())

    @property
    def worth(self) -> dict[str, float]:
        """What each measurement would gain on average: the loss that is left, less that if its answer were known.

        The key "sharing" is how prompts share parameters, which sketches of gradients and a short run show. The key "rare" is
        the success rate of the prompts that the log cannot tell from 0, which more responses to them show.
        """

        def known(name: str) -> float:
            labels = [getattr(world, name) for world in self.worlds]
            kinds = [np.array([one == label for one in labels]) for label in set(labels)]
            return float(sum((self.weights[kind] @ self.losses[kind]).min() for kind in kinds))

        left = float(self.expected_losses.min())
        return {"sharing": left - known("title"), "rare": left - known("floor")}


def responses_each(total: float, training_prompts: int, costs: tuple[float, float], size: int) -> float:
    """Return the responses per training prompt that a cost pays in groups of a size, of which a prompt costs a + b G."""
    return total / (costs[1] + costs[0] / size) / training_prompts


def advise_run(
    rollouts: RolloutLog | Groups | RewardCounts,
    total: float,
    *,
    training_prompts: int | None = None,
    estimator: str | Estimator | None = None,
    group_size: int | None = None,
    costs: tuple[float, float] = (0.0, 1.0),
    largest: int = SIZES[-1],
    progress: bool = True,
) -> RunAdvice:
    """Advise on the group size of a whole run of training, from rewards, and from sketches of gradients where there are some.

    Small worlds start at the log's success rates. They differ in what rewards do not show: how prompts share parameters, and
    how seldom the prompts succeed that were never solved. With more than two rewards they start at the log's mean rewards and
    spreads within prompts. Success is then the mean reward, scaled to run from 0 to 1. In each world the run is simulated at
    every group size, by plain ascent with the learning rate that is best for it. What counts is the number of responses that
    the run spends on each prompt.

    Where prompts cost something, larger groups pay for fewer prompts and so have more responses for the same cost. Where each
    prompt is asked a thousand times or more, the worlds choose among the sizes of docs/runs.md alone.

    Parameters
    ----------
    rollouts : RolloutLog, RaggedRollouts, Rollouts or RewardCounts
        As `gt.read_rollouts` returns them, with at least two different rewards.
    total : float
        What the whole run may cost: its responses of all prompts and updates, if costs are not given.
    training_prompts : int, optional
        How many prompts are trained on; those of the log if it is not given.
    estimator : str or Estimator, optional
        The estimator that is trained with: a name of `gt.estimators()`. "rloo" if it is not given.
    group_size : int, optional
        The size in use, which is kept if it is within the noise of the best.
    costs : (float, float), default (0, 1)
        Of a prompt in an update, whatever its group's size, and of a response, in the unit of the total.
    largest : int, default 64
        The largest group size to consider.
    progress : bool, default True
        Show a bar on a terminal if it takes longer than some seconds.

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
    paid = as_not_negative("cost_prompt", costs[0]), as_positive("cost_response", costs[1])
    number, asked = check_total(total, paid), None if group_size is None else as_count("group_size", group_size, 2)
    trained_on = counts.prompts if training_prompts is None else as_count("training_prompts", training_prompts)
    each = np.array([responses_each(number, trained_on, paid, size) for size in sizes])
    most = float(np.clip(each.max(), LEAST, MOST))
    prompts = next(few for some, few in PROMPTS if most <= some)
    kept, _ = usable(groups)
    found = None if kept is None else log_alignment(kept)
    ladder = reward_ladder(counts)
    starts = readings(ladder, *fit_reward_laws(ladder), prompts)
    cases = [(world, reading) for world in WORLDS for reading in starts]
    updates = tuple(max(round(one * prompts / RESPONSES), 1) for one in (most * (each / each.max())).tolist())
    seeds = np.random.SeedSequence(20261127)

    def run(case: tuple[RunWorld, RateReading]) -> WorldRuns:
        world, reading = case
        problem = world.graded(ladder.grades, reading.shares)
        # The likelihood of the log's alignment in the world, if errors are normal.
        off = 0.0 if found is None else (found[0] - alignment(problem)) / np.hypot(found[1], COARSE)
        weight, start = float(np.log(reading.agreement) - 0.5 * off**2), float(objective(problem, problem.theta))
        ends = train_sizes(problem, chosen, sizes, updates, seeds)
        error = ends.std(axis=-1, ddof=1) / JUDGING[1] ** 0.5
        return WorldRuns(world.title, reading.floor, weight, start, ends.mean(axis=-1), error)

    results = [*map_in_order(run, cases, 2, "training small worlds" if progress else "")]
    shares = softmax([one.weight for one in results])
    worlds = tuple(replace(one, weight=float(share)) for one, share in zip(results, shares, strict=True))
    rewards = tuple(ladder.rewards.tolist())
    advice = RunAdvice(chosen.name, number, trained_on, 0.0, np.array(sizes), worlds, rewards, paid, asked)
    advice = replace(advice, simulated=updates[advice.best] * RESPONSES / prompts)
    with suppress(ValueError):  # an estimator whose update is not a function of the success rate
        if asked is not None and asked != advice.group_size:
            return replace(advice, learning_rate=learning_rate_factor(counts, (chosen, asked), (chosen, advice.group_size)))
    return advice


def check_total(total: float, costs: tuple[float, float] = (0.0, 1.0)) -> float:
    """Return what a run may cost as a float; ValueError unless it is finite and pays at least one group of two."""
    number, pair = as_positive("total", total), costs[0] + 2.0 * costs[1]
    if number < pair:
        raise ArgumentError(Argument("total"), f" must pay at least one group of 2, which costs {pair:g}, got {total:g}")
    return number


def log_alignment(rollouts: Groups) -> tuple[float, float]:
    """Return the alignment of the prompts' gradients and its standard error, by leaving out one prompt at a time.

    The alignment is the mean product of two prompts' gradients over the mean squared length of one. It is 1 if all are equal,
    and 0 if they have nothing in common. Both means are estimated without bias from a group's responses. It is (0, inf) where
    the log shows no gradient at all.
    """
    terms = pilot_terms(rollouts)
    gradients, own, size = terms.gradients, terms.power, len(terms.gradients)
    total, squares = gradients.sum(axis=0), (gradients**2).sum(axis=-1)
    all_pairs = float(total @ total - squares.sum())
    left = all_pairs - 2.0 * (gradients @ total - squares)  # without one prompt, of all others
    powers = (own.sum() - own) / (size - 1.0)
    if not (own.mean() > 0.0 and powers.min() > 0.0):
        return 0.0, np.inf
    without = left / ((size - 1.0) * (size - 2.0)) / powers
    spread = float(np.sqrt((size - 1.0) * np.mean((without - without.mean()) ** 2)))
    return all_pairs / (size * (size - 1.0)) / float(own.mean()), spread


def alignment(problem: Problem) -> float:
    """Return the alignment of a problem's prompts' gradients at its parameter, exact; each prompt counts alike."""
    gradients: Array = problem.at(problem.theta).moments.prompt_gradients
    size, total, squares = len(gradients), gradients.sum(axis=0), (gradients**2).sum()
    return float((total @ total - squares) / (size - 1.0) / squares)


def train_sizes(
    problem: Problem, estimator: Estimator, sizes: tuple[int, ...], updates: tuple[int, ...], seed: np.random.SeedSequence
) -> Array:
    """Train by plain ascent at each group size, choose its learning rate by some runs, and train anew with it.

    The learning rate is the vertex of a parabola through the best of a grid and its neighbours. So no size wins because its
    best rate happens to be on the grid. Sizes divide `RESPONSES`, and each has its number of updates. All see the same streams,
    whatever their group size and learning rate. Runs start at the problem's parameter.

    Returns
    -------
    ndarray, shape (S, R)
        Success at the end of each judged run.
    """
    rates, ends = problem.bandit.n_prompts * 3.0 ** np.array(POWERS), []
    for size, count in zip(sizes, updates, strict=True):
        # Made ready once: most of the time of short runs would go into that, learning rate by learning rate.
        training = make_training(problem, estimator, np.ones(1), (RESPONSES // size, size))
        tried = np.array([train(problem, training, rate, count, seed, TUNING).mean() for rate in rates])
        ends.append(train(problem, training, best_rate(rates, -tried), count, seed, JUDGING))
    return np.stack(ends)


def train(
    problem: Problem, training: Training, rate: float, updates: int, seed: np.random.SeedSequence, runs: tuple[int, int]
) -> Array:
    """Return success after some updates of each run, shape (R,); one that left the finite numbers has 0."""
    (block, count), prepared = runs, training.with_steps(np.full(updates, rate))
    found = np.zeros(count)
    for first in range(0, count, LANES):
        starts = starting_points(problem, None, min(LANES, count - first))
        going = prepared.start(seed, 2 * block + first // LANES, starts)  # of two blocks at most
        going.advance(updates)
        theta = going.theta
        finite = np.isfinite(theta).all(axis=-1)
        found[first + np.flatnonzero(finite)] = objective(problem, theta[finite])
    return found


def best_rate(steps: Array, losses: Array) -> float:
    """Return the step of least loss: the vertex of the parabola in log step through the least loss and its neighbours.

    The losses are smoothed with weights 1/4, 1/2, 1/4 before the least is sought, so that no lucky loss wins.  The step lies
    between the first and the last.
    """
    smooth = losses[:-2] / 4.0 + losses[1:-1] / 2.0 + losses[2:] / 4.0
    at = slice(int(smooth.argmin()), int(smooth.argmin()) + 3)
    low, middle, high = np.log(steps[at])
    bend, slope, _ = np.polyfit(np.log(steps[at]) - middle, losses[at], 2)
    vertex = middle - slope / (2.0 * bend) if bend > 0.0 else middle
    return float(np.exp(np.clip(vertex, low, high)))
