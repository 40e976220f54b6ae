"""Which group size has the least error, which others the data cannot tell from it, and what each loses."""

from dataclasses import dataclass

import numpy as np
from scipy.special import log_ndtr, stdtrit

from grpo_theory.arrays import Array, Flags, Integers
from grpo_theory.intervals.components import PromptTerms, prompt_terms
from grpo_theory.intervals.heavy_tails import student_coverage, tail_quantiles
from grpo_theory.intervals.interval import check_level
from grpo_theory.intervals.quotient import quotient_limits
from grpo_theory.plan.cost import Limits, cost_optimum
from grpo_theory.samples import Groups
from grpo_theory.theory import GroupSizeLaw, mse_weights
from grpo_theory.validation import as_positive, typed

RIVALS = 128
"""Each size is compared with at most so many others, spread evenly in the logarithm."""
PAIRS_AT_ONCE = 1 << 18
MOST_FACTOR = 4096.0
"""A pilot is not advised to be more than so many times larger."""


@dataclass(frozen=True, eq=False)
class GroupSizeChoice:
    """The allowed batches, the mean squared error of the gradient with one baseline at each, and which is best.

    Limits hold at each size by itself, not for all at once.

    Attributes
    ----------
    group_sizes, batch_sizes : ndarray, shape (K,)
        The allowed group sizes, ascending, and the number of prompts at each.
    mse, mse_low, mse_high : ndarray, shape (K,)
        In units of squared gradient norm.
    loss, loss_low, loss_high : ndarray, shape (K,)
        By what share the error is above the least possible one: 0.05 is 5% more, as if one response in 21 were thrown away.
    candidates : ndarray, shape (K,)
        Whether the size cannot be told from the best.
    best : int
        The index of the recommended size.
    law : GroupSizeLaw
        The unbiased estimates of c1, c2 and c3; with another baseline than the leave-one-out mean, of its own c2 and c3.
    likely : GroupSizeLaw
        The estimates that the recommendation rests on, all above 0.
    covariance : ndarray, shape (3, 3)
        Of `law`.
    constants_low, constants_high : ndarray, shape (3,)
        Limits of c1, c2 and c3, not below 0.
    pilot : int
        The number of prompts that the estimates come from.
    level : float
    student_coverage : float
        How often Student's limits of the constants would hold were the prompts' terms draws from a lognormal law as skewed as
        they are; of the constant for which that is least. The level where influences are not given.
    """

    group_sizes: Integers
    batch_sizes: Integers
    mse: Array
    mse_low: Array
    mse_high: Array
    loss: Array
    loss_low: Array
    loss_high: Array
    candidates: Flags
    best: int
    law: GroupSizeLaw
    likely: GroupSizeLaw
    covariance: Array
    constants_low: Array
    constants_high: Array
    pilot: int
    level: float
    student_coverage: float

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
    def runs(self) -> list[tuple[int, int]]:
        """The smallest and the largest size of each run of whole numbers without a hole that cannot be told from the best."""
        kept = self.group_sizes[self.candidates]
        breaks = np.flatnonzero(np.diff(kept) > 1)
        first, last = kept[[0, *(breaks + 1)]], kept[[*breaks, kept.size - 1]]
        return list(zip(first.tolist(), last.tolist(), strict=True))

    @property
    def bounded(self) -> bool:
        """Whether the data rule out that the largest allowed group is best."""
        return not bool(self.candidates[-1])

    @property
    def alike(self) -> bool:
        """Whether the data do not rule out that c1 is 0: gradients so alike that a larger group is always better."""
        return bool(self.law.c1 - _t(self.pilot, self.level) * np.sqrt(self.covariance[0, 0]) <= 0.0)

    @property
    def risk(self) -> float:
        """The upper limit of what the recommended size loses; infinite if the data set none."""
        return float(self.loss_high[self.best])

    def at(self, group_size: int) -> int:
        """Return the index of a group size; ValueError if no batch of it is allowed."""
        place = int(np.searchsorted(self.group_sizes, group_size))
        if place == self.group_sizes.size or self.group_sizes[place] != group_size:
            raise ValueError(f"group_size must be one that budget and limits allow, got {group_size}")
        return place

    def prompts_needed(self, tolerance: float) -> int | None:
        """Return how many prompts a pilot needs for the recommended size to lose less than a share, at the level.

        Of prompts like those seen, with as many responses each. If the errors of the estimates fall as one over the square root
        of their number, the estimates staying what they are, the upper limit of the loss is then at the tolerance. The
        pilot's own number if it is there now. None if more than 4,096 times as many are needed, and where the pilot is too small
        to say: its own limit is above the tolerance, and that from the likely constants is not.
        """
        tolerance = as_positive("tolerance", tolerance)

        def risk(prompts: int) -> float:
            rest = weights[_rivals(len(weights), self.best)]
            mine, factor = weights[self.best : self.best + 1], self.pilot / prompts
            t = _t(prompts, self.level)
            return float(_ratios(mine, rest, constants, self.covariance * factor, -t, t)[1].max()) - 1.0

        weights, constants = mse_weights(self.batch_sizes, self.group_sizes), _constants(self.likely)
        low = high = self.pilot
        if self.risk <= tolerance:
            return self.pilot
        if risk(self.pilot) <= tolerance:
            return None
        while risk(high) > tolerance:
            low, high = high, 2 * high
            if high > MOST_FACTOR * self.pilot:
                return None
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if risk(middle) > tolerance else (low, middle)
        return high


@typed
def choose_group_size(rollouts: Groups, limits: Limits, level: float = 0.95) -> GroupSizeChoice:
    """Choose the group size of least mean squared error of the leave-one-out gradient, from rewards and scores.

    The error is c1/B + c2/(BG) + c3/(BG(G-1)) (docs/derivations.md, section 2), with unbiased estimates of the three constants
    and their covariance from deleting one prompt at a time. The recommended size has the least error at the constants' means
    given what the data say and that they are not below 0 (`likely_constants`).

    A size is a candidate unless another size has a smaller error by a two-sided t test of their difference at the level; the
    tests of the largest and the smallest true rival are one-sided each, so that the best size stays in with about the level or
    more (section 35). Without costs and rounding these are the whole numbers next to `gt.intervals.group_size_fieller`.

    The limits of the constants, of the errors and of the losses allow for gradients whose lengths differ much between prompts
    (`grpo_theory.intervals.heavy_tails`). Tests of one size against another compare errors in which these lengths nearly
    cancel, and are Student's; so is the limit of what the recommended size loses.

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
    """
    level = check_level(level)
    terms = pilot_terms(rollouts)
    covariance = terms.covariance()
    if not np.isfinite(covariance).all():
        raise ValueError("rollouts must have rewards and scores of moderate size: the squares of these overflow")
    if not covariance.any():
        raise ValueError("the prompts' terms of the error do not vary: they say nothing about the best group size")
    return choose(terms.components(), covariance, rollouts.batch_size, limits, level, terms.influences())


def pilot_terms(rollouts: Groups) -> PromptTerms:
    """Return what each prompt of one batch says of the error's constants."""
    if not rollouts.single:
        raise ValueError(f"rollouts must be one batch, without leading axes, got rewards of shape {rollouts.rewards.shape}")
    return prompt_terms(rollouts, 3)


def choose(
    law: GroupSizeLaw, covariance: Array, pilot: int, limits: Limits, level: float = 0.95, influences: Array | None = None
) -> GroupSizeChoice:
    """Choose from estimates of c1, c2 and c3 with a covariance (3, 3) from so many prompts; exact ones have covariance 0.

    With the prompts' influences (3, B) on the estimates the limits allow for heavy tails; without, they are Student's.
    """
    sizes, batches = limits.batches()
    weights, t = mse_weights(batches, sizes), _t(pilot, level)
    likely = likely_constants(law, covariance)
    estimate, error = weights @ _constants(law), np.sqrt(np.maximum(np.einsum("ki,ij,kj->k", weights, covariance, weights), 0.0))
    expected = weights @ _constants(likely)
    best = int(np.argmin(expected))
    positive = np.maximum(_constants(law), 0.0)
    rivals = weights[_rivals(len(weights), best)]
    tails = Tails.of(influences, t, level)
    above, beside = tails.of_errors(weights, best), tails.of_losses(weights, best, positive)
    low, high, kept = np.empty(len(weights)), np.empty(len(weights)), np.empty(len(weights), dtype=bool)
    step = max(1, PAIRS_AT_ONCE // len(rivals))
    for start in range(0, len(weights), step):
        part = slice(start, start + step)
        quantiles = beside[0][part, None], beside[1][part, None]
        limits_of_ratio = _ratios(weights[part], rivals, positive, covariance, *quantiles)
        low[part], high[part] = (limit.max(axis=1) for limit in limits_of_ratio)
        kept[part] = ~_beaten(weights[part], rivals, positive, covariance, t)
    kept[best] = True
    loss = expected / expected[best] - 1.0
    errors = np.sqrt(np.maximum(np.diagonal(covariance), 0.0))
    return GroupSizeChoice(
        group_sizes=sizes,
        batch_sizes=batches,
        mse=expected,
        mse_low=np.minimum(np.maximum(estimate - above[1] * error, 0.0), expected),
        mse_high=np.maximum(estimate - above[0] * error, expected),
        loss=loss,
        loss_low=np.where(kept, 0.0, np.clip(low - 1.0, 0.0, loss)),
        loss_high=np.maximum(high - 1.0, loss),
        candidates=kept,
        best=best,
        law=law,
        likely=likely,
        covariance=covariance,
        constants_low=np.maximum(_constants(law) - tails.upper * errors, 0.0),
        constants_high=np.maximum(_constants(law) - tails.lower * errors, 0.0),
        pilot=pilot,
        level=level,
        student_coverage=tails.student,
    )


@dataclass(frozen=True, eq=False)
class Tails:
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
    def of(cls, influences: Array | None, t: float, level: float) -> "Tails":
        """Return the quantiles for the constants."""
        if influences is None:
            return cls(None, t, level, np.full(3, -t), np.full(3, t), level)
        return cls(influences, t, level, *tail_quantiles(influences, level), float(student_coverage(influences, level).min()))

    def of_errors(self, weights: Array, best: int) -> tuple[Array, Array]:
        """Return the quantiles for the errors with weights (K, 3) on the constants, both of shape (K,)."""
        return self._along(weights, _rivals(len(weights), best), 0.0)

    def of_losses(self, weights: Array, best: int, constants: Array) -> tuple[Array, Array]:
        """Return the quantiles for each size's error less its share of the best one's, shape (K,) each; Student's at the best."""
        sizes, base = _rivals(len(weights), best), float(weights[best] @ constants)
        ratio = (weights @ constants / base if base > 0.0 else np.ones(len(weights)))[:, None]
        lower, upper = self._along(weights, sizes, ratio * weights[best])
        lower[best], upper[best] = -self.t, self.t
        return lower, upper

    def _along(self, weights: Array, sizes: Integers, less: Array | float) -> tuple[Array, Array]:
        """Return the quantiles for weights less others, found at some sizes, and at the others those of the nearest below."""
        if self.influences is None:
            return np.full(len(weights), -self.t), np.full(len(weights), self.t)
        nearest = np.searchsorted(sizes, np.arange(len(weights)), side="right") - 1
        lower, upper = tail_quantiles((weights - less)[sizes] @ self.influences, self.level)
        return lower[nearest], upper[nearest]


def likely_constants(law: GroupSizeLaw, covariance: Array) -> GroupSizeLaw:
    """Return the mean of each constant given its estimate and that it is not below 0: normal errors, a flat prior.

    c + s phi(c/s)/Phi(c/s) with the standard error s. It hardly moves an estimate of several standard errors, turns one of 0 into
    0.8 standard errors, and is never below 0: an estimate of c1 that is below 0 by chance must not ask for a single group.
    """
    errors = np.sqrt(np.maximum(np.diagonal(covariance), 0.0))
    estimates = _constants(law)
    ratio = np.divide(estimates, errors, out=np.full(3, np.inf), where=errors > 0.0)
    with np.errstate(over="ignore"):
        excess = np.exp(-0.5 * ratio**2 - log_ndtr(ratio)) / np.sqrt(2.0 * np.pi)
    return GroupSizeLaw(*(float(value) for value in np.maximum(estimates + errors * excess, 0.0)))


def real_optimum(choice: GroupSizeChoice, limits: Limits) -> float:
    """Return the best group size if sizes and prompts need not be whole and only the cost counts."""
    return cost_optimum(choice.likely, limits.cost_prompt, limits.cost_response)


def _t(prompts: int, level: float) -> float:
    return float(stdtrit(prompts - 1, (1.0 + level) / 2.0))


def _constants(law: GroupSizeLaw) -> Array:
    return np.array([law.c1, law.c2, law.c3], dtype=np.float64)


def _rivals(size: int, best: int) -> Integers:
    """Return the indices of the sizes that all are compared with: at most `RIVALS`, the best and its neighbours among them."""
    if size <= RIVALS:
        return np.arange(size)
    spread = np.round(np.geomspace(1.0, size, RIVALS - 3)).astype(np.int64) - 1
    return np.unique(np.append(spread, np.clip([best - 1, best, best + 1], 0, size - 1)))


def _ratios(
    weights: Array, rivals: Array, constants: Array, covariance: Array, lower: Array | float, upper: Array | float
) -> tuple[Array, Array]:
    """Return Fieller's limits of the errors (K,) over those of rivals (C,), both of shape (K, C), with quantiles (K, 1)."""
    half = weights @ covariance
    variances = (
        np.einsum("ki,ki->k", half, weights)[:, None],
        half @ rivals.T,
        np.einsum("ci,ij,cj->c", rivals, covariance, rivals),
    )
    return quotient_limits((weights @ constants)[:, None], rivals @ constants, variances, lower, upper)


def _beaten(weights: Array, rivals: Array, constants: Array, covariance: Array, t: float) -> Flags:
    """Return which sizes (K,) have an error that is significantly above that of some rival."""
    spread, axes = np.linalg.eigh(covariance)
    root = axes * np.sqrt(np.maximum(spread, 0.0))
    variance = sum((mine[:, None] - theirs) ** 2 for mine, theirs in zip((weights @ root).T, (rivals @ root).T, strict=True))
    return ((weights @ constants)[:, None] - rivals @ constants > t * np.sqrt(variance)).any(axis=1)
