"""What prompts tell of the step of one estimator, which group size gains most in it, and what the other sizes lose."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from grpo_theory.estimation import Estimator
from grpo_theory.intervals.interval import Interval, check_level, quotient_limits, tail_quantiles
from grpo_theory.intervals.u_statistics import PromptTerms
from grpo_theory.plan.batches import SizeChoice, sufficient_prompts
from grpo_theory.plan.error_constants import likely_values, prompt_quantile, signal_interval
from grpo_theory.plan.subgroups import RewardClasses, average_over_subgroups
from grpo_theory.validation import Array, Integers, as_numbers, as_positive

SMALLEST = 1e-300
"""Stands for 0 where a logarithm is taken."""


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
    def differences(self) -> Array:
        """The standard errors of all differences of two of K estimates, shape (K, K)."""
        own = np.diagonal(self.covariance)
        return np.sqrt(np.maximum(own[:, None] + own - 2.0 * self.covariance, 0.0))

    @property
    def likely(self) -> Array:
        """The means given that the true values are not below 0, shape (...)."""
        return np.maximum(likely_values(self.values, self.standard_errors), SMALLEST)


def mean_estimates(terms: Array) -> Estimates:
    """Return the means of terms (..., B) over the prompts."""
    mean = terms.mean(axis=-1)
    return Estimates(mean, terms - mean[..., None])


def product_of(first: Array, second: Array) -> Estimates:
    """Return the inner product of the means of two vectors of each prompt, (..., B, J), by the products of different prompts'."""
    size, total, other = first.shape[-2], first.sum(axis=-2, keepdims=True), second.sum(axis=-2, keepdims=True)
    with_others = np.einsum("...j,...j->...", first, other - second)
    with_others = with_others + (with_others if first is second else np.einsum("...j,...j->...", second, total - first))
    influences = with_others / (size - 2.0)
    values = with_others.sum(axis=-1) / (2.0 * size * (size - 1.0))
    return Estimates(values, influences - influences.mean(axis=-1, keepdims=True))


@dataclass(frozen=True, eq=False)
class StepLaw:
    """Moments of one group's estimate ghat at K group sizes, over prompts and groups; g is the gradient.

    Attributes
    ----------
    group_sizes : ndarray, shape (K,)
    square : Estimates
        Of ||g||^2, shape ().
    along : Estimates
        Of g . E ghat, shape (K,).
    mean_square : Estimates
        Of ||E ghat||^2, shape (K,).
    power : Estimates
        Of E ||ghat||^2, shape (K,).
    """

    group_sizes: Integers
    square: Estimates
    along: Estimates
    mean_square: Estimates
    power: Estimates

    @property
    def prompts(self) -> int:
        """The number of prompts that this rests on."""
        return self.square.prompts

    @classmethod
    def of_unbiased(cls, terms: PromptTerms, group_sizes: Integers) -> "StepLaw":
        """Return the law of an estimator that is unbiased for g, from what prompts say of c1 and its own c2 and c3."""
        square = product_of(terms.gradients, terms.gradients)
        at = as_numbers("group_sizes", group_sizes)[:, None]
        same = Estimates(np.full(at.size, square.values), np.tile(square.influences, (at.size, 1)))
        power = mean_estimates(terms.power + terms.c2 / at + terms.c3 / (at * (at - 1.0)))
        return cls(group_sizes, square, same, same, power)

    @classmethod
    def of_subgroups(cls, classes: RewardClasses, gradients: Array, estimator: Estimator, group_sizes: Integers) -> "StepLaw":
        """Return the law of an estimator's advantages from all subgroups, and the prompts' gradient estimates (B, J)."""
        averages = (average_over_subgroups(classes, estimator, size) for size in group_sizes.tolist())
        means, powers = (np.stack(part) for part in zip(*averages, strict=True))
        along, own = product_of(gradients, means), product_of(means, means)
        return cls(group_sizes, product_of(gradients, gradients), along, own, mean_estimates(powers))

    def root_efficiency(self, batch_sizes: Integers) -> tuple[Estimates, Array]:
        """Return the root of each efficiency times ||g||, with so many prompts beside each group size, shape (K,).

        The first are estimates, which may be below 0 as g . E ghat may. The second are the likely values, given that g . E ghat
        is not below 0.
        """
        share = 1.0 / as_numbers("batch_sizes", batch_sizes)
        below = self.power.values * share + (1.0 - share) * self.mean_square.likely
        moved = self.power.influences * share[:, None] + (1.0 - share)[:, None] * self.mean_square.influences
        # With few prompts the estimate of a mean square may be 0 or less: the likely value takes its place.
        length = np.sqrt(np.where(below > 0.0, below, Estimates(below, moved).likely))
        roots = self.along.values / length
        influences = (self.along.influences - (0.5 * roots / length)[:, None] * moved) / length[:, None]
        return Estimates(roots, influences), self.along.likely / length

    def signal(self, index: int, batch_size: int) -> tuple[Estimates, Estimates]:
        """Return (g . E ghat)^2/||g||^2 and what a step's E||ghat||^2 is above it: efficiency is the first over the sum.

        Of an estimator that is unbiased these are ||g||^2 and the squared error.
        """
        share = 1.0 / batch_size
        along, own, power = (
            Estimates(part.values[index], part.influences[index]) for part in (self.along, self.mean_square, self.power)
        )
        slope = float(along.likely / self.square.likely)
        strength = Estimates(
            slope * (2.0 * along.values - slope * self.square.values),
            slope * (2.0 * along.influences - slope * self.square.influences),
        )
        step = (share * part + (1.0 - share) * other for part, other in zip(power, own, strict=True))
        noise = (whole - part for whole, part in zip(step, strength, strict=True))
        return strength, Estimates(*noise)


@dataclass(frozen=True, eq=False)
class EfficiencyChoice(SizeChoice):
    """The batches of one estimator, the efficiency of a step with each, and which is best.

    Attributes
    ----------
    group_sizes, batch_sizes : ndarray, shape (K,)
        The group sizes, ascending, and the number of prompts at each.
    loss : Interval
        Shape (K,): by what share the best size's efficiency is above that of each: 0.05 is 5% more gain of one step. No
        standard errors.
    candidates : ndarray, shape (K,)
        Whether the size cannot be told from the best.
    best : int
        The index of the recommended size.
    efficiency : ndarray, shape (K,)
        Likely values, none above 1.
    roots : Estimates
        Of the roots of the efficiencies times ||g||, shape (K,).
    likely_root : float
        The likely value of the recommended size's.
    level : float
    """

    efficiency: Array
    roots: Estimates
    likely_root: float
    level: float

    @property
    def pilot(self) -> int:
        """The number of prompts that the estimates come from."""
        return self.roots.prompts

    @property
    def root(self) -> Estimates:
        """The recommended size's, shape ()."""
        return Estimates(self.roots.values[self.best], self.roots.influences[self.best])

    def prompts_needed(self, tolerance: float) -> int | None:
        """Return how many prompts a pilot needs for the recommended size to lose less than a share, at the level.

        As `GroupSizeChoice.prompts_needed`.
        """
        tolerance = as_positive("tolerance", tolerance)

        def risk(prompts: int) -> float:
            # The covariance falls as one over the number of prompts; limits have it times the square of the quantile alone.
            t = prompt_quantile(prompts, self.level) * np.sqrt(self.pilot / prompts)
            return float(_above(self.roots, np.full(1, self.best), -t, t)[1][0])

        if self.risk <= tolerance:
            return self.pilot
        return sufficient_prompts(risk, self.pilot, tolerance)


def choose_by_efficiency(law: StepLaw, batch_sizes: Integers, level: float = 0.95) -> EfficiencyChoice:
    """Choose the group size at which a step of its own best length gains most, from the law of an estimator's step.

    A size is a candidate unless a two-sided t test shows that another has a larger root of its efficiency. `choose_group_size`
    tests errors in the same way. Limits of losses are Fieller's limits of ratios of these roots (docs/derivations.md, section
    35.4). Their quantiles allow for heavy tails, for the recommended size too.

    Parameters
    ----------
    law : StepLaw
        At least 3 prompts.
    batch_sizes : ndarray of int, shape (K,)
        The number of prompts in a training batch at each of the law's group sizes.
    level : float, default 0.95
    """
    level = check_level(level)
    t, (roots, likely) = prompt_quantile(law.prompts, level), law.root_efficiency(batch_sizes)
    best, every = int(np.argmax(likely)), np.arange(likely.size)
    kept = np.asarray(~(roots.values - roots.values[:, None] > t * roots.differences).any(axis=1))
    kept[best] = True
    ratio = np.maximum(roots.values / max(float(roots.values[best]), SMALLEST), 0.0)[:, None]
    from_best = roots.influences[best] * ratio - roots.influences
    lower, upper = (np.tile(side, (likely.size, 1)).T for side in tail_quantiles(from_best, level))
    lower[best], upper[best] = tail_quantiles(-from_best, level)
    low, high = _above(roots, every, lower, upper)
    with np.errstate(over="ignore"):  # a size whose likely step has no part along the gradient loses without limit
        loss = (likely[best] / likely) ** 2 - 1.0
    return EfficiencyChoice(
        group_sizes=law.group_sizes,
        batch_sizes=batch_sizes,
        loss=Interval(
            loss,
            np.full(loss.size, np.nan),
            np.where(kept, 0.0, np.clip(low, 0.0, loss)),
            np.maximum(high, loss),
            level,
        ),
        candidates=kept,
        best=best,
        efficiency=np.minimum(likely**2 / float(law.square.likely), 1.0),
        roots=roots,
        likely_root=float(likely[best]),
        level=level,
    )


def _above(roots: Estimates, sizes: Integers, lower: Array | float, upper: Array | float) -> tuple[Array, Array]:
    """Return limits of by what share the best rival's efficiency is above that of each of some sizes."""
    values, covariance = np.maximum(roots.values, 0.0), roots.covariance
    own = np.diagonal(covariance)
    variances = own, covariance[sizes], own[sizes, None]
    low, high = quotient_limits(values, values[sizes, None], variances, lower, upper)
    return low.max(axis=1) ** 2 - 1.0, high.max(axis=1) ** 2 - 1.0


def efficiency_gain(root: Estimates, base: Estimates, likely: float, level: float) -> Interval:
    """Return by what share one efficiency is above another, from their roots, each of shape (), and their likely ratio."""
    spread = Estimates(root.values, root.influences - likely * base.influences)
    quantiles = tail_quantiles(spread.influences, level)
    both = Estimates(np.stack([root.values, base.values]), np.stack([root.influences, base.influences])).covariance
    above, below = max(float(root.values), 0.0), max(float(base.values), 0.0)
    low, high = quotient_limits(above, below, (both[0, 0], both[0, 1], both[1, 1]), *quantiles)
    error = 2.0 * likely * spread.standard_errors / below if below > 0.0 else np.asarray(np.nan)
    return Interval(np.asarray(likely**2 - 1.0), error, low**2 - 1.0, high**2 - 1.0, level)


def efficiency_signal(law: StepLaw, index: int, batch_size: int, level: float, sketch_width: int | None) -> Interval:
    """Interval of efficiency/(1 - efficiency) of a step: for unbiased estimators ||g||^2 over the squared error."""
    strength, noise = law.signal(index, batch_size)
    both = Estimates(*(np.stack(part) for part in zip(strength, noise, strict=True)))
    variances = float(both.covariance[0, 0]), float(both.covariance[0, 1]), float(both.covariance[1, 1])
    means = float(strength.values), float(noise.values)

    def influences(ratio: float) -> Array:
        return strength.influences - ratio * noise.influences

    return signal_interval(means, variances, influences, level, sketch_width)
