"""The group size of least error, the sizes that the data cannot distinguish from it, and what each loses."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from grpo_theory.intervals.interval import Interval, check_level, quotient_limits, student_coverage, tail_quantiles
from grpo_theory.intervals.rollouts import Groups
from grpo_theory.plan.batches import Limits, SizeChoice, cost_optimum, sufficient_prompts
from grpo_theory.plan.error_constants import ErrorConstants, likely_constants, pilot_terms, prompt_quantile, vector
from grpo_theory.theory import GroupSizeLaw, mse_weights
from grpo_theory.validation import Array, Flags, Integers, as_positive, typed

RIVALS = 128
"""Each size is compared with at most so many others, spread evenly in the logarithm."""
PAIRS_AT_ONCE = 1 << 18


@dataclass(frozen=True, eq=False)
class InfluenceTails:
    """Quantiles of Student's statistic for whatever is made of three constants.

    Attributes
    ----------
    influences : ndarray, shape (3, B), or None
        None for Student's own quantiles.
    t : float
        Student's.
    level : float
    lower, upper : ndarray, shape (3,)
        For the constants themselves.
    student : float
        How often Student's limits of the constants would hold.
    """

    influences: Array | None
    t: float
    level: float
    lower: Array
    upper: Array
    student: float

    @classmethod
    def of(cls, influences: Array | None, t: float, level: float) -> "InfluenceTails":
        """Return the quantiles for the constants."""
        if influences is None:
            return cls(None, t, level, np.full(3, -t), np.full(3, t), level)
        return cls(influences, t, level, *tail_quantiles(influences, level), float(student_coverage(influences, level).min()))

    def of_errors(self, weights: Array, best: int) -> tuple[Array, Array]:
        """Return the quantiles for the errors with weights (K, 3) on the constants, both of shape (K,)."""
        return self._along(weights, rivals(len(weights), best), 0.0)

    def of_losses(self, weights: Array, best: int, constants: Array) -> tuple[Array, Array]:
        """Return the quantiles for each size's error less its share of the best one's, shape (K,) each; Student's at the best."""
        sizes, base = rivals(len(weights), best), float(weights[best] @ constants)
        ratio = (weights @ constants / base if base > 0.0 else np.ones(len(weights)))[:, None]
        lower, upper = self._along(weights, sizes, ratio * weights[best])
        lower[best], upper[best] = -self.t, self.t
        return lower, upper

    def _along(self, weights: Array, sizes: Integers, less: Array | float) -> tuple[Array, Array]:
        """Return the quantiles for weights less others, computed at some sizes, and at the others those of the nearest below."""
        if self.influences is None:
            return np.full(len(weights), -self.t), np.full(len(weights), self.t)
        nearest = np.searchsorted(sizes, np.arange(len(weights)), side="right") - 1
        lower, upper = tail_quantiles((weights - less)[sizes] @ self.influences, self.level)
        return lower[nearest], upper[nearest]


@dataclass(frozen=True, eq=False)
class SizeErrors:
    """The errors of K batches, each linear in three constants, and how well their ratios are known.

    Attributes
    ----------
    weights : ndarray, shape (K, 3)
        Of each batch's error on the constants.
    constants : ndarray, shape (3,)
        Estimates, none below 0.
    covariance : ndarray, shape (3, 3)
        Of the estimates.
    best : int
        The index of the recommended batch.
    """

    weights: Array
    constants: Array
    covariance: Array
    best: int

    def worst_ratios(self, tails: InfluenceTails) -> tuple[Array, Array, Flags]:
        """Return limits of each error over that of its best rival, (K,) each, and which sizes no rival is known to beat."""
        lower, upper = tails.of_losses(self.weights, self.best, self.constants)
        others = self.weights[rivals(len(self.weights), self.best)]
        low, high = np.empty(len(self.weights)), np.empty(len(self.weights))
        kept = np.empty(len(self.weights), dtype=bool)
        step = max(1, PAIRS_AT_ONCE // len(others))
        for start in range(0, len(self.weights), step):
            part = slice(start, start + step)
            limits = self.ratios(self.weights[part], others, lower[part, None], upper[part, None])
            low[part], high[part] = (limit.max(axis=1) for limit in limits)
            kept[part] = ~self._beaten(self.weights[part], others, tails.t)
        kept[self.best] = True
        return low, high, kept

    def largest_loss(self, t: float) -> float:
        """Return the upper limit of what the recommended batch loses to the best of its rivals, with a quantile of Student's."""
        others = self.weights[rivals(len(self.weights), self.best)]
        return float(self.ratios(self.weights[self.best : self.best + 1], others, -t, t)[1].max()) - 1.0

    def ratios(self, weights: Array, others: Array, lower: Array | float, upper: Array | float) -> tuple[Array, Array]:
        """Return Fieller's limits of errors (K,) over those of rivals (C,), both of shape (K, C), with quantiles (K, 1)."""
        half = weights @ self.covariance
        variances = (
            np.einsum("ki,ki->k", half, weights)[:, None],
            half @ others.T,
            np.einsum("ci,ij,cj->c", others, self.covariance, others),
        )
        return quotient_limits((weights @ self.constants)[:, None], others @ self.constants, variances, lower, upper)

    def _beaten(self, weights: Array, others: Array, t: float) -> Flags:
        """Return which sizes (K,) have an error that is significantly above that of some rival."""
        spread, axes = np.linalg.eigh(self.covariance)
        root = axes * np.sqrt(np.maximum(spread, 0.0))
        variance = sum((mine[:, None] - theirs) ** 2 for mine, theirs in zip((weights @ root).T, (others @ root).T, strict=True))
        return ((weights @ self.constants)[:, None] - others @ self.constants > t * np.sqrt(variance)).any(axis=1)


def rivals(size: int, best: int) -> Integers:
    """Return the indices of the sizes that all are compared with: at most `RIVALS`, the best and its neighbours among them."""
    if size <= RIVALS:
        return np.arange(size)
    spread = np.round(np.geomspace(1.0, size, RIVALS - 3)).astype(np.int64) - 1
    return np.unique(np.append(spread, np.clip([best - 1, best, best + 1], 0, size - 1)))


@dataclass(frozen=True, eq=False)
class GroupSizeChoice(SizeChoice):
    """The allowed batches, the mean squared error of the gradient with one baseline at each, and which is best.

    Limits hold at each size by itself, not for all at once.

    Attributes
    ----------
    group_sizes, batch_sizes : ndarray, shape (K,)
        The allowed group sizes, ascending, and the number of prompts at each.
    loss : Interval
        Shape (K,): by what share the error is above the least possible one. 0.05 is 5% more, as if one response in 21 were
        thrown away. No standard errors.
    candidates : ndarray, shape (K,)
        Whether the size cannot be told from the best.
    best : int
        The index of the recommended size.
    constants : ErrorConstants
        The three constants that all this rests on.
    errors : SizeErrors
        What the limits of the losses rest on.
    tails : InfluenceTails
        The quantiles of these limits.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem, pilot = gt.gallery.problem("linear"), gt.Pilot(batch_size=64, group_size=8)
    >>> rollouts = pilot.take(pilot.sample(problem, 0, 1), 0)
    >>> choice = gt.plan.choose_group_size(rollouts, gt.plan.Limits(budget=1024))
    >>> choice.group_size, choice.group_sizes[choice.candidates].tolist()[:3], choice.prompts_needed(0.05) > 0
    (5, [4, 5, 6], True)
    """

    constants: ErrorConstants
    errors: SizeErrors
    tails: InfluenceTails

    @cached_property
    def mse(self) -> Interval:
        """The error of each batch, shape (K,), in units of squared gradient norm; made when it is first asked for.

        The estimate is that from the likely constants, and the standard error that of the unbiased estimate.
        """
        expected = self.errors.weights @ vector(self.constants.likely)
        return _errors(self.errors, self.constants.law, expected, self.tails)

    def prompts_needed(self, tolerance: float) -> int | None:
        """Return how many prompts a pilot needs for the recommended size to lose less than a share, at the level.

        The prompts are like those seen, with as many responses each. The estimates are taken to stay what they are, and their
        errors to fall as one over the square root of the number of prompts. The upper limit of the loss is then at the
        tolerance. The answer is the pilot's own number if the limit is there now. It is None if more than 4,096 times as many
        are needed. It is also None where the pilot is too small to say: its own limit is above the tolerance, that from likely
        constants is not.
        """
        tolerance = as_positive("tolerance", tolerance)
        constants = self.constants
        weights, estimates = mse_weights(self.batch_sizes, self.group_sizes), vector(constants.likely)

        def risk(prompts: int) -> float:
            errors = SizeErrors(weights, estimates, constants.covariance * (constants.pilot / prompts), self.best)
            return errors.largest_loss(prompt_quantile(prompts, constants.level))

        if self.risk <= tolerance:
            return constants.pilot
        return sufficient_prompts(risk, constants.pilot, tolerance)


@typed
def choose_group_size(rollouts: Groups, limits: Limits, level: float = 0.95) -> GroupSizeChoice:
    """Choose the group size of least mean squared error of the leave-one-out gradient, from rewards and scores.

    The error is c1/B + c2/(BG) + c3/(BG(G-1)) (docs/derivations.md, section 2). The three constants are estimated without bias,
    and their covariance by deleting one prompt at a time. The recommended size has the least error at the constants' means
    given what the data say and that they are not below 0 (`likely_constants`).

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
    level = check_level(level)
    terms = pilot_terms(rollouts)
    covariance = terms.covariance()
    if not np.isfinite(covariance).all():
        raise ValueError("rollouts must have rewards and scores of moderate size: the squares of these overflow")
    if not covariance.any():
        raise ValueError("the prompts' terms of the error do not vary: they say nothing about the best group size")
    return choose(terms.components(), covariance, rollouts.batch_size, limits, level, terms.influences())


def choose(
    law: GroupSizeLaw, covariance: Array, pilot: int, limits: Limits, level: float = 0.95, influences: Array | None = None
) -> GroupSizeChoice:
    """Choose from estimates of c1, c2 and c3 with a covariance (3, 3) from so many prompts; exact ones have covariance 0.

    With the prompts' influences (3, B) on the estimates the limits allow for heavy tails; without, they are Student's.
    """
    sizes, batches = limits.batches()
    weights, tails = mse_weights(batches, sizes), InfluenceTails.of(influences, prompt_quantile(pilot, level), level)
    constants = _constants(law, covariance, pilot, tails)
    expected = weights @ vector(constants.likely)
    errors = SizeErrors(weights, np.maximum(vector(law), 0.0), covariance, int(np.argmin(expected)))
    low, high, kept = errors.worst_ratios(tails)
    return GroupSizeChoice(
        group_sizes=sizes,
        batch_sizes=batches,
        loss=_losses(expected / expected[errors.best] - 1.0, low, high, kept, level),
        candidates=kept,
        best=errors.best,
        constants=constants,
        errors=errors,
        tails=tails,
    )


def _constants(law: GroupSizeLaw, covariance: Array, pilot: int, tails: InfluenceTails) -> ErrorConstants:
    """Return the constants with their limits."""
    estimates, errors = vector(law), np.sqrt(np.maximum(np.diagonal(covariance), 0.0))
    return ErrorConstants(
        law=law,
        likely=likely_constants(law, covariance),
        covariance=covariance,
        low=np.maximum(estimates - tails.upper * errors, 0.0),
        high=np.maximum(estimates - tails.lower * errors, 0.0),
        pilot=pilot,
        level=tails.level,
        student_coverage=tails.student,
    )


def _errors(errors: SizeErrors, law: GroupSizeLaw, expected: Array, tails: InfluenceTails) -> Interval:
    """Return the error of each batch: what is expected of it, with limits around the unbiased estimate."""
    variances = np.einsum("ki,ij,kj->k", errors.weights, errors.covariance, errors.weights)
    estimate, error = errors.weights @ vector(law), np.sqrt(np.maximum(variances, 0.0))
    lower, upper = tails.of_errors(errors.weights, errors.best)
    low = np.minimum(np.maximum(estimate - upper * error, 0.0), expected)
    return Interval(expected, error, low, np.maximum(estimate - lower * error, expected), tails.level)


def _losses(loss: Array, low: Array, high: Array, kept: Flags, level: float) -> Interval:
    """Return what each size loses, with limits from those of its error over its best rival's; a candidate may lose nothing."""
    lowest = np.where(kept, 0.0, np.clip(low - 1.0, 0.0, loss))
    return Interval(loss, np.full(loss.size, np.nan), lowest, np.maximum(high - 1.0, loss), level)


def real_optimum(choice: GroupSizeChoice, limits: Limits) -> float:
    """Return the best group size if sizes and prompts need not be whole and only the cost counts."""
    return cost_optimum(choice.constants.likely, limits.cost_prompt, limits.cost_response)
