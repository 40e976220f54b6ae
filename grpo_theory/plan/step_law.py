"""What prompts tell of the step of one estimator: the means that its efficiency is made of, at several group sizes."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from grpo_theory.arrays import Array, Integers
from grpo_theory.estimation import Estimator
from grpo_theory.intervals.components import PromptTerms
from grpo_theory.plan.error_constants import likely_values
from grpo_theory.plan.subgroups import RewardClasses, average_over_subgroups
from grpo_theory.validation import as_numbers

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


def mean_of(terms: Array) -> Estimates:
    """Return the means of terms (..., B) over the prompts."""
    mean = terms.mean(axis=-1)
    return Estimates(mean, terms - mean[..., None])


def product_of(first: Array, second: Array) -> Estimates:
    """Return the inner product of the means of two vectors of each prompt, (B, J), by the products of different prompts'."""
    size, total, other = len(first), first.sum(axis=0), second.sum(axis=0)
    with_others = (first * (other - second)).sum(axis=1)
    with_others = with_others + (with_others if first is second else (second * (total - first)).sum(axis=1))
    influences = with_others / (size - 2.0)
    return Estimates(with_others.sum() / (2.0 * size * (size - 1.0)), influences - influences.mean())


@dataclass(frozen=True, eq=False)
class StepLaw:
    """Of one group's estimate ghat at K group sizes, with g the gradient: all over prompts and groups.

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
        power = mean_of(terms.power + terms.c2 / at + terms.c3 / (at * (at - 1.0)))
        return cls(group_sizes, square, same, same, power)

    @classmethod
    def of_subgroups(cls, classes: RewardClasses, gradients: Array, estimator: Estimator, group_sizes: Integers) -> "StepLaw":
        """Return the law of an estimator's advantages from all subgroups, and the prompts' gradient estimates (B, J)."""
        rows: list[tuple[Estimates, Estimates, Estimates]] = []
        for size in group_sizes.tolist():
            means, powers = average_over_subgroups(classes, estimator, size)
            rows.append((product_of(gradients, means), product_of(means, means), mean_of(powers)))
        parts = (Estimates(*(np.stack(part) for part in zip(*column, strict=True))) for column in zip(*rows, strict=True))
        return cls(group_sizes, product_of(gradients, gradients), *parts)

    def root_efficiency(self, batch_sizes: Integers) -> tuple[Estimates, Array]:
        """Return the root of each efficiency times ||g||, with so many prompts beside each group size, shape (K,).

        First estimates that may be below 0, as g . E ghat may; then the likely values, given that this is not below 0.
        """
        share = 1.0 / as_numbers("batch_sizes", batch_sizes)
        below = self.power.values * share + (1.0 - share) * self.mean_square.likely
        length = np.sqrt(np.maximum(below, SMALLEST))
        roots = self.along.values / length
        moved = self.power.influences * share[:, None] + (1.0 - share)[:, None] * self.mean_square.influences
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
