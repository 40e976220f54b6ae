"""The group size of least error with a baseline, the sizes that the data cannot distinguish from it, and what each loses.

Before it, what a batch costs, which batches are allowed, and the best group size under a cost.
"""

from bisect import bisect_left
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy.special import log_ndtr

from grpo_theory.intervals.interval import (
    Interval,
    check_level,
    quotient_limits,
    student_coverage,
    student_quantile,
    tail_quantiles,
)
from grpo_theory.intervals.rollout_intervals import PromptTerms, prompt_terms
from grpo_theory.intervals.rollouts import Groups, Rollouts
from grpo_theory.theory import GroupSizeLaw, mse_weights
from grpo_theory.validation import Argument, ArgumentError, Array, Flags, Integers, as_count, as_not_negative, as_positive, typed

LARGEST_GROUP = 4096
"""The largest group that may be asked for."""
MOST_PAIRS = 1e12
"""The most pairs of responses that a budget may buy: numbers of prompts are then exact."""
BUDGET, MAX_RESPONSES, MIN_PROMPTS = (Argument(name) for name in ("budget", "max_responses", "min_prompts"))
FEWEST_PROMPTS = 3
"""The fewest prompts from which a group size is chosen: fewer give no standard errors by leaving one out."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one batch of B prompts with G responses each may cost, and what it must fit.

    The batch costs B (cost_prompt + G cost_response). B is the most prompts that budget and limits allow at a group size, so a
    part of the budget can stay unspent.

    Attributes
    ----------
    budget : float
        What one batch may cost: a number of responses with the default costs, else in the unit of the costs, as tokens or
        seconds.
    cost_prompt : float, default 0
        The cost of a prompt, whatever its group's size: the prefill.
    cost_response : float, default 1
        The cost of a response: the decoding. Above 0.
    max_group_size : int, default 4096
        The largest group considered, at most 4096.
    max_responses : int, optional
        The most responses B G that fit at once, as in memory.
    min_prompts : int, default 1
        The fewest prompts B a batch may have.
    multiple_of : int, default 1
        B G must be a multiple of it, as of the number of devices times the size of a micro-batch.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> limits = gt.plan.Limits(budget=1024, cost_prompt=4.0, multiple_of=64)
    >>> limits.prompts(16), limits.cost(48, 16), limits.batches()[0][:3].tolist()
    (48, 960.0, [2, 3, 4])
    """

    budget: float
    cost_prompt: float = 0.0
    cost_response: float = 1.0
    max_group_size: int = LARGEST_GROUP
    max_responses: int | None = None
    min_prompts: int = 1
    multiple_of: int = 1

    def __post_init__(self) -> None:
        for name in ("budget", "cost_response"):
            object.__setattr__(self, name, as_positive(name, getattr(self, name)))
        object.__setattr__(self, "cost_prompt", as_not_negative("cost_prompt", self.cost_prompt))
        for name, least in (("max_group_size", 2), ("min_prompts", 1), ("multiple_of", 1)):
            object.__setattr__(self, name, as_count(name, getattr(self, name), least))
        if self.max_group_size > LARGEST_GROUP:
            raise ArgumentError(Argument("max_group_size"), f" must be at most {LARGEST_GROUP}, got {self.max_group_size}")
        if self.max_responses is not None:
            object.__setattr__(self, "max_responses", as_count("max_responses", self.max_responses, 2))
        pair = self.cost(1, 2)
        if self.budget > MOST_PAIRS * pair:
            raise ArgumentError(BUDGET, f" must buy at most {MOST_PAIRS:.0e} pairs of responses, got {self.budget:g}")
        if self.budget < pair:
            raise ArgumentError(BUDGET, f" must pay for one prompt with two responses, which cost {pair:g}, got {self.budget:g}")

    def cost(self, batch_size: int, group_size: int) -> float:
        """Return what a batch costs."""
        return batch_size * (self.cost_prompt + group_size * self.cost_response)

    def prompts(self, group_size: int) -> int:
        """Return the most prompts that a batch of groups of this size can have; 0 if it is not allowed."""
        sizes, batches = self.batches()
        allowed = batches[sizes == group_size]
        return int(allowed[0]) if allowed.size else 0

    def batches(self) -> tuple[Integers, Integers]:
        """Return the allowed group sizes, ascending, and the most prompts a batch can have at each, both of shape (K,).

        Raises
        ------
        ValueError
            If no batch meets all limits.
        """
        sizes = np.arange(2, self.max_group_size + 1)
        # A budget that is a multiple of the cost must buy that multiple, whatever the rounding of the quotient.
        bought = np.floor(self.budget / (self.cost_prompt + sizes * self.cost_response) * (1.0 + 1e-12)).astype(np.int64)
        fitting = bought if self.max_responses is None else np.minimum(bought, self.max_responses // sizes)
        step = self.multiple_of // np.gcd(self.multiple_of, sizes)
        whole = fitting // step * step
        allowed = whole >= self.min_prompts
        if not allowed.any():
            ends = (BUDGET, self.budget, "pays", bought.max()), (MAX_RESPONSES, self.max_responses, "leaves room", fitting.max())
            for limit, value, gives, most in ends:
                if most < self.min_prompts:
                    told = f" {value:g} {gives} for at most {most} prompt{'s' * int(most != 1)}, fewer than "
                    raise ArgumentError("no batch meets all limits: ", limit, told, MIN_PROMPTS, f" {self.min_prompts}")
            divided = Argument("multiple_of"), f" {self.multiple_of} divides"
            raise ArgumentError("no batch meets all limits: none that fits has a number of responses that ", *divided)
        return sizes[allowed], whole[allowed]


FREE: dict[str, Any] = {"max_group_size": LARGEST_GROUP, "max_responses": None, "min_prompts": 1, "multiple_of": 1}
"""What each limit is where it limits nothing."""


def limits_groups(limits: Limits) -> tuple[str, ...]:
    """Return the names of the limits each of which, were it not there, would allow groups larger than the largest.

    Where no single one does it is the budget, with all limits together, and no name is returned.
    """
    largest = int(limits.batches()[0][-1])
    bind = [name for name, free in FREE.items() if getattr(limits, name) != free]
    return tuple(name for name in bind if int(replace(limits, **{name: FREE[name]}).batches()[0][-1]) > largest)


def cost_optimum(law: GroupSizeLaw, cost_prompt: float = 0.0, cost_response: float = 1.0) -> float:
    """Return the group size (not rounded) of least mean squared error at a fixed cost B (a + b G), for any B.

    Theorem (docs/derivations.md, section 35).  The error times the budget is (a + b G)(c1 + c2/G + c3/(G (G-1))). It is convex
    in G > 1 if a c2, c3 and c1 are not below 0. If b c1 and one of a c2 and c3 are above 0, its minimiser is the one root above
    1 of

        b c1 G^2 (G-1)^2 - a (c2 - c3) (G-1)^2 - (a + b) c3 G^2 = 0.

    With a = 0 it is 1 + sqrt(c3/c1). With c3 = 0 it is sqrt(a c2/(b c1)), or 1 where that is less. This is the classical answer
    for sampling in two stages (Cochran 1977, section 10.6).

    Parameters
    ----------
    law : GroupSizeLaw
        Numbers, not arrays; those below 0 are taken for 0.
    cost_prompt, cost_response : float, default 0 and 1
        a of at least 0, and b above 0.

    Returns
    -------
    float
        At least 1; infinite if c1 is 0 and a larger group is always better, and 1 if no group gains anything.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> law = gt.theory.GroupSizeLaw(c1=0.1, c2=1.0, c3=2.5)
    >>> gt.plan.cost_optimum(law), round(gt.plan.cost_optimum(law, cost_prompt=4.0), 2)
    (6.0, 9.76)
    """
    a, b = as_not_negative("cost_prompt", cost_prompt), as_positive("cost_response", cost_response)
    c1, c2, c3 = (max(float(value), 0.0) for value in (law.c1, law.c2, law.c3))
    if a * c2 == 0.0 and c3 == 0.0:
        return 1.0
    if c1 == 0.0:
        return float(np.inf)
    above = np.array([b * c1, -2.0 * b * c1, b * c1 - a * (c2 - c3) - (a + b) * c3, 2.0 * a * (c2 - c3), -a * (c2 - c3)])
    roots = np.roots(above / np.abs(above).max())
    real = roots.real[np.abs(roots.imag) <= 1e-6 * np.abs(roots)]
    return float(max(real.max(initial=1.0), 1.0))


RIVALS = 128
"""Each size is compared with at most so many others, spread evenly in the logarithm."""
MOST_FACTOR = 4096
"""A pilot is not advised to be more than so many times larger."""


class Estimates(NamedTuple):
    """Estimates (...) from B prompts, and what each prompt adds to their errors, (..., B), of mean 0."""

    values: Array
    influences: Array

    @property
    def prompts(self) -> int:
        """The number of prompts B."""
        return self.influences.shape[-1]

    @property
    def standard_errors(self) -> Array:
        """By leaving out one prompt at a time, shape (...)."""
        return np.asarray(np.sqrt((self.influences**2).sum(axis=-1) / (self.prompts * (self.prompts - 1.0))))

    @property
    def covariance(self) -> Array:
        """Of K estimates, shape (K, K)."""
        return self.influences @ self.influences.T / (self.prompts * (self.prompts - 1.0))

    @property
    def likely(self) -> Array:
        """The means given the estimates and that the true values are not below 0: normal errors, a flat prior; shape (...).

        The mean is x + s phi(x/s)/Phi(x/s) with the standard error s. It hardly moves an estimate of several standard errors,
        turns one of 0 into 0.8 standard errors, and is never below 0. So an estimate of c1 that is below 0 by chance does not
        ask for a single group.
        """
        errors = self.standard_errors
        ratio = np.divide(self.values, errors, out=np.full(np.shape(self.values), np.inf), where=errors > 0.0)
        with np.errstate(over="ignore"):
            excess = np.exp(-0.5 * ratio**2 - log_ndtr(ratio)) / np.sqrt(2.0 * np.pi)
        return np.asarray(np.maximum(self.values + errors * excess, 0.0))

    def at(self, index: int) -> "Estimates":
        """Return one of K estimates."""
        return Estimates(self.values[index], self.influences[index])


def pilot_terms(rollouts: Groups) -> PromptTerms:
    """Return what each prompt of one batch says of the error's constants."""
    if not rollouts.single:
        raise ValueError(f"rollouts must be one batch, without leading axes, got rewards of shape {rollouts.rewards.shape}")
    return prompt_terms(rollouts, 3)


def error_constants(terms: PromptTerms) -> Estimates:
    """Return the unbiased estimates of c1, c2 and c3, shape (3,)."""
    law = terms.components()
    return Estimates(np.array([law.c1, law.c2, law.c3]), terms.influences())


def ratio_interval(top: Estimates, bottom: Estimates, level: float, *, at: Array | None = None, noise: float = 0.0) -> Interval:
    """Return Fieller's (1954) limits of a ratio of two estimates, neither below 0 in truth, with quantiles for heavy tails.

    A ratio r is within them if Student's statistic of top - r bottom lies between two quantiles. These are those of draws from
    a law as skewed as the prompts' influences (`tail_quantiles`): a studentised bootstrap of a smooth law.

    Parameters
    ----------
    top, bottom : Estimates
        Of one shape (...), or shapes that fit.
    level : float
    at : ndarray, shape (...), optional
        The ratio at which the skewness is read; by default that of the estimates.
    noise : float, default 0
        The relative variance that the numerator and the denominator have besides, each of its own.
    """
    above, below = np.maximum(top.values, 0.0), np.maximum(bottom.values, 0.0)
    known, size = below > 0.0, top.prompts * (top.prompts - 1.0)
    ratio = np.divide(top.values, below, out=np.zeros_like(above + below), where=known)
    within = top.influences - (np.maximum(ratio, 0.0) if at is None else np.asarray(at))[..., None] * bottom.influences
    variances = (
        (top.influences**2).sum(axis=-1) / size + noise * above**2,
        (top.influences * bottom.influences).sum(axis=-1) / size,
        (bottom.influences**2).sum(axis=-1) / size + noise * below**2,
    )
    low, high = quotient_limits(above, below, variances, *tail_quantiles(within, level))
    spread = ((top.influences - ratio[..., None] * bottom.influences) ** 2).sum(axis=-1) / size
    spread = spread + noise * (above**2 + (ratio * below) ** 2)
    error = np.divide(np.sqrt(spread), below, out=np.full_like(ratio, np.nan), where=known)
    same = error == 0.0
    found = np.where(known, ratio, np.nan)
    return Interval(found, np.asarray(error), np.where(same, ratio, low), np.where(same, ratio, high), level)


def rivals(size: int, best: int) -> Integers:
    """Return the indices of the sizes that all are compared with: at most `RIVALS`, the best and its neighbours among them."""
    if size <= RIVALS:
        return np.arange(size)
    spread = np.round(np.geomspace(1.0, size, RIVALS - 3)).astype(np.int64) - 1
    return np.unique(np.append(spread, np.clip([best - 1, best, best + 1], 0, size - 1)))


@dataclass(frozen=True, eq=False)
class SizeChoice:
    """The allowed batches, what each loses, and which is best.

    A measure of each batch, its error or the root of its efficiency, is linear in a few estimates. The loss of a batch is a power
    of the ratio of its measure to the best rival's, less 1.

    Attributes
    ----------
    group_sizes, batch_sizes : ndarray, shape (K,)
        The group sizes, ascending, and the number of prompts at each.
    loss : Interval
        Shape (K,): what each size loses against the best one. No standard errors.
    candidates : ndarray, shape (K,)
        Whether the size cannot be told from the best.
    best : int
        The index of the recommended size.
    estimates : Estimates
        Shape (L,).
    weights : ndarray, shape (K, L)
        Of each batch's measure on the estimates.
    planned : ndarray, shape (K,)
        The measures that a larger pilot is taken to find.
    """

    group_sizes: Integers
    batch_sizes: Integers
    loss: Interval
    candidates: Flags
    best: int
    estimates: Estimates
    weights: Array
    planned: Array
    power: ClassVar[float] = 1.0

    @property
    def group_size(self) -> int:
        """The recommended group size."""
        return int(self.group_sizes[self.best])

    @property
    def batch_size(self) -> int:
        """The number of prompts beside it."""
        return int(self.batch_sizes[self.best])

    @property
    def low(self) -> int:
        """The smallest group size that cannot be told from the best."""
        return int(self.group_sizes[self.candidates][0])

    @property
    def high(self) -> int:
        """The largest group size that cannot be told from the best."""
        return int(self.group_sizes[self.candidates][-1])

    @property
    def bounded(self) -> bool:
        """Whether the data rule out that the largest allowed group is best."""
        return not bool(self.candidates[-1])

    @property
    def risk(self) -> float:
        """The upper limit of what the recommended size loses; infinite if the data set none."""
        return float(self.loss.high[self.best])

    def at(self, group_size: int) -> int:
        """Return the index of a group size; ValueError if no batch of it is allowed."""
        index = int(np.searchsorted(self.group_sizes, group_size))
        if index == self.group_sizes.size or self.group_sizes[index] != group_size:
            raise ValueError(f"group_size must be one that budget and limits allow, got {group_size}")
        return index

    def prompts_needed(self, tolerance: float) -> int | None:
        """Return how many prompts a pilot needs for the recommended size to lose less than a share, at the level.

        The prompts are like those seen, with as many responses each. The estimates are taken to stay what they are, and their
        errors to fall as one over the square root of the number of prompts. The upper limit of the loss, with Student's
        quantile, is then at the tolerance. The answer is the pilot's own number if the limit is there now. It is None if more
        than 4,096 times as many are needed. It is also None where the pilot is too small to say: its own limit is above the
        tolerance, that from likely estimates is not.
        """
        tolerance, pilot, level = as_positive("tolerance", tolerance), self.estimates.prompts, self.loss.level
        if self.risk <= tolerance:
            return pilot
        values, own = np.maximum(self.planned, 0.0), self.weights @ self.estimates.covariance
        others, variances = rivals(len(values), self.best), (own * self.weights).sum(axis=1)
        ratio, below = (1.0 + tolerance) ** (1.0 / self.power), values[others]
        gap = ratio * below - values[self.best]
        spread = variances[self.best] - 2.0 * ratio * own[self.best] @ self.weights[others].T + ratio**2 * variances[others]
        # A limit is within the ratio where gap^2 > t^2 spread and, as it is finite then, the denominator's square is above t^2
        # times its variance. The variances fall as 1/prompts (docs/derivations.md, section 35).
        with np.errstate(divide="ignore", invalid="ignore"):
            finite = variances[others] / below**2 if self.power > 0.0 else variances[self.best] / values[self.best] ** 2
            needed = pilot * np.nanmax(np.maximum(spread / gap**2, finite))
        enough = range(MOST_FACTOR * pilot + 1)
        found = bisect_left(enough, True, pilot, key=lambda n: n >= needed * student_quantile(n - 1.0, level) ** 2)
        return found if pilot < found <= MOST_FACTOR * pilot else None


def size_quantiles(estimates: Estimates, weights: Array, best: int, level: float, ratio: Array | float) -> tuple[Array, Array]:
    """Return the tail quantiles of each measure less a multiple of the best one's, (K,): at most at `RIVALS` sizes anew."""
    sizes = rivals(len(weights), best)
    nearest = np.searchsorted(sizes, np.arange(len(weights)), side="right") - 1
    lower, upper = tail_quantiles((weights - ratio * weights[best])[sizes] @ estimates.influences, level)
    return lower[nearest], upper[nearest]


def compare_sizes(
    estimates: Estimates, weights: Array, loss: Array, best: int, level: float, power: float, *, heavy: bool = True
) -> tuple[Interval, Flags]:
    """Return what each of K sizes loses (K,), with limits, and which sizes no rival is known to beat.

    Limits of losses are Fieller's limits of the ratios of two measures (docs/derivations.md, section 35.4). The tests of one
    measure against another are Student's.

    Parameters
    ----------
    estimates, weights : Estimates, ndarray
        Shapes (L,) and (K, L).
    loss : ndarray, shape (K,)
        The estimated loss.
    best : int
    level, power : float
    heavy : bool, default True
        Whether limits allow for heavy tails. Of a choice by error the limit of the recommended size is Student's all the same.
    """
    others, t = rivals(len(weights), best), student_quantile(estimates.prompts - 1.0, level)
    values, own = weights @ estimates.values, weights @ estimates.covariance
    variances, shared = (own * weights).sum(axis=1), own @ weights[others].T
    differences = variances[:, None] + variances[others] - 2.0 * shared
    worse = np.sign(power) * (values[:, None] - values[others])
    kept = np.asarray(~(worse > t * np.sqrt(np.maximum(differences, 0.0))).any(axis=1))
    kept[best] = True
    lower, upper = np.full((len(weights), others.size), -t), np.full((len(weights), others.size), t)
    if heavy:
        base = max(float(values[best]), 0.0)
        ratio = np.maximum(values / base, 0.0)[:, None] if base > 0.0 else 1.0
        below, above = size_quantiles(estimates, weights, best, level, ratio)
        lower[:], upper[:] = below[:, None], above[:, None]
        lower[best], upper[best] = (-t, t) if power > 0.0 else (-above[others], -below[others])
    top = np.maximum(values, 0.0)
    low, high = quotient_limits(top[:, None], top[others], (variances[:, None], shared, variances[others]), lower, upper)
    if power < 0.0:
        low, high = high.min(axis=1), low.min(axis=1)
    else:
        low, high = low.max(axis=1), high.max(axis=1)
    with np.errstate(divide="ignore"):
        low, high = low**power - 1.0, high**power - 1.0
    low = np.where(kept, 0.0, np.clip(low, 0.0, loss))
    return Interval(loss, np.full(loss.size, np.nan), low, np.maximum(high, loss), level), kept


@dataclass(frozen=True, eq=False)
class GroupSizeChoice(SizeChoice):
    """The allowed batches, the mean squared error of the gradient with one baseline at each, and which is best.

    Limits hold at each size by itself, not for all at once. The fields are those of every choice: `estimates` are those of c1, c2
    and c3, and `planned` are the errors by the likely constants. A loss is by what share the error is above the least possible
    one. 0.05 is 5% more, as if one response in 21 were thrown away.

    Attributes
    ----------
    constants : Interval
        Shape (3,): the unbiased estimates of c1, c2 and c3, with limits that are not below 0. With another baseline than the
        leave-one-out mean, c2 and c3 are its own.
    student_coverage : float
        How often Student's limits of these would hold: the least over the three. The prompts' terms are taken for draws from a
        lognormal law as skewed as they are.
    heavy : bool
        Whether limits allow for heavy tails; Student's do not.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem, pilot = gt.gallery.problem("linear"), gt.Pilot(batch_size=64, group_size=8)
    >>> rollouts = pilot.take(pilot.sample(problem, 0, 1), 0)
    >>> choice = gt.plan.choose_group_size(rollouts, gt.plan.Limits(budget=1024))
    >>> choice.group_size, choice.group_sizes[choice.candidates].tolist()[:3], choice.prompts_needed(0.05) > 0
    (5, [4, 5, 6], True)
    """

    constants: Interval
    student_coverage: float
    heavy: bool

    @cached_property
    def mse(self) -> Interval:
        """The error of each batch, shape (K,), in units of squared gradient norm; made when it is first asked for.

        The estimate is that from the likely constants, and the standard error that of the unbiased estimate.
        """
        estimate, t = self.weights @ self.estimates.values, student_quantile(self.estimates.prompts - 1.0, self.loss.level)
        variances = ((self.weights @ self.estimates.covariance) * self.weights).sum(axis=1)
        error, level = np.sqrt(np.maximum(variances, 0.0)), self.loss.level
        lower, upper = size_quantiles(self.estimates, self.weights, self.best, level, 0.0) if self.heavy else (-t, t)
        low = np.minimum(np.maximum(estimate - upper * error, 0.0), self.planned)
        return Interval(self.planned, error, low, np.maximum(estimate - lower * error, self.planned), level)


@typed
def choose_group_size(rollouts: Groups, limits: Limits, level: float = 0.95) -> GroupSizeChoice:
    """Choose the group size of least mean squared error of the leave-one-out gradient, from rewards and scores.

    The error is c1/B + c2/(BG) + c3/(BG(G-1)) (docs/derivations.md, section 2). The three constants are estimated without bias,
    and their covariance by deleting one prompt at a time. The recommended size has the least error at the constants' means
    given what the data say and that they are not below 0 (`Estimates.likely`).

    A size is a candidate unless a two-sided t test at the level shows that another size has a smaller error. Without costs and
    rounding, only the tests against the next larger and the next smaller size can lose the best one. Each errs on one side, so
    that the best size stays in with about the level or more (section 35). The candidates are then the whole numbers next to
    `gt.intervals.group_size_fieller`.

    The limits of the constants, of the errors and of the losses allow for gradients whose lengths differ much between prompts
    (`grpo_theory.intervals.interval`). Tests of one size against another are Student's, because these lengths nearly cancel
    in what they compare. The limit of what the recommended size loses is Student's too.

    Parameters
    ----------
    rollouts : Rollouts or RaggedRollouts
        One batch of at least 3 prompts, 4 responses each; scores in full, in orthonormal coordinates, or sketches of them.
    limits : Limits
    level : float, default 0.95

    Raises
    ------
    ValueError
        On too few prompts or responses, without scores, and if nothing varies between prompts.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem, pilot = gt.gallery.problem("linear"), gt.Pilot(batch_size=64, group_size=8)
    >>> rollouts = pilot.take(pilot.sample(problem, 0, 1), 0)
    >>> gt.plan.choose_group_size(rollouts, gt.plan.Limits(budget=1024, cost_prompt=4.0)).group_size
    10
    """
    level, estimates = check_level(level), error_constants(pilot_terms(rollouts))
    covariance = estimates.covariance
    if not np.isfinite(covariance).all():
        raise ValueError("rollouts must have rewards and scores of moderate size: the squares of these overflow")
    if not covariance.any():
        raise ValueError("the prompts' terms of the error do not vary: they say nothing about the best group size")
    return choose(estimates, limits, level)


def choose(estimates: Estimates, limits: Limits, level: float = 0.95, *, heavy: bool = True) -> GroupSizeChoice:
    """Choose from estimates of c1, c2 and c3; with limits that allow for heavy tails, or else Student's.

    Of exact constants all influences are 0.
    """
    sizes, batches = limits.batches()
    weights, errors, t = mse_weights(batches, sizes), estimates.standard_errors, student_quantile(estimates.prompts - 1.0, level)
    lower, upper = tail_quantiles(estimates.influences, level) if heavy else (-t, t)
    low, high = (np.maximum(estimates.values - side * errors, 0.0) for side in (upper, lower))
    constants = Interval(estimates.values, errors, low, high, level)
    student = float(student_coverage(estimates.influences, level).min()) if heavy else level
    expected = weights @ estimates.likely
    best = int(np.argmin(expected))
    clipped = estimates._replace(values=np.maximum(estimates.values, 0.0))
    loss, kept = compare_sizes(clipped, weights, expected / expected[best] - 1.0, best, level, SizeChoice.power, heavy=heavy)
    return GroupSizeChoice(sizes, batches, loss, kept, best, estimates, weights, expected, constants, student, heavy)


# ---- Baselines that a trainer can run.

LEAVE_ONE_OUT = "leave-one-out mean"
RUNNABLE = (LEAVE_ONE_OUT, "mean over prompts", "none")
"""In the order in which they are preferred where the data cannot tell.

Trainers have the leave-one-out mean, or the group mean, whose estimate is a multiple of that. Without a baseline the error
depends on where the rewards have their zero.
"""


@dataclass(frozen=True, eq=False)
class Switch:
    """Another baseline or estimator with its own best batch.

    Attributes
    ----------
    name : str
    group_size, batch_size : int
    gain : Interval
        Of a baseline by what share its error is less than that of the recommendation: 0.4 is 40% less. Of an estimator by what
        share its efficiency is above: 0.1 is 10% more, below 0 it is less.
    """

    name: str
    group_size: int
    batch_size: int
    gain: Interval


def baseline_terms(rollouts: Groups) -> dict[str, PromptTerms]:
    """Return what each prompt says of c1 and of each baseline's own c2 and c3: what falls with BG, and with BG(G-1).

    With a baseline m that is not made of the group's rewards c2 is E[||W||^2 (Z - m)^2] - ||g||^2, and c3 is 0. The mean over
    prompts is that of the other prompts (docs/derivations.md, section 35).
    """
    terms = pilot_terms(rollouts)
    means = rollouts.by_prompt(lambda group: group.rewards.mean(axis=-1))
    centre = float(means.mean())

    def moments(group: Rollouts) -> Array:
        """Return the means of P, P (Z - centre), P (Z - centre)^2 and P Z^2, with P = ||W||^2."""
        p, z = (group.known_scores**2).sum(axis=-1), group.rewards - centre
        return np.stack([(p * part).mean(axis=-1) for part in (1.0, z, z**2, group.rewards**2)], axis=-1)

    p, pz, pzz, uncentred = rollouts.by_prompt(moments).T
    m, none = (means.sum() - means) / (means.size - 1.0) - centre, np.zeros_like(p)
    # What a prompt does to the others' noise through the mean over prompts: the mean derivative in m, times its deviation.
    through = (2.0 * (m * p - pz)).mean() * (means - centre)
    over_prompts = pzz - 2.0 * m * pz + m**2 * p - terms.power + through
    return {
        LEAVE_ONE_OUT: terms,
        "mean over prompts": terms._replace(c2=over_prompts, c3=none),
        "none": terms._replace(c2=uncentred - terms.power, c3=none),
    }


def choose_baseline(
    rollouts: Groups, limits: Limits, leave_one_out: GroupSizeChoice, baseline: str = LEAVE_ONE_OUT
) -> tuple[GroupSizeChoice, Switch | None]:
    """Choose the best batch of one baseline, and find the baseline that is shown to have less error, if there is one.

    The error of each pair is c1/B + c2/(BG) + c3/(BG(G-1)), with the baseline's own c2 and c3. All these estimates are unbiased
    for one gradient, so that their squared errors can be compared. Each baseline is taken with its best batch. The
    rival is shown to have less error, and not shown to have more than another. Of several it is the first in `RUNNABLE`.

    Parameters
    ----------
    rollouts : Rollouts or RaggedRollouts
    limits : Limits
    leave_one_out : GroupSizeChoice
        What `choose_group_size` says of these.
    baseline : str, default "leave-one-out mean"
        The user's own baseline, of `RUNNABLE`: its best batch is recommended.

    Returns
    -------
    GroupSizeChoice, Switch or None
        Of the group sizes under the baseline, with its own c2 and c3 among the constants; and the rival.
    """
    weights, level = leave_one_out.weights, leave_one_out.loss.level
    constants = {name: error_constants(terms) for name, terms in baseline_terms(rollouts).items()}
    best = {name: int(np.argmin(weights @ found.likely)) for name, found in constants.items()}
    errors = {}
    for name, found in constants.items():
        above, at = np.append(np.maximum(found.values[:1], 0.0), found.values[1:]), weights[best[name]]
        errors[name] = Estimates(at @ above, at @ found.influences)

    def gain(first: str, second: str) -> Interval:
        # As the first is picked from several, each of these has its part of the error probability.
        ratio = ratio_interval(errors[first], errors[second], 1.0 - (1.0 - level) / (len(RUNNABLE) - 1))
        return Interval(1.0 - ratio.estimate, ratio.standard_error, 1.0 - ratio.high, 1.0 - ratio.low, level)

    choice = leave_one_out if baseline == LEAVE_ONE_OUT else choose(constants[baseline], limits, level)
    better = [name for name in RUNNABLE if name != baseline and float(gain(name, baseline).low) > 0.0]
    for one in better:
        if not any(float(gain(other, one).low) > 0.0 for other in better if other != one):
            batch = int(choice.group_sizes[best[one]]), int(choice.batch_sizes[best[one]])
            return choice, Switch(one, *batch, gain(one, baseline))
    return choice, None
